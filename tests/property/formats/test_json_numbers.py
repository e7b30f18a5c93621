"""A block of JSON lines is refused exactly when one of its numbers, on its own, would be changed by a double."""

from __future__ import annotations

import io
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.formats import FileRejected, FormatLimits, read_rows

DIGITS = st.text("0123456789", min_size=1, max_size=8) | st.text("0123456789", min_size=14, max_size=40)
HINT = pa.schema([("x", pa.float64()), ("s", pa.string())])


@st.composite
def fractions(draw: st.DrawFn) -> str:
    """A fraction as JSON spells it: few digits, many, with and without an exponent."""
    whole = draw(DIGITS).lstrip("0") or "0"
    text = f"{draw(st.sampled_from(['', '-']))}{whole}.{draw(DIGITS)}"
    exponent = draw(st.none() | st.integers(-340, 320))
    sign = "" if exponent is None or exponent < 0 else draw(st.sampled_from(["", "+"]))
    return text if exponent is None else f"{text}{draw(st.sampled_from('eE'))}{sign}{exponent}"


PRINTED = st.floats(allow_nan=False, allow_infinity=False).map(repr).filter(lambda text: "." in text or "e" in text)


def survives(text: str) -> bool:
    """By decimal arithmetic: the double, written with as many digits as the text has, is the same number."""
    value, number = float(text), Decimal(text)
    if value in (float("inf"), float("-inf")):
        return False
    if not number:
        return True
    digits = len(number.as_tuple().digits)
    return bool(value) and Decimal(f"{value:.{digits - 1}e}") == number


@settings(max_examples=300)
@given(st.lists(fractions() | PRINTED, min_size=1, max_size=8), st.integers(0, 40), st.booleans())
def test_a_block_is_refused_iff_one_of_its_numbers_is_changed(numbers: list[str], pad: int, long_text: bool) -> None:
    # The text moves the numbers about, also over the border between two steps of the search.
    text = "x" * (pad + (128 << 10) - 60 if long_text else pad)
    block = "".join(f'{{"s": "{text if at == 0 else ""}", "x": {number}}}\n' for at, number in enumerate(numbers))
    try:
        batches = list(read_rows(io.BytesIO(block.encode()), "a.jsonl", FormatLimits(), HINT))
    except FileRejected:
        assert not all(map(survives, numbers)), block
        return
    assert all(map(survives, numbers)), block
    assert pa.Table.from_batches(batches)["x"].to_pylist() == [float(number) for number in numbers]


@pytest.mark.parametrize("end", ["}", "}\n"])
def test_a_long_number_is_checked_wherever_it_stands_in_the_last_row(end: str) -> None:
    shortest = next(number for number in (f"9.{n:015d}" for n in range(10**14, 10**14 + 99)) if not survives(number))
    for pad in range(8):
        for number in (shortest, f"{shortest}1", f"{shortest}11"):
            block = f'{{"s": "{"x" * pad}", "x": {number}{end}'
            accepted = True
            try:
                list(read_rows(io.BytesIO(block.encode()), "a.jsonl", FormatLimits(), HINT))
            except FileRejected:
                accepted = False
            assert accepted == survives(number), block


@pytest.mark.parametrize(
    "number", ["1e-400", "1.5E-330", "-1.25e-323", "4.9e-324", "2.2250738585072014e-308", "0e-400"]
)
@pytest.mark.parametrize("column", ["x", "nested"])
def test_an_exponent_that_is_too_small_is_checked_beside_ordinary_numbers(number: str, column: str) -> None:
    value = number if column == "x" else f'[{{"y": {number}}}]'
    block = (
        f'{{"x": 1.5}}\n{{"x": 2.5, "{column}": {value}}}\n' if column != "x" else f'{{"x": 1.5}}\n{{"x": {value}}}\n'
    )
    try:
        list(read_rows(io.BytesIO(block.encode()), "a.jsonl", FormatLimits(), None))
    except FileRejected:
        assert not survives(number)
        return
    assert survives(number)
