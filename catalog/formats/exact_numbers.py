"""Whether a double represents a decimal number as it was written.

It does if the double, printed with as many digits as the text has, is the same number: true for `0.1` and for every
number that a program printed from a double, false for `0.12345678901234567890123` and `1e400`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from math import isinf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

INTEGER = re.compile(r"[+-]?[0-9]+")
_PARTS = re.compile(r"[+-]?0*(?P<integer>[0-9]*)\.?(?P<fraction>[0-9]*)(?:[eE][+-]?[0-9]+)?")
_LONG = range(-(2**63), 2**63)
_LONG_DIGITS = 20
"""More digits than a 64-bit integer has."""
_DOUBLE_DIGITS = 800
"""More digits than any double has, written out in full."""
SURE_DIGITS = 15
"""A number of at most this many digits survives in a double, unless it is out of range or subnormal."""
_SURE_CHARACTERS = {pa.float64(): SURE_DIGITS, pa.float32(): 7}
_LEAST_NORMAL = 2.2250738585072014e-308
_SPECIAL = re.compile(r"(?i)[+-]?(nan|inf|infinity)")


def fault(text: str) -> str | None:
    """Why a double cannot represent the number; None if it can. `text` is a number in JSON's or CSV's notation."""
    if INTEGER.fullmatch(text):
        return _integer_fault(text)
    value = float(text)
    if isinf(value):
        return f"a double cannot hold {_short(text)}, which is too large"
    parts = _PARTS.fullmatch(text)
    digits = (parts["integer"] + parts["fraction"]).lstrip("0") if parts else ""
    if not digits:
        return None  # zero
    if value and len(digits) <= _DOUBLE_DIGITS and Decimal(f"{value:.{len(digits) - 1}e}") == Decimal(text):
        return None
    return f"a double cannot hold {_short(text)}, which would become {value!r}"


def _integer_fault(text: str) -> str | None:
    digits = text.lstrip("+-0") or "0"
    value = 0 if len(digits) > _LONG_DIGITS else int(digits) * (-1 if text.startswith("-") else 1)
    if len(digits) > _LONG_DIGITS or value not in _LONG:
        return f"{_short(text)} is an integer beyond 64 bits"
    if int(float(value)) != value:
        return f"{_short(text)} is an integer among fractions, and a double would round it"
    return None


def changed_numbers(texts: Any, numbers: Any) -> Iterator[tuple[int, str]]:
    """Row and reason of each number of a column of floats that differs from what its text says. Passes over nulls."""
    values = numbers.cast(pa.float64())
    long = pc.greater(pc.utf8_length(texts), pa.scalar(_SURE_CHARACTERS[numbers.type]))
    unusual = pc.or_(pc.invert(pc.is_finite(values)), pc.less(pc.abs(values), pa.scalar(_LEAST_NORMAL)))
    rows = pc.indices_nonzero(pc.fill_null(pc.or_(long, unusual), False))
    if not len(rows):
        return
    rows = rows.filter(pc.not_equal(texts.take(rows), values.take(rows).cast(pa.string())))
    for row in rows.to_pylist():
        text, value = texts[row].as_py(), values[row].as_py()
        if _SPECIAL.fullmatch(text):
            continue
        reason = fault(text) if pt.is_float64(numbers.type) else _single_fault(text, value)
        if reason is not None:
            yield row, reason


def _single_fault(text: str, value: float) -> str | None:
    """What is wrong with a value of a 32-bit float column: fractions may be rounded, integers may not."""
    if isinf(value) or (INTEGER.fullmatch(text) and Decimal(value) != Decimal(text)):  # int() refuses 4,300 digits
        return f"a 32-bit float cannot hold {_short(text)}"
    return None


def exact_float(text: str) -> float:
    """The double, for `json.loads(…, parse_float=…)`; ValueError if it is not the number that was written."""
    if len(text) > SURE_DIGITS or "e" in text or "E" in text:
        reason = fault(text)
        if reason is not None:
            raise ValueError(f"{reason}: write it as text")
    return float(text)


def _short(text: str) -> str:
    return text if len(text) <= 2 * _LONG_DIGITS else f"{text[:_LONG_DIGITS]}…"
