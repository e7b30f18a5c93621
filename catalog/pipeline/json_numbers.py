"""Numbers of JSON that a double cannot stand for: pyarrow rounds them without a word, so they are looked for.

Only a column of doubles can hide one, and only where a value is so large that integers are no longer exact there, or
is no number at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalog.pipeline.limits import Refused

EXACT = 2**53
_LONG = range(-(2**63), 2**63)
_DIGITS = 20
"""More than any integer of 64 bits has, with its sign."""

NumberedLines = Callable[[], list[tuple[int, bytes]]]
"""Each row's number and text; only asked for if a column is suspicious."""


def check_numbers(found: pa.Table, lines: NumberedLines, unit: str) -> None:
    """Refused, with row and column, for an integer beyond 64 bits, one that a double would round, NaN or Infinity."""
    texts: list[tuple[int, bytes]] | None = None
    for field, column in zip(found.schema, found.columns, strict=True):
        suspects = _suspects(column, field.type)
        if len(suspects) and texts is None:
            texts = lines()
        for row in suspects:
            number, text = (texts or [])[min(int(row), len(texts or []) - 1)]
            for path, reason in _faults(text, field.name):
                raise Refused(reason, column=path, **cast(dict[str, Any], {unit: number}))


def _suspects(column: Any, kind: Any) -> Any:
    """The rows to look at; all of them if the doubles are inside of something."""
    if pt.is_floating(kind):
        return () if _all_small(column) else pc.indices_nonzero(_large(column)).to_numpy()
    if not kind.num_fields or not _hides_large(column, kind):
        return ()
    return np.arange(len(column))


def _hides_large(column: Any, kind: Any) -> bool:
    if pt.is_floating(kind):
        return bool(pc.any(_large(column)).as_py())
    if pt.is_struct(kind):
        return any(_hides_large(pc.struct_field(column, field.name), field.type) for field in kind)
    return pt.is_list(kind) and _hides_large(pc.list_flatten(column), kind.value_type)


def _all_small(column: Any) -> bool:
    """Whether there is surely nothing to look at: the least and the greatest say so, and numpy's are NaN if one is."""
    if column.null_count:
        return not pc.any(_large(column)).as_py()
    chunks = [chunk.to_numpy() for chunk in column.chunks if len(chunk)]
    return all(values.min() > -EXACT and values.max() < EXACT for values in chunks)


def _large(column: Any) -> Any:
    """True where an integer need not be exact, and where there is no number; never null."""
    less: Any = pc.less  # its stubs know no plain numbers
    return pc.fill_null(pc.invert(less(pc.abs(column), EXACT)), False)


def _faults(text: bytes, column: str) -> Iterator[tuple[str, str]]:
    try:
        value = json.loads(text, parse_int=_integer, parse_constant=_Constant)
    except ValueError:  # two objects in one line: pyarrow takes them, and so nothing can be said of either
        return iter(())
    return _walk(value.get(column), column)


def _walk(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, path)
    elif isinstance(value, _Constant):
        yield path, f"{value} is no number of JSON's"
    elif isinstance(value, int) and value not in _LONG:
        yield path, f"{_short(value)} is an integer beyond 64 bits: write it as text"
    elif isinstance(value, int) and int(float(value)) != value:
        yield path, f"{value} is an integer among fractions, and a double would round it: write it as text"


class _Constant(str):
    """NaN and its kin."""


def _integer(text: str) -> int:
    """Python refuses to read thousands of digits; that many are beyond 64 bits whatever they are."""
    return int(text) if len(text) <= _DIGITS else int(text[: _DIGITS + 1])


def _short(value: int) -> str:
    text = str(value)
    return text if len(text) <= _DIGITS else f"{text[:_DIGITS]}…"
