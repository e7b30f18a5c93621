"""Schemas, partitions and sort orders of a table, and how they evolve, whatever its mode."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from catalog.core.errors import Invalid
from catalog.core.point_in_time import SnapshotId
from catalog.tables.manager import Tables
from tests.worlds.table_rows import COLUMNS, NUMBERS, names_by_id, rows


def test_the_schema_evolves_and_old_rows_are_read_through_the_new_one(tables: Tables, name: str) -> None:
    first = tables.insert(name, rows(1, 2))
    tables.alter(name, add={"n": "int"}, rename={"name": "title"}, drop=["region"])
    tables.insert(name, [{"id": 3, "title": "c", "v": 1.0, "n": 7}])
    tables.alter(name, promote={"n": "long"})
    tables.upsert(name, [{"id": 1, "title": "u1", "n": 2**40}])
    assert tables.scan(name).sort_by("id").to_pylist() == [
        {"id": 1, "title": "u1", "v": None, "n": 2**40},
        {"id": 2, "title": "n2", "v": 1.0, "n": None},
        {"id": 3, "title": "c", "v": 1.0, "n": 7},
    ]
    assert tables.scan(name, as_of=SnapshotId(first.snapshot_id), where="region = 'us'").to_pylist() == rows(2)
    tables.alter(name, add={"region": "string"})
    assert tables.scan(name)["region"].null_count == 3, "a dropped column does not come back with its values"


def test_a_renamed_or_promoted_key_still_finds_its_rows(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("keyed")
    tables.create(name, {"k": "int", "x": "string"}, mode=mode, key=["k"])
    tables.insert(name, [{"k": 1, "x": "a"}, {"k": 2, "x": "b"}])
    tables.alter(name, rename={"k": "key"}, promote={})
    tables.alter(name, promote={"key": "long"})
    tables.upsert(name, [{"key": 2, "x": "c"}, {"key": 2**40, "x": "d"}])
    assert sorted(tables.scan(name).to_pylist(), key=lambda r: r["key"]) == [
        {"key": 1, "x": "a"}, {"key": 2, "x": "c"}, {"key": 2**40, "x": "d"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"promote": {"v": "float"}},
        {"promote": {"name": "long"}},
        {"promote": {"id": "int"}},
        {"drop": ["id"]},
        {"drop": ["nothing"]},
        {"add": {"name": "string"}},
        {"add": {"x": "number"}},
        {"rename": {"name": "region"}},
        {"partition": ["month(name)"]},
        {"partition": ["bucket(0, id)"]},
        {"sort": ["nothing desc"]},
        {"mode": "fast"},
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(tables: Tables, name: str, change: dict[str, Any]) -> None:
    tables.insert(name, rows(1))
    before = tables.load(name).metadata_location
    with pytest.raises(Invalid):
        tables.alter(name, **change)
    assert tables.load(name).metadata_location == before


def test_a_key_set_later_keeps_its_column(tables: Tables, name: str) -> None:
    tables.insert(name, rows(1, 2))
    tables.alter(name, key=["name"])
    assert tables.upsert(name, [{"id": 7, "name": "n1"}]).matched == 1
    with pytest.raises(Invalid, match="in the key"):
        tables.alter(name, drop=["name"])


@pytest.mark.parametrize("partition", [["region"], ["bucket(4, id)"], ["truncate(2, name)", "bucket(3, id)"]])
def test_partitioned_tables_upsert_across_partitions(
    world: Any, tables: Tables, mode: str, partition: list[str]
) -> None:
    name = world.name("parted")
    tables.create(name, COLUMNS, mode=mode, key=["id"], partition=partition, sort=["v desc"])
    tables.insert(name, rows(*NUMBERS))
    moved = [dict(row, region="moved") for row in rows(3, 4, 30, tag="u")]
    tables.upsert(name, moved)
    tables.delete(name, "region = 'us' and id > 10")
    expected = {i: f"n{i}" for i in NUMBERS if not (i % 2 == 0 and i > 10)} | {i: f"u{i}" for i in (3, 4, 30)}
    assert names_by_id(tables, name) == expected
    assert {r["id"]: r["name"] for r in world.plain(name).scan().to_arrow().to_pylist()} == expected
    assert names_by_id(tables, name, where="region = 'moved'") == {i: f"u{i}" for i in (3, 4, 30)}


@pytest.mark.parametrize("unit", ["year", "month", "day", "hour"])
def test_time_partitions_agree_with_icebergs_own_pruning(world: Any, tables: Tables, mode: str, unit: str) -> None:
    name = world.name(unit)
    tables.create(name, {"id": "long", "ts": "timestamptz"}, mode=mode, key=["id"], partition=[f"{unit}(ts)"])
    stamps = [dt.datetime(1969, 12, 31, 23, 30, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
              dt.datetime(2024, 2, 29, 12, 1, tzinfo=dt.UTC), dt.datetime(2024, 3, 1, tzinfo=dt.UTC)]  # fmt: skip
    tables.insert(name, [{"id": i, "ts": stamp} for i, stamp in enumerate(stamps)])
    for i, stamp in enumerate(stamps):
        # The reader prunes by the partition values written here: were one wrong, the row would not be found.
        seen = world.plain(name).scan(f"ts = '{stamp.isoformat()}'").to_arrow()
        assert seen["id"].to_pylist() == [i]


def test_partitions_evolve_and_files_of_both_kinds_are_upserted(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(*range(6)))
    tables.alter(name, partition=["region"])
    tables.insert(name, rows(*range(6, 12)))
    tables.alter(name, partition=["bucket(2, id)"])
    tables.upsert(name, rows(1, 7, 20, tag="u"))
    tables.delete(name, "id in (2, 8)")
    expected = {i: f"n{i}" for i in range(12) if i not in (2, 8)} | {i: f"u{i}" for i in (1, 7, 20)}
    assert names_by_id(tables, name) == expected
    assert {r["id"]: r["name"] for r in world.plain(name).scan().to_arrow().to_pylist()} == expected


def test_sort_order_is_applied_on_write(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("sorted")
    tables.create(name, COLUMNS, mode=mode, key=["id"], sort=["v desc", "id"])
    tables.insert(name, [*rows(3, 1, 2), {"id": 9}])
    assert tables.scan(name)["id"].to_pylist() == [3, 2, 1, 9]


def test_describe_tells_shape_size_and_statistics(tables: Tables, world: Any, mode: str) -> None:
    name = world.name("told")
    tables.create(name, COLUMNS, mode=mode, key=["id"], partition=["region"], sort=["v desc"])
    tables.insert(name, [*rows(*range(10)), {"id": 10, "v": None}])
    receipt = tables.upsert(name, rows(20, tag="u"))
    told = tables.describe(name)
    assert (told.mode, told.key, told.sort) == (mode, ("id",), ("v desc",))
    assert told.partition == ("identity(region)",)
    assert (told.rows, told.snapshots, told.snapshot_id) == (12, 2, receipt.snapshot_id)
    columns = {column.name: column for column in told.columns}
    assert (columns["id"].low, columns["id"].high, columns["id"].nulls, columns["id"].required) == (0, 20, 0, True)
    assert (columns["v"].low, columns["v"].high, columns["v"].nulls) == (0.0, 10.0, 1)
    assert tables.list(world.namespace) == [name]


def test_a_null_count_never_counts_deleted_rows(tables: Tables) -> None:
    tables.create("qa.nulls", {"id": "long", "v": "double"}, mode="mor", key=["id"])
    tables.insert("qa.nulls", [{"id": 1, "v": None}, {"id": 2, "v": 2.0}])
    assert [column.nulls for column in tables.describe("qa.nulls").columns] == [0, 1]
    tables.upsert("qa.nulls", [{"id": 1, "v": 1.0}])
    assert tables.describe("qa.nulls").rows == 2
    assert [column.nulls for column in tables.describe("qa.nulls").columns] == [0, None]
