"""LanceDB on S3: the only module that imports it. Its import takes seconds, so it waits for the first use."""

from __future__ import annotations

import os
from collections.abc import Collection, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

import boto3
import pyarrow as pa

from catalog import places
from catalog.errors import Conflict, LakeError, NotFound, Unavailable
from catalog.settings import Settings
from catalog.timeline.vector_moves import VectorObjects, name_of
from catalog.vectors.embedding import Vectors

KEY = "_key"
"""The digest of the row's key, in hex: one column to find a row by, whatever its key is made of."""
VECTOR = "embedding"
SNAPSHOT = "source_snapshot"
"""The Iceberg snapshot that the refresh which wrote the row went to."""

OPEN_VERSIONS = 16
_KEYS_AT_ONCE = 500
_NEVER = timedelta(days=365 * 100)


class Lance:
    """Opens and writes Lance tables below `vectors/`. Each write says which version it made."""

    def __init__(self, settings: Settings, s3: Any) -> None:
        self._settings, self._s3 = settings, s3
        self._where = f"s3://{settings.bucket}/{places.VECTORS}"
        self._opened = lru_cache(maxsize=OPEN_VERSIONS)(self._open)
        self._opened_to_ask = lru_cache(maxsize=OPEN_VERSIONS)(self._open_to_ask)

    @cached_property
    def _db(self) -> Any:
        import lancedb

        return lancedb.connect(self._where, **self._connection)

    @cached_property
    def _connection(self) -> dict[str, Any]:
        # Lance warns of every table that is new. What goes wrong it raises.
        os.environ.setdefault("LANCEDB_LOG", "error")
        import lancedb

        return {
            "storage_options": self._options,
            "read_consistency_interval": timedelta(0),
            "session": lancedb.Session(),  # both ways in share what is cached of a table
        }

    @cached_property
    def _options(self) -> dict[str, str]:
        # On AWS Lance finds the role's credentials by itself; elsewhere it is told those of every other client.
        credentials = boto3.Session().get_credentials()
        options = {"aws_region": self._settings.region}
        if self._settings.endpoint_url is not None and credentials is not None:
            options |= {
                "endpoint": self._settings.endpoint_url,
                "allow_http": "true",
                "aws_access_key_id": credentials.access_key,
                "aws_secret_access_key": credentials.secret_key,
            }
        return options

    def create(self, id_: str, schema: pa.Schema) -> int:
        """An empty table, in place of whatever lies there: nobody reads what no head points to."""
        return int(self._call(id_, lambda: self._db.create_table(id_, schema=schema, mode="overwrite").version))

    def open(self, id_: str, version: int | None = None) -> Any:
        return self._call(id_, lambda: self._db.open_table(id_, version=version))

    def drop(self, id_: str) -> None:
        self._call(id_, lambda: self._db.drop_table(id_, ignore_missing=True))

    def at(self, id_: str, version: int, manifest_sha256: str) -> Any:
        """A version to read from, kept open: what Lance has loaded of it serves the next search too.

        It is known by its manifest's digest: a table that was dropped and made anew counts from one again.
        """
        return self._opened(id_, version, manifest_sha256)

    def to_ask(self, id_: str, version: int, manifest_sha256: str) -> Any:
        """The same for `asked`: a table whose queries are coroutines."""
        return self._opened_to_ask(id_, version, manifest_sha256)

    def _open(self, id_: str, version: int, _manifest_sha256: str) -> Any:
        return self.open(id_, version)

    def _open_to_ask(self, id_: str, version: int, _manifest_sha256: str) -> Any:
        import lancedb

        async def opened() -> Any:
            connection = await lancedb.connect_async(self._where, **self._connection)
            return await connection.open_table(id_, version=version)

        return self._call(id_, lambda: _run(opened()))

    def manifest_sha256(self, id_: str, version: int) -> str:
        return VectorObjects(self._s3, self._settings.bucket).manifest(name_of(id_), version).sha256

    def remove_versions(self, id_: str, kept: Collection[int], older_than: timedelta) -> int:
        """Removes the versions before the last kept one that are not kept themselves, and files that only they need.

        How many. Those younger than `older_than` stay: somebody may be reading one that a head still offered then.
        """
        import lance

        def remove() -> int:
            dataset = lance.dataset(f"{self._where}{id_}.lance", storage_options=self._options)
            limit = datetime.now() - older_than  # Lance gives local times
            there: list[Any] = list(dataset.versions())
            old = [
                int(found["version"])
                for found in there
                if found["version"] < max(kept) and found["version"] not in kept and found["timestamp"] < limit
            ]
            if old:
                dataset.cleanup_old_versions(versions=old)
            return len(old)

        return int(self._call(id_, remove))

    def asked(self, id_: str, query: Any) -> pa.Table:
        """What a query of `to_ask` finds; its errors in our words.

        One step over to Lance's thread and back. The blocking calls take six, which is a quarter of a search's time.
        """
        found: pa.Table = self._call(id_, lambda: _run(query.to_arrow()))
        return found

    @staticmethod
    def _call(id_: str, do: Any) -> Any:
        try:
            return do()
        except LakeError:
            raise
        except (RuntimeError, OSError, ValueError) as error:  # all that Lance raises, with its reason as text
            if "not found" in str(error).lower():
                raise NotFound(f"the vector table {id_} is not there: {error}", subject=id_) from None
            raise Unavailable(f"the vector table {id_} could not be reached: {error}", subject=id_) from None


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    from lancedb.background_loop import LOOP

    return LOOP.run(work)


class Chain:
    """A run of writes to one table that nobody else's writes came between: each makes the very next version.

    Lance lets two writers interleave. Here that would mix two refreshes, so it is a Conflict.
    """

    def __init__(self, table: Any, id_: str, version: int) -> None:
        self._table, self._id, self.version = table, id_, version

    def restore(self, version: int) -> None:
        """Makes an old version the newest again: what an unfinished refresh left goes out of sight."""
        self._table.checkout(version)
        self._table.restore()
        self._step(int(self._table.version))

    def add(self, rows: pa.Table) -> None:
        if len(rows):
            self._step(self._table.add(rows).version)

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            listed = ", ".join(f"'{key}'" for key in keys[start : start + _KEYS_AT_ONCE])  # hex: nothing to escape
            self._step(self._table.delete(f"{KEY} IN ({listed})").version)

    def index_words(self, column: str) -> None:
        """Full text: stemmed, without accents and stop words, with positions for phrases. Writes to S3 only."""
        from lancedb.index import FTS

        self._table.create_index(column, config=FTS(with_position=True), replace=True)
        self._step(int(self._table.version))

    def index_vectors(self, partitions: int) -> None:
        """Inverted lists of vectors, a byte a number. Lance shuffles them through $TMPDIR: for jobs alone."""
        from lancedb.index import IvfSq

        self._table.create_index(VECTOR, config=IvfSq(distance_type="cosine", num_partitions=partitions), replace=True)
        self._step(int(self._table.version))

    def optimize(self) -> None:
        """Merges small files and brings the indexes up to date; as many versions as that takes."""
        # It would also remove versions older than a week, whether or not a head offers them: that is done elsewhere.
        self._table.optimize(cleanup_older_than=_NEVER)
        self.version = int(self._table.version)

    def _step(self, version: int) -> None:
        if version != self.version + 1:
            raise Conflict(f"somebody else is refreshing the vector table {self._id}: try again", subject=self._id)
        self.version = version


def lance_schema(source: pa.Schema, columns: Sequence[str], dimensions: int) -> pa.Schema:
    """The key's digest, the kept columns, the vector, and the snapshot."""
    kept = [pa.field(name, source.field(name).type) for name in columns]
    return pa.schema(
        [
            pa.field(KEY, pa.string(), nullable=False),
            *kept,
            pa.field(VECTOR, pa.list_(pa.float32(), dimensions), nullable=False),
            pa.field(SNAPSHOT, pa.int64(), nullable=False),
        ]
    )


def vector_column(vectors: Vectors) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])
