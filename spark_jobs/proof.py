"""The rows digest of a frame (catalog.changes.multiset), computed in a pass of its own or while the rows are written.

Spark sends the rows as Arrow to its Python workers, which use the only implementation of the row digest
(digest_workers.py) and return 4 KB for each batch; an implementation in SQL was slower. Workers can also read files
themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.functions import arrow_udf, col, expr

from catalog.changes import RowsDigest
from spark_jobs.digest_workers import WrittenFiles, digests_of, first_of_batch

_DIGEST = "__strandline_digest"
_TYPE = "rows bigint, state binary"
_NO_HISTORY: Any = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "current_snapshot_id": None}


def digest(frame: DataFrame, schema: pa.Schema) -> RowsDigest:
    """The rows digest of a frame: one pass over its rows. `schema`: its columns with their field ids."""
    # Renamed to c0, c1, …: mapInArrow does not accept every column name.
    renamed = frame.select(*(_column(name).alias(f"c{at}") for at, name in enumerate(schema.names)))
    parts = renamed.mapInArrow(partial(digests_of, schema), _TYPE).collect()
    return RowsDigest.sum(RowsDigest.parse(part.asDict()) for part in parts)


def with_digest(frame: DataFrame, schema: pa.Schema, observation: Observation) -> DataFrame:
    """The same frame, whose rows are digested while they are read; `observed_digest` returns the result afterwards.

    Rows that are read twice count twice. The driver's memory holds 4 KB for each Arrow batch (10,000 rows by default).
    """

    def batch_digest(*columns: pa.Array) -> pa.Array:
        return first_of_batch(schema, columns)

    as_column: Any = arrow_udf(batch_digest, _TYPE)
    digested = frame.withColumn(_DIGEST, as_column(*map(_column, schema.names)))
    rows, states = expr(f"sum({_DIGEST}.rows)").alias("rows"), expr(f"collect_list({_DIGEST}.state)").alias("states")
    return digested.observe(observation, rows, states).drop(_DIGEST)


def digest_files(
    spark: SparkSession, table: Table, schema: Schema, files: Sequence[tuple[str, str, int]]
) -> RowsDigest:
    """The rows digest of data files of a table, given by path, format and partition spec id.

    One task reads each file, from S3 by Arrow: no row passes through the JVM, and no worker makes a request to the
    catalog. Memory: a row group.
    """
    if not files:
        return RowsDigest()
    parts = _by_file(spark, files).mapInArrow(_written(table, schema, files).digests, _TYPE).collect()
    return RowsDigest.sum(RowsDigest.parse(part.asDict()) for part in parts)


def row_digests_of_files(
    spark: SparkSession, table: Table, schema: Schema, files: Sequence[tuple[str, str, int]], prefix_bytes: int
) -> list[bytes]:
    """For each of these data files, the first bytes of its rows' digests, in order. Driver memory: those bytes."""
    read = partial(_written(table, schema, files).row_digests, prefix_bytes)
    parts = _by_file(spark, files).mapInArrow(read, "file bigint, digests binary").collect()
    return [bytes(part.digests) for part in sorted(parts, key=lambda part: int(part.file))]


def _by_file(spark: SparkSession, files: Sequence[Any]) -> DataFrame:
    """The numbers of the files, one task for each."""
    return spark.range(0, len(files), 1, len(files))


def _written(table: Table, schema: Schema, files: Sequence[tuple[str, str, int]]) -> WrittenFiles:
    metadata = table.metadata.model_copy(update=_NO_HISTORY)
    return WrittenFiles(metadata.model_dump_json(), schema.model_dump_json(), dict(table.io.properties), tuple(files))


def observed_digest(observation: Observation) -> RowsDigest:
    """What `with_digest` observed. NULL, Spark's sum over no rows, counts as 0."""
    observed = observation.get
    total = RowsDigest.sum(RowsDigest.parse({"rows": 0, "state": state}) for state in observed["states"])
    return RowsDigest(int(observed["rows"] or 0), total.state)


def _column(name: str) -> Column:
    return col("`" + name.replace("`", "``") + "`")
