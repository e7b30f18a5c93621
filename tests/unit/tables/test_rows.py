"""Rows are checked whole, before anything is written; the message names row and column."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
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

from catalog.core.errors import Invalid
from catalog.tables.row_validation import check_keys, check_rows

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "price", DecimalType(10, 2)),
    NestedField(5, "at", TimestamptzType()),
    NestedField(6, "local", TimestampType()),
    NestedField(7, "single", FloatType()),
    NestedField(8, "double", DoubleType()),
    NestedField(9, "day", DateType()),
    NestedField(10, "time", TimeType()),
    NestedField(11, "flag", BooleanType()),
    NestedField(12, "raw", BinaryType()),
    NestedField(13, "uid", UUIDType()),
    NestedField(
        14, "inner", StructType(NestedField(15, "x", IntegerType(), required=True), NestedField(16, "y", StringType()))
    ),
    NestedField(17, "many", ListType(18, StringType(), element_required=True)),
    NestedField(19, "map", MapType(20, StringType(), 21, IntegerType(), value_required=True)),
)
GOOD: dict[str, Any] = {
    "id": 1,
    "text": "ä",
    "small": 3,
    "price": Decimal("1.50"),
    "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "local": dt.datetime(2024, 1, 1),
    "single": 0.5,
    "double": 0.1,
    "day": dt.date(2024, 2, 29),
    "time": dt.time(1, 2, 3),
    "flag": True,
    "raw": b"\x00",
    "uid": uuid.UUID(int=7),
    "inner": {"x": 1, "y": None},
    "many": ["a"],
    "map": {"a": 1},
}


def check(rows: Any) -> pa.Table:
    return check_rows(SCHEMA, rows, table="db.t")


def test_good_rows_pass_unchanged_and_missing_optional_columns_are_null() -> None:
    full, bare = check([GOOD, {"id": 2}]).to_pylist()
    assert full == {**GOOD, "map": [("a", 1)]}
    assert bare == {"id": 2, **{name: None for name in GOOD if name != "id"}}


@pytest.mark.parametrize(
    "bad",
    [
        {"id": None},
        {"id": "1"},
        {"id": 1.5},
        {"id": 2**63},
        {"id": True},
        {"small": 2**31},
        {"small": -(2**31) - 1},
        {"text": 7},
        {"text": b"x"},
        {"price": Decimal("1.555")},
        {"price": Decimal("123456789.00")},
        {"price": 0.1},
        {"at": dt.datetime(2024, 1, 1)},
        {"at": "soon"},
        {"local": dt.datetime(2024, 1, 1, tzinfo=dt.UTC)},
        {"single": 1e300},
        {"single": 2**24 + 1},
        {"double": "x"},
        {"double": 2**53 + 1},
        {"uid": "sixteen letters."},
        {"day": "2024-02-30"},
        {"flag": 1},
        {"raw": "text"},
        {"uid": b"short"},
        {"inner": {"x": None}},
        {"inner": {"x": 1.5}},
        {"inner": {"z": 1}},
        {"many": ["a", None]},
        {"many": "a"},
        {"map": {"a": None}},
        {"unknown": 1},
    ],
    ids=repr,
)
def test_a_bad_value_is_named_by_row_and_column(bad: dict[str, Any]) -> None:
    (column,) = bad
    with pytest.raises(Invalid, match=rf"^db\.t: row 2, column '{column}"):
        check([GOOD, {**GOOD, "id": 5}, {**GOOD, **bad}, GOOD])


def test_a_time_that_python_cannot_show_is_named_all_the_same() -> None:
    late = pa.array([2**62], pa.timestamp("s", "UTC"))
    with pytest.raises(Invalid, match=r"row 0, column 'at': '4611686018427387904' is not a valid timestamp"):
        check(pa.table({"id": [1], "at": late}))


def test_the_first_bad_row_is_named_even_far_down() -> None:
    table = pa.table({"id": pa.array(range(100_000), pa.int64()), "small": pa.array([0] * 70_001 + [2**40] * 29_999)})
    with pytest.raises(Invalid, match="row 70001, column 'small'"):
        check(table)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.int8()),
        pa.array([1], pa.uint64()),
        pa.array([1.0], pa.float64()),
        pa.array([1], pa.int64()).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_arrow_columns_of_other_types_are_taken_if_no_value_changes(column: Any) -> None:
    assert check(pa.table({"id": column}))["id"].to_pylist() == [1]


def test_text_is_read_as_dates_times_and_decimals() -> None:
    row = check([{"id": 1, "day": "2024-02-29", "at": "2024-02-29T12:00:00Z", "price": "3.10"}]).to_pylist()[0]
    assert (row["day"], row["price"]) == (dt.date(2024, 2, 29), Decimal("3.10"))
    assert row["at"] == dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def test_arrow_with_an_unknown_or_a_missing_required_column_is_refused() -> None:
    with pytest.raises(Invalid, match="unknown column 'more'"):
        check(pa.table({"id": [1], "more": [1]}))
    with pytest.raises(Invalid, match="row 0, column 'id': it is required and missing"):
        check(pa.table({"text": ["a"]}))
    with pytest.raises(Invalid, match="stands twice"):
        check(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]))


@pytest.mark.parametrize("rows", ["text", {"id": 1}, 7, [1, 2]])
def test_what_are_no_rows_is_refused(rows: Any) -> None:
    with pytest.raises(Invalid):
        check(rows)


def test_an_error_has_the_row_and_the_column_as_fields() -> None:
    schema = Schema(NestedField(1, "it's", LongType(), required=True))
    with pytest.raises(Invalid) as raised:
        check_rows(schema, pa.table({"it's": pa.array([1.0, 2.5])}), table="db.t")
    error = raised.value
    assert (error.row, error.column, error.subject) == (1, "it's", "db.t")
    assert error.message == f'db.t: row 1, column "it\'s": {error.reason}'
    with pytest.raises(Invalid) as raised:
        check_keys(pa.table({"id": [4, 5, 4]}), ["id"], table="db.t")
    assert (raised.value.row, raised.value.column) == (2, None)


def test_duplicate_and_null_keys_are_named() -> None:
    rows = check([{"id": 4}, {"id": 5}, {"id": 4, "text": "b"}])
    with pytest.raises(Invalid, match=r"rows 0 and 2 have the same key \{'id': 4\}"):
        check_keys(rows, ["id"], table="db.t")
    check_keys(rows, ["id", "small"], table="db.t") if rows["small"].null_count == 0 else None
    with pytest.raises(Invalid, match="row 0, column 'text': a key cannot be null"):
        check_keys(rows, ["text"], table="db.t")
    texts = check([{"id": 4, "text": "a"}, {"id": 5, "text": "b"}, {"id": 4, "text": "a"}])
    with pytest.raises(Invalid, match=r"rows 0 and 2 have the same key \{'text': 'a'\}"):
        check_keys(texts, ["text"], table="db.t")
    with pytest.raises(Invalid, match="rows 0 and 2 have the same key"):
        check_keys(texts, ["id", "text"], table="db.t")
    check_keys(texts.slice(1), ["text"], table="db.t")


def test_pandas_frames_are_rows_too() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": [1, 2], "small": [7, None], "text": ["a", None]})
    assert [row["small"] for row in check(frame).to_pylist()] == [7, None]
