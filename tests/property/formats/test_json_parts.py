"""However a block is cut into parts, its rows are the same, and no part allocates more than it may."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.formats import json as json_format
from catalog.formats import json_width
from catalog.formats.limits import FileRejected, FormatLimits

VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.just(0.5), st.sampled_from(["", "a:{", "é"]))
NESTED = VALUES | st.dictionaries(st.sampled_from("xyz"), VALUES) | st.lists(VALUES)
ROWS = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), NESTED).map(lambda row: {"id": 1, **row}), min_size=1, max_size=30
)


def parse(rows: list[Any], cells: int, lines: bool) -> list[Any] | str:
    """The rows as Python values; "rejected" if a column has no one type."""
    read = json_format.read_json_lines if lines else json_format.read_json
    text = "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_width, "CELLS", cells)
        patch.setattr(json_format, "CELLS", cells)
        try:
            tables = list(read(io.BytesIO(text.encode()), FormatLimits(), None))
            table = pa.concat_tables(tables, promote_options="permissive")
        except (FileRejected, pa.ArrowTypeError):
            return "rejected"
    return [_without_nulls(row) for row in table.to_pylist()]


def _without_nulls(value: Any) -> Any:
    """A null, an absent key and an object of nothing else are the same in Arrow's columns."""
    if isinstance(value, dict):
        return {key: inner for key, item in value.items() if (inner := _without_nulls(item)) not in (None, {})}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


@given(ROWS, st.booleans())
def test_parts_change_no_value(rows: list[Any], lines: bool) -> None:
    whole, parts = parse(rows, 1 << 30, lines), parse(rows, 60, lines)
    # Parts need not have one type in common, and then the file is rejected. What is accepted is the same.
    assert parts in (whole, "rejected")
    if isinstance(parts, list):
        assert parts == [_without_nulls(row) for row in rows]


@given(st.lists(st.fixed_dictionaries({"a": st.integers(), "b": st.text("ab:{", max_size=4)}), min_size=20))
def test_a_dense_block_is_parsed_in_two_parts(rows: list[Any]) -> None:
    text = "\n".join(map(json.dumps, rows)).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_width, "CELLS", 300)
        try:
            tables = list(json_format.read_json_lines(io.BytesIO(text), FormatLimits(), None))
        except FileRejected:
            return  # an integer beyond 64 bits
    assert len(tables) <= 2


def test_columns_that_come_later_are_parsed_in_parts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"a": n} for n in range(2000)] + [{f"k{n}": n} for n in range(400)]
    text = "\n".join(map(json.dumps, rows)).encode()
    monkeypatch.setattr(json_width, "CELLS", 10_000)
    monkeypatch.setattr(json_format, "CELLS", 10_000)
    tables = list(json_format.read_json_lines(io.BytesIO(text), FormatLimits(), None))
    assert sum(table.num_rows for table in tables) == len(rows)
    assert max(table.num_rows * table.num_columns for table in tables) <= 10_000
