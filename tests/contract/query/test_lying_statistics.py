"""A writer commits a manifest whose statistics lie. Its bytes are as committed; what they say is not so."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile

from catalog.core.events import TableMoved
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world

SCHEMA = {"id": "long", "word": "string", "x": "double", "day": "date"}
RECORD_COUNT, VALUES, NULLS, NANS, LOWER, UPPER = 4, 7, 8, 9, 10, 11
"""Positions in Iceberg's struct of a data file, as pyiceberg has it."""


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def append(world: World, name: str, numbers: list[int], lie: Callable[[DataFile], None] | None = None) -> None:
    table = world.lake.iceberg.load_table(name)
    rows = [{"id": n, "word": f"w{n}" * 20, "x": n / 2, "day": None} for n in numbers]
    data = pa.Table.from_pylist(rows, schema=table.schema().as_arrow())
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        for file in _dataframe_to_data_files(table.metadata, data, table.io):
            if lie is not None:
                lie(file)
            added.append_data_file(file)
    world.lake.request(TableMoved(table=name))


def stating(position: int, field_id: int, value: Any) -> Callable[[DataFile], None]:
    def lie(file: DataFile) -> None:
        file._data[position] = {**(file._data[position] or {}), field_id: value}

    return lie


def fewer_rows(file: DataFile) -> None:
    file._data[RECORD_COUNT] = 1


def hidden(file: DataFile) -> None:
    """No row of the file is where a query for it looks."""
    stating(LOWER, 1, struct.pack("<q", 900))(file)
    stating(UPPER, 1, struct.pack("<q", 901))(file)


def made(world: World, lie: Callable[[DataFile], None] | None) -> str:
    name = world.name()
    world.lake.tables.create(name, SCHEMA)
    append(world, name, [1, 2])
    append(world, name, [3, 4, 5], lie)
    world.caught_up()
    return name


LIES = {
    "rows": (fewer_rows, "states 1 rows, and the file has 3"),
    "greatest": (stating(UPPER, 1, struct.pack("<q", 999)), "999 as the greatest value of id"),
    "least": (stating(LOWER, 1, struct.pack("<q", -7)), "-7 as the least value of id"),
    "hidden": (hidden, "900 as the least value of id"),
    "word": (stating(UPPER, 2, b"a"), "'a' as the greatest value of word"),
    "nulls": (stating(NULLS, 1, 3), "3 NULLs of id"),
    "values": (stating(VALUES, 1, 30), "30 values of id"),
    "nans": (stating(NANS, 3, 2), "2 NaNs of x"),
    "double": (stating(UPPER, 3, struct.pack("<d", 1e9)), "1000000000.0 as the greatest value of x"),
    "of nothing": (stating(LOWER, 4, struct.pack("<i", 20_000)), "20000 as the least value of day"),
    "no such field": (stating(LOWER, 77, struct.pack("<q", 1)), "bounds of the field 77"),
    "no value": (stating(LOWER, 3, b"\0\0"), "no value of its type"),
}


@pytest.mark.parametrize("kind", LIES)
def test_deep_verification_names_the_file_and_the_statement(world: World, kind: str) -> None:
    lie, what = LIES[kind]
    name = made(world, lie)
    report = world.verify()
    assert report.faults
    for fault in report.faults:
        assert (fault.index, fault.table) == (2, name) and fault.object.endswith(".parquet")
    assert any(what in fault.what for fault in report.faults), report.faults
    assert (report.statistics, report.uncompared, report.changes) == (2, 0, 2)


def test_true_statistics_are_no_fault(world: World) -> None:
    made(world, None)
    report = world.verify()
    assert (report.faults, report.statistics, report.uncompared) == ((), 2, 0)


@pytest.mark.parametrize("kind", ["rows", "greatest", "least", "hidden", "nulls"])
def test_a_verified_query_reads_the_rows(world: World, kind: str) -> None:
    name = made(world, LIES[kind][0])
    queries = world.another().queries
    asked = {
        f"SELECT count(*) FROM {name}": [(5,)],
        f"SELECT count(id), min(id), max(id) FROM {name}": [(5, 1, 5)],
        f"SELECT count(*) FROM {name} WHERE id >= 0": [(5,)],
        f"SELECT count(*) FROM {name} WHERE id > 500": [(0,)],
        f"SELECT id FROM {name} WHERE id = 4": [(4,)],
        f"SELECT id FROM {name} WHERE id < 0 OR id > 4": [(5,)],
    }
    for sql, expected in asked.items():
        found = [tuple(row.values()) for row in queries.run(sql, verify=True).table().to_pylist()]
        assert found == expected, sql
    believed = queries.run(f"SELECT count(*) FROM {name} WHERE id = 4").table().to_pylist()
    if kind == "hidden":
        assert list(believed[0].values()) == [0]  # an unverified query trusts the writer
