"""A step's output: overwritten by Spark in one commit, or updated in one commit that replaces the rows that differ.

Every commit carries its watermark. Updates go through catalog.tables, with a few requests; a table in another format
than Parquet is updated by Spark's MERGE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from catalog import Lake
from catalog.notes import TableSpec
from catalog.tables import Delta, WritePlanner, check_rows, new_token

Row = dict[str, Any]


def rows_of_units(lake: Lake, table: str, spec: TableSpec, units: set[Any]) -> list[Row]:
    """The table's current rows of these units."""
    if lake.tables.load(table).current_snapshot() is None:
        return []
    scanned = lake.tables.scan(table)
    texts = pa.array([str(unit) for unit in units], pa.string())
    rows: list[Row] = (
        scanned.filter(pc.is_in(scanned[spec.unit], value_set=texts)).select(spec.schema.names).to_pylist()
    )
    return rows


def replace_rows(
    session: Callable[[], SparkSession],
    lake: Lake,
    table: str,
    spec: TableSpec,
    before: Sequence[Row],
    after: Sequence[Row],
    summary: Mapping[str, str],
) -> tuple[int | None, int]:
    """Replaces the rows `before` by the rows `after`, by key, in one commit.

    Returns its snapshot and how many rows differed. Calls `session` only if the table is not in Parquet.
    Commits even if no row differs, to advance the watermark.
    """
    key = spec.key
    old = {tuple(row[name] for name in key): row for row in before}
    new = {tuple(row[name] for name in key): row for row in after}
    added = [row for identity, row in new.items() if old.get(identity) != row]
    removed = [identity for identity, row in old.items() if new.get(identity) != row]
    loaded = lake.tables.load(table)
    if loaded.properties.get("write.format.default", "parquet") != "parquet" and (added or removed):
        return _merge(
            session(), lake, table, spec, added, [identity for identity in removed if identity not in new], summary
        )
    arrow = pa.Table.from_pylist(added, schema=spec.schema)
    key_schema = pa.schema([spec.schema.field(name) for name in key])
    keys = pa.Table.from_pylist([dict(zip(key, identity, strict=True)) for identity in removed], schema=key_schema)
    keys = pa.concat_tables([keys, arrow.select(list(key))])

    def plan(planner: WritePlanner) -> Delta:
        if not keys.num_rows:
            return Delta()
        rows = check_rows(planner.version.schema, arrow, table=table) if arrow.num_rows else None
        typed_keys = keys.cast(schema_to_pyarrow(planner.version.schema.select(*key), include_field_ids=False))
        return planner.replace_keys(typed_keys, key, rows)

    _, snapshot, _ = lake.tables.committer.write(
        table, plan, tokens={new_token(): len(added)}, commit_empty=True, properties=summary
    )
    return snapshot.snapshot_id if snapshot else None, len(added) + sum(identity not in new for identity in removed)


def _merge(
    spark: SparkSession,
    lake: Lake,
    table: str,
    spec: TableSpec,
    added: Sequence[Row],
    removed: Sequence[tuple[Any, ...]],
    summary: Mapping[str, str],
) -> tuple[int | None, int]:
    schema = pa.schema([*spec.schema, pa.field("__deleted", pa.bool_())])
    tombstones = [{**dict(zip(spec.key, identity, strict=True)), "__deleted": True} for identity in removed]
    staged = pa.Table.from_pylist([*({**row, "__deleted": False} for row in added), *tombstones], schema=schema)
    spark.createDataFrame(staged).createOrReplaceTempView("updated_rows")
    on = " AND ".join(f"t.`{name}` = s.`{name}`" for name in spec.key)
    sets = ", ".join(f"t.`{name}` = s.`{name}`" for name in spec.schema.names)
    names, values = (", ".join(f"{p}`{n}`" for n in spec.schema.names) for p in ("", "s."))
    with snapshot_properties(spark, summary):
        spark.sql(
            f"MERGE INTO {table} t USING updated_rows s ON {on} WHEN MATCHED AND s.__deleted THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT s.__deleted THEN INSERT ({names}) VALUES ({values})"
        )
    return head(lake, table), len(added) + len(removed)


def overwrite(frame: DataFrame, lake: Lake, table: str, summary: Mapping[str, str]) -> int | None:
    """Replaces all rows of the table by the frame's, in one commit; returns its snapshot."""
    writer = frame.writeTo(table).option("check-nullability", "false")
    for name, value in summary.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.overwrite(lit(True))
    return head(lake, table)


@contextmanager
def snapshot_properties(spark: SparkSession, summary: Mapping[str, str]) -> Iterator[None]:
    """In the block, every commit by SQL has these summary properties, and nullable columns may fill required ones."""
    conf = {f"spark.sql.iceberg.snapshot-property.{name}": value for name, value in summary.items()}
    conf["spark.sql.iceberg.check-nullability"] = "false"
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in conf:
            spark.conf.unset(name)


def head(lake: Lake, table: str) -> int | None:
    """The id of the table's current snapshot."""
    snapshot = lake.tables.load(table).current_snapshot()
    return snapshot.snapshot_id if snapshot else None
