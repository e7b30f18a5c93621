"""The columns and rows that most tests of tables write, and a way to compare them."""

from __future__ import annotations

from typing import Any

from catalog.tables.manager import Tables

COLUMNS = {"id": "long", "name": "string", "region": "string", "v": "double"}
NUMBERS = range(20)


def rows(*ids: int, tag: str = "n") -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{tag}{i}", "region": "eu" if i % 2 else "us", "v": i / 2} for i in ids]


def names_by_id(tables: Tables, name: str, **options: Any) -> dict[int, str]:
    table = tables.scan(name, **options)
    out = dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
    assert len(out) == table.num_rows, "a key stands twice"
    return out
