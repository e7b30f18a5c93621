"""Every type of a column is read as it was written: natively where DuckDB can, and else as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.lake import Lake
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on

WHEN = datetime(2026, 3, 1, 12, 30, 1, 250_000)
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "b": (BooleanType(), True, True),
    "i": (IntegerType(), -7, -7),
    "n": (LongType(), 1 << 40, 1 << 40),
    "f": (FloatType(), 1.5, 1.5),
    "x": (DoubleType(), -2.25, -2.25),
    "p": (DecimalType(20, 4), Decimal("12345678.1234"), Decimal("12345678.1234")),
    "d": (DateType(), date(2026, 3, 1), date(2026, 3, 1)),
    "t": (TimeType(), time(12, 30, 1), time(12, 30, 1)),
    "ts": (TimestampType(), WHEN, WHEN),
    "tz": (TimestamptzType(), WHEN.replace(tzinfo=UTC), WHEN.replace(tzinfo=UTC)),
    "s": (StringType(), "é'\"", "é'\""),
    "u": (UUIDType(), UUID(int=77).bytes, str(UUID(int=77))),
    "raw": (BinaryType(), b"\x00\xff", b"\x00\xff"),
    "four": (FixedType(4), b"abcd", b"abcd"),
    "l": (ListType(90, StringType(), element_required=False), ["a", None], ["a", None]),
    "m": (MapType(91, StringType(), 92, LongType(), value_required=False), [("k", 5)], [("k", 5)]),
    "o": (
        StructType(NestedField(93, "a", LongType()), NestedField(94, "c", ListType(95, LongType(), False))),
        {"a": 1, "c": [2]},
        {"a": 1, "c": [2]},
    ),
}


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        fields = [NestedField(number, name, type_) for number, (name, (type_, *_)) in enumerate(VALUES.items(), 1)]
        schema = Schema(*fields)
        made.tables.create("kinds.all", schema, mode="mor")
        arrow = schema_to_pyarrow(made.tables.table_store.load("kinds.all").schema, include_field_ids=False)
        row = {name: value for name, (_, value, _) in VALUES.items()}
        rows = pa.Table.from_pylist([row, dict.fromkeys(VALUES)], schema=arrow)
        made.tables.insert("kinds.all", rows)
        yield made


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_it_was_written(lake: Lake, name: str) -> None:
    expected = VALUES[name][2]
    rows = lake.queries.run(f'SELECT "{name}" AS v FROM kinds.all', fresh=True).table().to_pylist()
    assert rows == [{"v": expected}, {"v": None}]
    again = lake.queries.run(f'SELECT count("{name}") AS n, count(*) AS m FROM kinds.all', fresh=True)
    assert again.table().to_pylist() == [{"n": 1, "m": 2}]


@pytest.mark.parametrize("type_", ["double", "float"])
def test_min_and_max_are_of_the_values_and_not_of_a_footer(lake: Lake, type_: str) -> None:
    """A footer has bounds without NaN, which DuckDB is told to widen, and writes 0.0 as -0.0."""
    name = f"kinds.{type_}s"
    lake.tables.create(name, {"v": type_, "w": type_, "k": "int"})
    lake.tables.insert(name, [{"v": 4.25, "w": 0.0, "k": 1}, {"v": 3.0, "w": -1.0, "k": None}])
    for where, expected in (
        ("", (3.0, 4.25, "0.0", 1)),
        (" WHERE v > 3.5", (4.25, 4.25, "0.0", 1)),
        (" WHERE k = 1", (4.25, 4.25, "0.0", 1)),
    ):
        text = f"SELECT min(v), max(v), max(w), max(k), max(v) + 0, max(-w) FROM {name}{where}"
        low, high, zero, key, more, _ = lake.queries.run(text, fresh=True).table().to_pylist()[0].values()
        assert (low, high, str(zero), key, more) == (*expected, high)
    assert lake.queries.run(f"SELECT max(v) FROM {name}", fresh=True).table().column(0).to_pylist() == [4.25]
    assert lake.queries.run(f"SELECT max(x.v) FROM (FROM {name}) x", fresh=True).table().column(0).to_pylist() == [4.25]
    assert str(lake.queries.run(f"SELECT min(w + 1) FROM {name}", fresh=True).table().column(0)[0]) in ("0", "0.0")
