"""Texts and decimals become a table's decimals exactly, or not at all: Arrow's own cast changes some in silence."""

from __future__ import annotations

import io
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, ListType, MapType, NestedField, StringType, StructType

from catalog.core.errors import Invalid
from catalog.formats import FileRejected, FormatLimits, Inference, cast_decimals, read_rows
from catalog.formats.column_evidence import ColumnEvidence
from catalog.formats.number_marks import NumberMarks
from catalog.tables.row_validation import check_rows

EXACT = Context(prec=400)
WRAPS = "340282366920938463463374607431768211457"
"""2**128 + 1, which Arrow reads as 1."""
types = st.sampled_from([(38, 0), (38, 2), (38, 20), (38, 38), (18, 2), (9, 2), (5, 5)])
digits = st.text("0123456789", max_size=60) | st.integers(0, 60).map(lambda n: "0" * n)
texts = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    digits,
    st.just("") | digits.map(".{}".format),
    st.sampled_from(["", "", "", "e5", "E-7", "e+38", "e-38", "e99", "e-99"]),
)


def exact(text: str, precision: int, scale: int) -> Decimal | None:
    """What the text is, if it is a decimal of the type."""
    try:
        value = EXACT.create_decimal(text)
        fitted = value.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    except ArithmeticError:
        return None
    fits = fitted == value and (not fitted or len(fitted.as_tuple().digits) <= precision)
    return fitted if fits else None


def cast(column: Any, precision: int, scale: int) -> Decimal | None:
    try:
        value: Decimal = cast_decimals(column, pa.decimal128(precision, scale))[0].as_py()
        return value
    except pa.ArrowInvalid:
        return None


@given(texts, types)
@example(WRAPS, (9, 2))
@example("9" * 39, (38, 0))
@example("0." + "0" * 40 + "1", (38, 2))
@example("0." + "0" * 1000 + "1", (38, 0))
@example("21062827503801437255781353093375376324", (38, 2))
@example("1e2147483647", (38, 0))
def test_a_text_is_read_exactly_or_not_at_all(text: str, type_: tuple[int, int]) -> None:
    value, right = cast(pa.array([text]), *type_), exact(text, *type_)
    assert value is None or value == right
    short = (
        len(text.partition(".")[0].strip("+-")) <= 38 and len(text.partition(".")[2]) <= 38 and "e" not in text.lower()
    )
    assert value is not None or right is None or not short


@given(st.integers(1 - 10**38, 10**38 - 1), st.sampled_from([0, 2, 10, 38]), types)
@example(27545579671267288355758200787690384001, 0, (38, 2))
def test_a_decimal_is_rescaled_exactly_or_not_at_all(number: int, scale: int, type_: tuple[int, int]) -> None:
    value = Decimal(number).scaleb(-scale, context=EXACT)
    column = pa.array([value], pa.decimal128(38, scale))
    assert cast(column, *type_) == exact(str(value), *type_)


HOSTILE = [
    WRAPS, "9" * 39, "1" * 8_000_000, "0." + "0" * 40 + "1", "0." + "0" * 7_000_000 + "1", "1e" + "9" * 1_000_000,
    "1" * 38 + "e38", "9" * 38 + "e5", "0e400",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{text[:12]} of {len(text)}")
def test_every_way_into_a_table_refuses_it(text: str) -> None:
    """As a column of a CSV file, and in rows as text, in structs, lists and maps: with its row, and no lost process."""
    for type_ in (pa.decimal128(38, 0), pa.decimal128(38, 2), pa.decimal128(9, 2)):
        with pytest.raises(FileRejected, match="is not a valid decimal") as caught:
            list(read_rows(io.BytesIO(f"a\n1\n{text}\n".encode()), "a.csv", FormatLimits(), pa.schema([("a", type_)])))
        assert caught.value.position == {"row": 3, "column": "a"} and len(caught.value.message) < 400
    decimal, number = DecimalType(38, 2), NestedField(2, "n", DecimalType(38, 2), required=False)
    kinds: dict[Any, tuple[Any, Any]] = {
        decimal: ("1", text),
        StructType(number): ({"n": "1"}, {"n": text}),
        ListType(3, decimal, element_required=False): (["1"], ["2", text]),
    }
    for kind, values in kinds.items():
        schema = Schema(NestedField(1, "a", kind, required=False))
        for rows in ([{"a": value} for value in values], pa.table({"a": pa.array(list(values))})):
            with pytest.raises(Invalid, match="row 1, column 'a'"):
                check_rows(schema, rows, table="t")
    pairs = MapType(4, StringType(), 5, decimal, value_required=False)
    column = pa.array([[("k", "1")], [("k", text)]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(Invalid, match="row 1, column 'a'"):
        check_rows(Schema(NestedField(1, "a", pairs, required=False)), pa.table({"a": column}), table="t")


def test_nested_decimals_that_fit_are_kept() -> None:
    inner = StructType(
        NestedField(2, "n", DecimalType(38, 2), required=False), NestedField(3, "s", StringType(), required=False)
    )
    schema = Schema(NestedField(1, "a", ListType(4, inner, element_required=False), required=False))
    given_rows = [{"a": [{"s": "x", "n": "12.5"}, {"n": "-" + "9" * 36}]}, {"a": None}, {"a": []}]
    assert check_rows(schema, given_rows, table="t").to_pylist() == [
        {"a": [{"n": Decimal("12.50"), "s": "x"}, {"n": Decimal("-" + "9" * 36 + ".00"), "s": None}]},
        {"a": None},
        {"a": []},
    ]
    wraps = pa.array([{"n": Decimal("27545579671267288355758200787690384001")}])
    with pytest.raises(Invalid, match="row 0"):
        check_rows(Schema(NestedField(1, "a", inner, required=False)), pa.table({"a": wraps}), table="t")


def test_values_that_no_list_has_are_not_read() -> None:
    """Arrow would cast them with the others, and read beyond its tables."""
    hidden = pa.array(["no number", "1", "no number"])
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), hidden)[1:2]
    schema = Schema(NestedField(1, "a", ListType(2, DecimalType(38, 2), element_required=False), required=False))
    assert check_rows(schema, pa.table({"a": column}), table="t").to_pylist() == [{"a": [Decimal("1.00")]}]


def test_a_32_bit_float_of_many_zeros_is_a_number() -> None:
    """Python's int() refuses more than 4,300 digits: the file would be retried for ever."""
    body, schema = b"a\n" + b"0" * 5000 + b"1\n" + b"0" * 5000 + b"16777217\n", pa.schema([("a", pa.float32())])
    with pytest.raises(FileRejected, match="a 32-bit float cannot hold") as caught:
        list(read_rows(io.BytesIO(body), "a.csv", FormatLimits(), schema))
    assert caught.value.row == 3
    (batch,) = read_rows(io.BytesIO(body.rpartition(b"\n0")[0] + b"\n"), "a.csv", FormatLimits(), schema)
    assert batch.column(0).to_pylist() == [1.0]


def test_evidence_keeps_little_of_a_large_value() -> None:
    """A file may have a value of megabytes in each of a thousand columns."""
    evidence = ColumnEvidence("a", texts=False)
    evidence.observe(pa.array(["x" * 1_000_000]), NumberMarks(), None, 2)
    tallies = [*evidence.kinds.values(), *evidence.looks.values(), evidence.dmy, evidence.mdy]
    assert len(tallies) > 5 and all(len(tally.other or "") < 100 for tally in tallies)


def test_a_rule_for_dates_holds_when_the_first_file_has_no_value() -> None:
    from catalog.formats import CsvOptions

    def observed(*values: str | None) -> Inference:
        inference = Inference(options=CsvOptions(dates="dmy"), first=2)
        inference.observe(pa.record_batch({"at": pa.array(values, pa.string())}))
        return inference

    both = observed(None).add(observed("01/02/2026"))
    assert [column.type for column in both.columns()] == [pa.date32()]
