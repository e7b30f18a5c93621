"""Tables written here read correctly in Spark with Iceberg, and Spark's read correctly here: rows and change feed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from catalog.changes import changes
from catalog.tables.manager import Tables

pytestmark = pytest.mark.xdist_group("spark")

MODES = ["cow", "mor", "hybrid"]
COLUMNS = {"id": "long", "region": "string", "metres": "float", "at": "timestamptz"}
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FOREIGN = {"cow": "copy-on-write", "mor": "merge-on-read"}

Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def tables(iceberg: Catalog) -> Tables:
    return Tables(iceberg)


def here(tables: Tables, name: str, *columns: str) -> list[Row]:
    """The rows as this lake reads them."""
    records = tables.scan(name, columns=columns or None).to_pylist()
    return sorted((tuple(row.values()) for row in records), key=repr)


def in_spark(spark: SparkSession, name: str, *columns: str) -> list[Row]:
    """Times come as microseconds: pyspark's own are without a zone."""
    frame = spark.table(name).select(*columns or "*")
    for column, kind in frame.dtypes:
        if kind == "timestamp":
            frame = frame.withColumn(column, frame[column].cast("double"))
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def seen(rows: list[Row]) -> list[Row]:
    """Rows of this lake as `in_spark` shows them."""
    plain = [tuple(v.timestamp() if isinstance(v, datetime) else v for v in row) for row in rows]
    return sorted(plain, key=repr)


def row(number: int, metres: float = 1.5, region: str = "north") -> dict[str, Any]:
    return {"id": number, "region": region, "metres": metres, "at": NOON}


@pytest.mark.parametrize("mode", MODES)
def test_what_is_written_here_reads_the_same_in_spark(
    spark: SparkSession, tables: Tables, namespace: str, mode: Any
) -> None:
    name = f"{namespace}.ours"
    tables.create(name, COLUMNS, mode=mode, key=["id"], partition=["region", "day(at)"], sort=["id desc"])
    tables.insert(name, [row(n, region="north" if n % 2 else "south") for n in range(40)])
    tables.insert(name, [row(n) for n in range(40, 50)])
    tables.upsert(name, [row(3, 9.5), row(44, 9.5), row(60, 9.5)])
    tables.delete(name, "id < 3")
    tables.upsert(name, [row(3, 7.5), row(5, 7.5)])
    expected = here(tables, name)
    assert len(expected) == 48 and in_spark(spark, name) == seen(expected)
    deletes = spark.table(f"{name}.delete_files").count()
    assert (deletes > 0) == (mode == "mor")
    # Spark's own planning: partitions and statistics written here must not hide a row from it.
    filtered = spark.table(name).where("region = 'south' AND id BETWEEN 10 AND 20")
    assert sorted(found.id for found in filtered.collect()) == [10, 12, 14, 16, 18, 20]
    assert spark.table(name).where("metres = 7.5").count() == 2

    tables.compact(name)
    assert in_spark(spark, name) == seen(expected)
    earlier = tables.history(name)[-1].snapshot_id
    assert spark.sql(f"SELECT * FROM {name} VERSION AS OF {earlier}").count() == 40


@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_a_table_whose_shape_changed_reads_the_same_in_spark(
    spark: SparkSession, tables: Tables, namespace: str, mode: Any
) -> None:
    name = f"{namespace}.shaped"
    tables.create(name, COLUMNS | {"gone": "string"}, mode=mode, key=["id"], partition=["region"])
    tables.insert(name, [row(n) | {"gone": "x"} for n in range(6)])
    tables.alter(name, rename={"metres": "level"}, drop=["gone"], add={"gauge": "int"})
    tables.alter(name, promote={"level": "double"}, partition=["bucket(4, id)"])
    more = {"region": "south", "at": NOON}
    tables.upsert(name, [more | {"id": 1, "level": 0.1, "gauge": 7}, more | {"id": 9, "level": 1e300, "gauge": None}])
    tables.alter(name, promote={"gauge": "long"}, add={"gone": "long"})  # the name comes back, the values do not
    tables.insert(name, [more | {"id": 10, "level": 2.0, "gauge": 2**40, "gone": 1}])
    expected = here(tables, name)
    assert [field.name for field in spark.table(name).schema] == ["id", "region", "level", "at", "gauge", "gone"]
    assert in_spark(spark, name) == seen(expected)
    assert {found[0]: found[2:] for found in seen(expected)}[0][0] == 1.5
    assert in_spark(spark, name, "id", "gone") == [(n, None) for n in (0, 1)] + [(10, 1)] + [
        (n, None) for n in (2, 3, 4, 5, 9)
    ]


def feed(tables: Tables, name: str) -> list[list[tuple[str, Any, Any]]]:
    """(op, before, after) of each commit, rows as tuples."""

    def values(found: dict[str, Any] | None) -> Row | None:
        return None if found is None else tuple(found.values())

    return [
        [(one["op"], values(one["before"]), values(one["after"])) for one in commit.changes.to_pylist()]
        for commit in changes(tables.load(name))
    ]


@pytest.mark.parametrize("mode", FOREIGN)
def test_what_spark_writes_reads_the_same_here_and_goes_on_here(
    spark: SparkSession, tables: Tables, namespace: str, mode: str
) -> None:
    name = f"{namespace}.theirs"
    properties = ", ".join(f"'write.{verb}.mode'='{FOREIGN[mode]}'" for verb in ("merge", "update", "delete"))
    spark.sql(
        f"CREATE TABLE {name} (id bigint NOT NULL, text string, part int) USING iceberg PARTITIONED BY (part)"
        f" TBLPROPERTIES ({properties})"
    )
    spark.sql(f"ALTER TABLE {name} SET IDENTIFIER FIELDS id")
    for sql in _their_writes(name):
        spark.sql(sql)
    expected = [(0, "v0", 0), (1, "one", 1), (4, "v4", 0), (5, "two", 1), (6, "v6", 0), (7, "seven", 1), (8, "new", 0)]
    assert here(tables, name) == in_spark(spark, name) == expected
    assert tables.scan(name, where="part = 1 and id > 1").num_rows == 2

    inserted, merged, updated, deleted, rewritten, added = feed(tables, name)
    assert sorted(inserted, key=repr) == [("INSERT", None, (n, f"v{n}", n % 2)) for n in range(7)]
    assert merged == [("UPDATE", (1, "v1", 1), (1, "one", 1)), ("INSERT", None, (7, "seven", 1))]
    assert updated == [("UPDATE", (5, "v5", 1), (5, "two", 1))]
    assert deleted == [("DELETE", (2, "v2", 0), None), ("DELETE", (3, "v3", 1), None)]
    assert rewritten == []
    assert added == [("INSERT", None, (8, "new", 0))]

    tables.alter(name, mode=mode, key=["id"])  # type: ignore[arg-type]
    tables.upsert(name, [{"id": 4, "text": "four", "part": 0}, {"id": 9, "text": "nine", "part": 1}])
    tables.delete(name, "id = 0")
    tables.compact(name)
    expected = [(1, "one", 1), (4, "four", 0), *expected[3:], (9, "nine", 1)]
    assert here(tables, name) == in_spark(spark, name) == expected
    ours = feed(tables, name)[6:]
    assert ours == [
        [("UPDATE", (4, "v4", 0), (4, "four", 0)), ("INSERT", None, (9, "nine", 1))],
        [("DELETE", (0, "v0", 0), None)],
        [],
    ]


def _their_writes(name: str) -> list[str]:
    """Six commits: append, MERGE, UPDATE, DELETE, compaction, append. One file a partition, so that modes differ."""
    return [
        f"INSERT INTO {name} SELECT id, concat('v', id), CAST(id % 2 AS int) FROM range(0, 7, 1, 1)",
        f"MERGE INTO {name} t USING (SELECT * FROM VALUES (1L, 'one', 1), (7L, 'seven', 1) AS v (id, text, part)) s"
        " ON t.id = s.id WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT *",
        f"UPDATE {name} SET text = 'two' WHERE id = 5",
        f"DELETE FROM {name} WHERE id IN (2, 3)",
        f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
        f"INSERT INTO {name} VALUES (8, 'new', 0)",
    ]


def test_both_write_to_one_table_in_turns(spark: SparkSession, tables: Tables, namespace: str) -> None:
    """Pending deletes of one are merged by the other: neither may bring a deleted row back."""
    name = f"{namespace}.shared"
    tables.create(name, {"id": "long", "text": "string"}, mode="mor", key=["id"])
    tables.insert(name, [{"id": n, "text": "a"} for n in range(8)])
    turns: list[Callable[[], Any]] = [
        lambda: tables.upsert(name, [{"id": 1, "text": "b"}]),
        lambda: spark.sql(f"DELETE FROM {name} WHERE id IN (1, 2)"),
        lambda: tables.delete(name, "id = 3"),
        lambda: spark.sql(f"UPDATE {name} SET text = 'c' WHERE id = 4"),
        lambda: tables.upsert(name, [{"id": 2, "text": "d"}, {"id": 4, "text": "e"}]),
    ]
    for turn in turns:
        turn()
        assert in_spark(spark, name) == here(tables, name)
    expected = [(0, "a"), (2, "d"), (4, "e"), (5, "a"), (6, "a"), (7, "a")]
    assert here(tables, name) == expected
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    tables.compact(name)
    assert here(tables, name) == in_spark(spark, name) == expected
    assert [len(change_set) for change_set in feed(tables, name)] == [8, 1, 2, 1, 1, 2, 0]
