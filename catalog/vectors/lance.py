"""LanceDB on S3. The only module that imports it, and only on first use: the import takes seconds."""

from __future__ import annotations

import os
from collections.abc import Collection, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from catalog.core import s3_layout
from catalog.core.clients import environment_credentials
from catalog.core.errors import Conflict, LakeError, NotFound, Unavailable
from catalog.core.settings import Settings
from catalog.timeline import VectorObjects, vector_table_name
from catalog.vectors.embedding import Vectors

KEY = "_key"
"""The digest of the row's key, in hex: one column that identifies a row, whatever its key columns are."""
VECTOR = "embedding"
SNAPSHOT = "source_snapshot"
"""The Iceberg snapshot to which the refresh that wrote the row brought the table."""

OPEN_VERSIONS = 16
_KEYS_PER_DELETE = 500
_NEVER = timedelta(days=365 * 100)


class Lance:
    """Creates, opens and drops Lance tables below `vectors/`. Lance's errors become LakeErrors."""

    def __init__(self, settings: Settings, s3: Any) -> None:
        self._settings, self._s3 = settings, s3
        self._uri = f"s3://{settings.bucket}/{s3_layout.VECTORS}"
        self._open_cached = lru_cache(maxsize=OPEN_VERSIONS)(self._open)
        self._open_async_cached = lru_cache(maxsize=OPEN_VERSIONS)(self._open_async)

    @cached_property
    def _db(self) -> Any:
        import lancedb

        return lancedb.connect(self._uri, **self._connection)

    @cached_property
    def _connection(self) -> dict[str, Any]:
        # Lance logs a warning for every new table. It raises its errors, so nothing is lost.
        os.environ.setdefault("LANCEDB_LOG", "error")
        import lancedb

        return {
            "storage_options": self._options,
            "read_consistency_interval": timedelta(0),
            "session": lancedb.Session(),  # blocking and async connections share one cache
        }

    @cached_property
    def _options(self) -> dict[str, str]:
        # On AWS, Lance finds the role's credentials itself; elsewhere it gets those that all other clients use.
        credentials = environment_credentials()
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
        """Creates an empty table and returns its version. Overwrites a table that no head points to."""
        return int(self._call(id_, lambda: self._db.create_table(id_, schema=schema, mode="overwrite").version))

    def open(self, id_: str, version: int | None = None) -> Any:
        return self._call(id_, lambda: self._db.open_table(id_, version=version))

    def drop(self, id_: str) -> None:
        self._call(id_, lambda: self._db.drop_table(id_, ignore_missing=True))

    def at(self, id_: str, version: int, manifest_sha256: str) -> Any:
        """A version to read from, kept open so that the next search reuses what Lance has loaded of it.

        The manifest's digest is part of the cache key: a table that was dropped and created again restarts at 1.
        """
        return self._open_cached(id_, version, manifest_sha256)

    def at_async(self, id_: str, version: int, manifest_sha256: str) -> Any:
        """The same with a table whose queries are coroutines, for `run_query`."""
        return self._open_async_cached(id_, version, manifest_sha256)

    def _open(self, id_: str, version: int, _manifest_sha256: str) -> Any:
        return self.open(id_, version)

    def _open_async(self, id_: str, version: int, _manifest_sha256: str) -> Any:
        import lancedb

        async def connect_and_open() -> Any:
            connection = await lancedb.connect_async(self._uri, **self._connection)
            return await connection.open_table(id_, version=version)

        return self._call(id_, lambda: _run(connect_and_open()))

    def manifest_sha256(self, id_: str, version: int) -> str:
        return VectorObjects(self._s3, self._settings.bucket).manifest(vector_table_name(id_), version).sha256

    def remove_versions(self, id_: str, kept: Collection[int], older_than: timedelta) -> int:
        """Removes the versions before the newest of `kept` that are not in it, with the files that only they use.

        Returns how many. Versions younger than `older_than` stay: a search may still read one that left the head.
        """
        import lance

        def remove() -> int:
            dataset = lance.dataset(f"{self._uri}{id_}.lance", storage_options=self._options)
            limit = datetime.now() - older_than  # Lance's timestamps are local times
            versions: list[Any] = list(dataset.versions())
            old = [
                int(entry["version"])
                for entry in versions
                if entry["version"] < max(kept) and entry["version"] not in kept and entry["timestamp"] < limit
            ]
            if old:
                dataset.cleanup_old_versions(versions=old)
            return len(old)

        return int(self._call(id_, remove))

    def run_query(self, id_: str, query: Any) -> pa.Table:
        """The result of a query on a table from `at_async`.

        Switches to Lance's event loop thread once. Lance's blocking API switches six times, a quarter of a search's
        time.
        """
        rows: pa.Table = self._call(id_, lambda: _run(query.to_arrow()))
        return rows

    @staticmethod
    def _call(id_: str, operation: Any) -> Any:
        try:
            return operation()
        except LakeError:
            raise
        except (
            RuntimeError,
            OSError,
            ValueError,
        ) as error:  # the types that Lance raises; only the text tells the cause
            if "not found" in str(error).lower():
                raise NotFound(f"the vector table {id_} does not exist: {error}", subject=id_) from None
            raise Unavailable(f"the vector table {id_} could not be reached: {error}", subject=id_) from None


def _run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    from lancedb.background_loop import LOOP

    return LOOP.run(coroutine)


class Chain:
    """Writes to one table that no other writer interleaves: each must create the next version, else Conflict.

    Lance itself lets two writers interleave, which would mix two refreshes.
    """

    def __init__(self, table: Any, id_: str, version: int) -> None:
        self._table, self._id, self.version = table, id_, version

    def restore(self, version: int) -> None:
        """Makes an old version the newest again, which hides the versions of an unfinished refresh."""
        self._table.checkout(version)
        self._table.restore()
        self._advance(int(self._table.version))

    def add(self, rows: pa.Table) -> None:
        if len(rows):
            self._advance(self._table.add(rows).version)

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _KEYS_PER_DELETE):
            literals = ", ".join(f"'{key}'" for key in keys[start : start + _KEYS_PER_DELETE])  # hex: nothing to escape
            self._advance(self._table.delete(f"{KEY} IN ({literals})").version)

    def index_words(self, column: str) -> None:
        """Builds the full-text index: stemmed, without accents and stop words, with positions. Writes only to S3."""
        from lancedb.index import FTS

        self._table.create_index(column, config=FTS(with_position=True), replace=True)
        self._advance(int(self._table.version))

    def index_vectors(self, partitions: int) -> None:
        """Builds the vector index: inverted lists, one byte per dimension. For jobs only: Lance writes to $TMPDIR."""
        from lancedb.index import IvfSq

        self._table.create_index(VECTOR, config=IvfSq(distance_type="cosine", num_partitions=partitions), replace=True)
        self._advance(int(self._table.version))

    def optimize(self) -> None:
        """Merges small files and updates the indexes. May create several versions."""
        # By default it would also remove versions older than a week, even those in a head; see remove_versions.
        self._table.optimize(cleanup_older_than=_NEVER)
        self.version = int(self._table.version)

    def _advance(self, version: int) -> None:
        if version != self.version + 1:
            raise Conflict(f"another refresh of the vector table {self._id} is running: try again", subject=self._id)
        self.version = version


def lance_schema(source: pa.Schema, columns: Sequence[str], dimensions: int) -> pa.Schema:
    """The key's digest, the source's columns, the vector, and the snapshot."""
    source_fields = [pa.field(name, source.field(name).type) for name in columns]
    return pa.schema(
        [
            pa.field(KEY, pa.string(), nullable=False),
            *source_fields,
            pa.field(VECTOR, pa.list_(pa.float32(), dimensions), nullable=False),
            pa.field(SNAPSHOT, pa.int64(), nullable=False),
        ]
    )


def vector_column(vectors: Vectors) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel(), pa.float32()), vectors.shape[1])
