"""The multiset digest of a frame's rows (catalog.changes.multiset), taken in one pass, or as they flow to a writer.

Rows go to the Python workers as Arrow, where the one implementation of the row digest is (digesting.py): as SQL it was
slower. What comes back is a handful of numbers for a batch. Files can be read by the workers themselves.
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

from catalog.changes.multiset import RowsDigest
from spark_jobs.digesting import NAMES, WrittenFiles, digests_of, first_of_batch

_SUMS = "__strandline_sums"
_TYPE = ", ".join(f"{name} bigint" for name in NAMES)
_PAST: Any = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "current_snapshot_id": None}


def digest(frame: DataFrame, schema: pa.Schema) -> RowsDigest:
    """The digest of a frame's rows: one pass over them. `schema`: its columns with their field ids."""
    # Under plain names: mapInArrow cannot take every one that a column may have.
    chosen = frame.select(*(_column(name).alias(f"c{at}") for at, name in enumerate(schema.names)))
    parts = chosen.mapInArrow(partial(digests_of, schema), _TYPE).collect()
    return RowsDigest.sum(RowsDigest.parse(part.asDict()) for part in parts)


def watched(frame: DataFrame, schema: pa.Schema, into: Observation) -> DataFrame:
    """The frame as it is, whose rows are digested when they are read; `seen` says the outcome afterwards.

    Rows that are read twice count twice. Sums are exact up to 2**31 rows; then Spark's ANSI mode stops with an
    overflow rather than a wrong sum.
    """

    def sums(*columns: pa.Array) -> pa.Array:
        return first_of_batch(schema, columns)

    of_batch: Any = arrow_udf(sums, _TYPE)
    marked = frame.withColumn(_SUMS, of_batch(*map(_column, schema.names)))
    totals = [expr(f"sum({_SUMS}.{name})").alias(name) for name in NAMES]
    return marked.observe(into, *totals).drop(_SUMS)


def digest_files(
    spark: SparkSession, table: Table, schema: Schema, files: Sequence[tuple[str, str, int]]
) -> RowsDigest:
    """The digest of all rows in data files of a table: path, format and partition spec of each.

    Each is read by one task, straight from the store by Arrow: no row passes through the JVM, and no worker asks the
    catalog. Memory: a row group.
    """
    if not files:
        return RowsDigest()
    metadata = table.metadata.model_copy(update=_PAST)
    written = WrittenFiles(
        metadata.model_dump_json(), schema.model_dump_json(), dict(table.io.properties), tuple(files)
    )
    numbers = spark.range(0, len(files), 1, len(files))  # a task for each
    parts = numbers.mapInArrow(written.digests, _TYPE).collect()
    return RowsDigest.sum(RowsDigest.parse(part.asDict()) for part in parts)


def seen(observation: Observation) -> RowsDigest:
    return RowsDigest.parse(observation.get)


def _column(name: str) -> Column:
    return col("`" + name.replace("`", "``") + "`")
