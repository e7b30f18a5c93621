"""A step's output: made anew by Spark in one commit, or mended for some units in one commit of only what differs.

Every commit carries its watermark. Mending goes through the lake's own tables, a few requests; a table in another
format than Parquet is mended by Spark's MERGE.
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

from catalog.lake import Lake
from catalog.pipeline.layers import TableSpec
from catalog.tables.commits import new_token
from catalog.tables.deltas import Delta
from catalog.tables.rows import check_rows
from catalog.tables.writes import Planner

Row = dict[str, Any]


def existing(lake: Lake, table: str, spec: TableSpec, units: set[Any]) -> list[Row]:
    """The rows that the table has for these units now."""
    if lake.tables.load(table).current_snapshot() is None:
        return []
    found = lake.tables.scan(table)
    texts = pa.array([str(unit) for unit in units], pa.string())
    rows: list[Row] = found.filter(pc.is_in(found[spec.unit], value_set=texts)).select(spec.schema.names).to_pylist()
    return rows


def mend(
    session: Callable[[], SparkSession],
    lake: Lake,
    table: str,
    spec: TableSpec,
    before: Sequence[Row],
    after: Sequence[Row],
    summary: Mapping[str, str],
) -> tuple[int | None, int]:
    """Replaces rows `before` by rows `after`, by key, in one commit; the snapshot and how many rows differed.

    `session` is asked for only if the table is not in Parquet. Nothing to change is a commit as well, an empty one: it
    carries the watermark on.
    """
    key = spec.key
    old = {tuple(row[name] for name in key): row for row in before}
    new = {tuple(row[name] for name in key): row for row in after}
    fresh = [row for identity, row in new.items() if old.get(identity) != row]
    gone = [identity for identity, row in old.items() if new.get(identity) != row]
    loaded = lake.tables.load(table)
    if loaded.properties.get("write.format.default", "parquet") != "parquet" and (fresh or gone):
        return _merge(
            session(), lake, table, spec, fresh, [identity for identity in gone if identity not in new], summary
        )
    arrow = pa.Table.from_pylist(fresh, schema=spec.schema)
    key_schema = pa.schema([spec.schema.field(name) for name in key])
    keys = pa.Table.from_pylist([dict(zip(key, identity, strict=True)) for identity in gone], schema=key_schema)
    keys = pa.concat_tables([keys, arrow.select(list(key))])

    def plan(planner: Planner) -> Delta:
        if not keys.num_rows:
            return Delta()
        rows = check_rows(planner.version.schema, arrow, table=table) if arrow.num_rows else None
        wanted = keys.cast(schema_to_pyarrow(planner.version.schema.select(*key), include_field_ids=False))
        return planner.replace_keys(wanted, key, rows)

    _, snapshot, _ = lake.tables.committer.write(
        table, plan, tokens={new_token(): len(fresh)}, insist=True, properties=summary
    )
    return snapshot.snapshot_id if snapshot else None, len(fresh) + sum(identity not in new for identity in gone)


def _merge(
    spark: SparkSession,
    lake: Lake,
    table: str,
    spec: TableSpec,
    fresh: Sequence[Row],
    removed: Sequence[tuple[Any, ...]],
    summary: Mapping[str, str],
) -> tuple[int | None, int]:
    schema = pa.schema([*spec.schema, pa.field("__gone", pa.bool_())])
    tombstones = [{**dict(zip(spec.key, identity, strict=True)), "__gone": True} for identity in removed]
    staged = pa.Table.from_pylist([*({**row, "__gone": False} for row in fresh), *tombstones], schema=schema)
    spark.createDataFrame(staged).createOrReplaceTempView("mended")
    on = " AND ".join(f"t.`{name}` = s.`{name}`" for name in spec.key)
    sets = ", ".join(f"t.`{name}` = s.`{name}`" for name in spec.schema.names)
    names, values = (", ".join(f"{p}`{n}`" for n in spec.schema.names) for p in ("", "s."))
    with snapshot_properties(spark, summary):
        spark.sql(
            f"MERGE INTO {table} t USING mended s ON {on} WHEN MATCHED AND s.__gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT s.__gone THEN INSERT ({names}) VALUES ({values})"
        )
    return head(lake, table), len(fresh) + len(removed)


def make_anew(frame: DataFrame, lake: Lake, table: str, summary: Mapping[str, str]) -> int | None:
    """The frame's rows instead of all that the table has, in one commit."""
    writer = frame.writeTo(table).option("check-nullability", "false")
    for name, value in summary.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.overwrite(lit(True))
    return head(lake, table)


@contextmanager
def snapshot_properties(spark: SparkSession, summary: Mapping[str, str]) -> Iterator[None]:
    """Within the block every commit by SQL carries these; nullable columns may fill required ones."""
    named = {f"spark.sql.iceberg.snapshot-property.{name}": value for name, value in summary.items()}
    named["spark.sql.iceberg.check-nullability"] = "false"
    for name, value in named.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in named:
            spark.conf.unset(name)


def head(lake: Lake, table: str) -> int | None:
    found = lake.tables.load(table).current_snapshot()
    return found.snapshot_id if found else None
