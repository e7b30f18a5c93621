"""A table with a column of each kind, in files whose bounds decide many conditions; and DuckDB over the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from catalog.lake import Lake
from catalog.tables import file_writer
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import assert_same, rows_of

NAN = float("nan")
GROUP_ROWS = 4

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("g", pa.int32()),
        pa.field("x", pa.float64()),
        pa.field("f", pa.float32()),
        pa.field("name", pa.string()),
        pa.field("ts", pa.timestamp("us")),
        pa.field("tz", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("flag", pa.bool_()),
        pa.field("s", pa.struct([pa.field("id", pa.int64()), pa.field("word", pa.string())])),
        pa.field("l", pa.list_(pa.int64())),
    ]
)
NAMES = [
    ["apple", "amber", "ash", "a%b"],
    ["APPLE", "Banana", "BANANA", "Zebra"],
    ["", "a_b", "a\\b", "élan"],
]
FLOATS = [[1.0, 2.5, 7.25, 3.0], [NAN, 5.0, 1e300, NAN], [-7.0, -2.5, 0.5, 0.25]]


def _row(at: int) -> dict[str, Any]:
    part, near = divmod(at, 10)
    when = datetime(2024, 1 + part, 1 + near, 12, 30)
    return {
        "id": at,
        "g": None if at % 7 == 3 else at % 4,
        "x": None if near == 9 else FLOATS[part][near % 4],
        "f": None if near == 8 else FLOATS[part][near % 4] if FLOATS[part][near % 4] != 1e300 else 6.5,
        "name": None if near == 7 and part != 1 else NAMES[part][near % 4],
        "ts": None if near == 6 and part == 2 else when,
        "tz": when.replace(tzinfo=UTC) + timedelta(hours=11),
        "day": when.date() if near != 5 else date(2024, 1 + part, 28),
        "price": None if near == 4 and part == 0 else Decimal(at * 50 - 300).scaleb(-2),
        "flag": None if part == 2 else part == 0 or near % 2 == 0,
        "s": None if near == 2 else {"id": 100 - at if near != 3 else None, "word": NAMES[part][near % 4]},
        "l": None if near == 1 else [at] * (near % 3),
    }


ROWS = pa.Table.from_pylist([_row(at) for at in range(30)], schema=SCHEMA)


class Kinds:
    """The lake's table `qa.k` and DuckDB's `qa.k`."""

    def __init__(self, lake: Lake, duck: duckdb.DuckDBPyConnection) -> None:
        self.lake, self.duck = lake, duck

    def same(self, text: str, duck: str | None = None, *, parameters: Any = None, verify: bool = False) -> None:
        """The lake's answer is DuckDB's, which may be asked in its own words."""
        theirs = rows_of(self.duck.sql(duck or text, params=parameters).to_arrow_table())
        ours = rows_of(self.lake.queries.run(text, parameters=parameters, verify=verify))
        assert_same(ours, theirs, ordered=False, note=text)


@contextmanager
def kinds_on(server: ApiServer) -> Iterator[Kinds]:
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    duck.register("rows_k", ROWS)
    duck.execute("CREATE SCHEMA qa; CREATE TABLE qa.k AS SELECT * FROM rows_k")
    with lake_on(server) as lake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_writer, "ROW_GROUP_ROWS", GROUP_ROWS)
        lake.tables.create("qa.k", SCHEMA)
        for start in (0, 10, 20):
            lake.tables.insert("qa.k", ROWS.slice(start, 10))
        sequence(lake, "qa.k")
        yield Kinds(lake, duck)
