"""Texts and decimals to the decimals of a table, each value exactly, or not at all.

Arrow's own cast computes in 128 bits without a test for overflow: it reads `340282366920938463463374607431768211457` as
1, and a text of many fractional digits by a table beyond its end. So texts are bounded first, and the arithmetic is in
256 bits, in which nothing that passed can overflow.
"""

from __future__ import annotations

import re
from decimal import Context
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalog.formats.arrow import children

MAX_DIGITS = 38
_PLAIN = r"^[+-]?0*[0-9]{0,38}([.][0-9]{0,38})?$"
_WITH_EXPONENT = re.compile(r"[+-]?0*[0-9]{0,38}([.][0-9]{0,38})?[eE][+-]?[0-9]{1,2}")
_WIDE = 76
_EXACT = Context(prec=200)
_TOO_LONG = f"it is no decimal of at most {MAX_DIGITS} digits before and after the point"


def cast_decimals(column: Any, type_: Any) -> Any:
    """The column of texts or decimals as decimals of the type. Raises pa.ArrowInvalid for a value that is none, or does
    not fit."""
    if _is_text(column.type):
        column = _bounded(column.cast(pa.string()))
    return column.cast(pa.decimal256(_WIDE, type_.scale)).cast(type_)


def cast_nested(column: Any, type_: Any) -> Any:
    """The column of structs, lists or maps in the type, by Arrow's cast. Raises pa.ArrowInvalid for a text that Arrow
    must not read as a decimal, and if it changed a decimal."""
    if not _has_decimal(type_):
        return column.cast(type_)
    # Arrow casts the values of a list beyond its offsets, too: they are left behind.
    column = column.take(pa.array(range(len(column)), pa.int64()))
    _check_texts(column, type_)
    cast = column.cast(type_)
    _check_unchanged(column, cast)
    return cast


def _has_decimal(type_: Any) -> bool:
    return pt.is_decimal(type_) or any(_has_decimal(type_.field(number).type) for number in range(type_.num_fields))


def _check_texts(source: Any, target: Any) -> None:
    for chunk in _chunks(source):
        if pt.is_decimal(target) and _is_text(chunk.type):
            _check_plain(chunk)
        for child, type_ in _children(chunk, target):
            _check_texts(child, type_)


def _check_unchanged(source: Any, cast: Any) -> None:
    for before, after in zip(_chunks(source), _chunks(cast), strict=True):
        if pt.is_decimal(after.type) and (_is_text(before.type) or pt.is_decimal(before.type)):
            if not cast_decimals(before, after.type).equals(after):
                raise pa.ArrowInvalid("a decimal does not fit")
        elif pt.is_struct(after.type):
            for number, field in enumerate(before.type):
                _check_unchanged(before.field(number), after.field(field.name))
        else:
            for pair in zip(children(before), children(after), strict=False):
                _check_unchanged(*pair)


def _children(array: Any, target: Any) -> list[tuple[Any, Any]]:
    """The arrays nested in it, each with what it becomes."""
    if pt.is_struct(target) and pt.is_struct(array.type):
        return [(array.field(number), target.field(field.name).type) for number, field in enumerate(array.type)]
    if pt.is_map(target):
        return list(zip(children(array), (target.key_type, target.item_type), strict=False))
    return [(child, target.field(0).type) for child in children(array)] if target.num_fields else []


def _is_text(type_: Any) -> bool:
    return pt.is_string(type_) or pt.is_large_string(type_) or pt.is_string_view(type_)


def _chunks(column: Any) -> list[Any]:
    return list(column.chunks) if isinstance(column, pa.ChunkedArray) else [column]


def _check_plain(texts: Any) -> None:
    if pc.all(pc.match_substring_regex(texts, _PLAIN)).as_py() is False:
        raise pa.ArrowInvalid(_TOO_LONG)


def _bounded(texts: Any) -> Any:
    """The texts without exponents, none of more digits than a decimal has."""
    if pc.all(pc.match_substring_regex(texts, _PLAIN)).as_py() in (None, True):
        return texts
    if isinstance(texts, pa.ChunkedArray):
        return pa.chunked_array([_bounded(chunk) for chunk in texts.chunks], pa.string())
    expanded = pa.array([value if value is None else _expanded(value) for value in texts.to_pylist()], pa.string())
    _check_plain(expanded)
    return expanded


def _expanded(text: str) -> str:
    if _WITH_EXPONENT.fullmatch(text) is None:
        return text
    try:
        return format(_EXACT.create_decimal(text), "f")
    except ArithmeticError:
        raise pa.ArrowInvalid(f"{text!r} is no number") from None
