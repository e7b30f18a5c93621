"""The two tables that random statements are asked of: NULL, NaN, duplicates, several files and partitions, position
deletes, and columns that were renamed, promoted, added, and dropped and added again.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from catalog.lake import Lake

NAN = float("nan")


def _rows(seed: int, first: int, count: int) -> list[dict[str, Any]]:
    """Rows of `t` under its last schema, with many equal values and many missing ones."""
    rng = random.Random(seed)

    def maybe(value: Any, chance: float = 0.2) -> Any:
        return None if rng.random() < chance else value

    return [
        {
            "id": key,
            "grp": maybe(rng.randint(0, 5)),
            "num": maybe(rng.randint(-3, 40)),
            "ratio": maybe(rng.choice([NAN, 0.5, 2.25, -1.5, 1e300, 10.0])),
            "name": maybe(rng.choice(["tide", "ebb", "flow", "spring", "", "north west harbour wall", "Ebb"])),
            "region": maybe(rng.choice(["eu", "us"]), 0.1),
            "day": maybe(date(2024, 1, 1) + timedelta(days=rng.randint(0, 27))),
            "flag": maybe(rng.random() < 0.5),
        }
        for key in range(first, first + count)
    ]


U = [
    {
        "uid": key,
        "grp": None if key % 7 == 0 else key % 6,
        "qty": None if key % 5 == 0 else key % 9,
        "label": None if key % 4 == 0 else ["tide", "neap", "eu"][key % 3],
        "day": date(2024, 1, 1) + timedelta(days=key % 20),
    }
    for key in range(18)
]


def evolved(lake: Lake) -> list[dict[str, Any]]:
    """Table `t` with a history; what must be in it at the end, said by hand."""
    tables = lake.tables
    tables.create(
        "qa.t",
        {
            "id": "int",
            "team": "int",
            "num": "int",
            "ratio": "float",
            "name": "string",
            "region": "string",
            "day": "date",
        },
        mode="mor",
        partition=["region"],
    )
    first = _rows(1, 0, 30)
    old = [{**row, "team": row["grp"], "name": "gone"} for row in first]
    old = [{key: value for key, value in row.items() if key not in ("grp", "flag")} for row in old]
    for row in old:
        row["ratio"] = None if row["ratio"] == 1e300 else row["ratio"]
    tables.insert("qa.t", old)
    tables.alter("qa.t", drop=["name"])
    tables.alter(
        "qa.t",
        rename={"team": "grp"},
        promote={"id": "long", "num": "long", "ratio": "double"},
        add={"name": "string", "flag": "boolean"},
    )
    tables.alter("qa.t", partition=["bucket(2, grp)"])
    expected = [{**row, "name": None, "flag": None, "ratio": old[n]["ratio"]} for n, row in enumerate(first)]
    second = _rows(2, 30, 40)
    tables.insert("qa.t", second)
    tables.delete("qa.t", "num > 30 or grp = 4")
    expected = [row for row in expected + second if not ((row["num"] or 0) > 30 or row["grp"] == 4)]
    third = _rows(3, 70, 10)
    tables.insert("qa.t", third)
    tables.delete("qa.t", "id = 71")
    return [*expected, *(row for row in third if row["id"] != 71)]


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("grp", pa.int32()),
        pa.field("num", pa.int64()),
        pa.field("ratio", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("region", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("flag", pa.bool_()),
    ]
)


def make_tables(lake: Lake) -> tuple[pa.Table, pa.Table]:
    """Makes `qa.t` and `qa.u`; what must be in them."""
    rows = pa.Table.from_pylist(evolved(lake), schema=SCHEMA)
    lake.tables.create("qa.u", {"uid": "long", "grp": "int", "qty": "long", "label": "string", "day": "date"})
    lake.tables.insert("qa.u", U[:9])
    lake.tables.insert("qa.u", U[9:])
    return rows, pa.Table.from_pylist(U)
