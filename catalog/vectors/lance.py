"""LanceDB on S3: the only module that imports it. Its import takes seconds, so it waits for the first use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any

import boto3
import pyarrow as pa

from catalog import places
from catalog.errors import Conflict, LakeError, NotFound, Unavailable
from catalog.settings import Settings
from catalog.timeline.away import explained
from catalog.vectors.embedding import Vectors

KEY = "_key"
"""The digest of the row's key, in hex: one column to find a row by, whatever its key is made of."""
VECTOR = "embedding"
SNAPSHOT = "source_snapshot"
"""The Iceberg snapshot that the refresh which wrote the row went to."""

_KEYS_AT_ONCE = 500


class Lance:
    """Opens and writes Lance tables below `vectors/`. Each write says which version it made."""

    def __init__(self, settings: Settings, s3: Any) -> None:
        self._settings, self._s3 = settings, s3

    @cached_property
    def _db(self) -> Any:
        # Lance warns of every table that is new. What goes wrong it raises.
        os.environ.setdefault("LANCEDB_LOG", "error")
        import lancedb

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
        where = f"s3://{self._settings.bucket}/{places.VECTORS}"
        return lancedb.connect(where, storage_options=options, read_consistency_interval=timedelta(0))

    def create(self, id_: str, schema: pa.Schema) -> int:
        """An empty table, in place of whatever lies there: nobody reads what no head points to."""
        return int(self._call(id_, lambda: self._db.create_table(id_, schema=schema, mode="overwrite").version))

    def open(self, id_: str, version: int | None = None) -> Any:
        return self._call(id_, lambda: self._db.open_table(id_, version=version))

    def drop(self, id_: str) -> None:
        self._call(id_, lambda: self._db.drop_table(id_, ignore_missing=True))

    def manifest_sha256(self, id_: str, version: int) -> str:
        """SHA-256 of the manifest of a version: its name counts down from 2**64 - 1, so that the newest lists first."""
        key = f"{places.VECTORS}{id_}.lance/_versions/{2**64 - 1 - version}.manifest"
        with explained(key):
            body = self._s3.get_object(Bucket=self._settings.bucket, Key=key)["Body"].read()
        return sha256(body).hexdigest()

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
        """Inverted lists of quantised vectors. Lance shuffles them through $TMPDIR: for jobs, not for functions."""
        from lancedb.index import IvfRq

        self._table.create_index(VECTOR, config=IvfRq(distance_type="cosine", num_partitions=partitions), replace=True)
        self._step(int(self._table.version))

    def optimize(self) -> None:
        """Merges small files and brings the indexes up to date; as many versions as that takes."""
        self._table.optimize(cleanup_older_than=None)
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
