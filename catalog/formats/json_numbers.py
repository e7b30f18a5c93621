"""Refuses JSON numbers that a double cannot represent: pyarrow rounds them without an error.

Only columns of doubles are concerned. Integers are checked where the double is at least 2^53, beyond which integers
are not exact; fractions where the text has sixteen digits or more, or an exponent of three digits below zero.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalog.formats.byte_positions import find_bytes
from catalog.formats.exact_numbers import fault
from catalog.formats.limits import FileRejected

EXACT = 2**53
_LEAST_NORMAL = sys.float_info.min
_FRACTION = r"^[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)$"
"""Neither an integer nor `1.2.3`, which can only be part of a string."""
_NUMBER_BYTES = re.compile(rb"[0-9.eE+-]+")
_IN_NUMBER = np.isin(np.arange(256), np.frombuffer(b"0123456789.eE+-", np.uint8))
_LONG = 16
"""A double may change a fraction of this many digits, or digits and a point."""
_LONG_RUN = re.compile(rb"[0-9.]{%d}" % _LONG)
_WINDOW = 32
"""Longer than any number that a program prints from a double."""
_MINUS, _E = b"-e"
_STEP = 128 << 10

NumberedLines = Callable[[], list[tuple[int, bytes]]]
"""Each row's number and text; called only if a number needs checking."""


def check_numbers(table: pa.Table, block: bytes, lines: NumberedLines, unit: str) -> None:
    """Raises FileRejected, with row and column, for an integer beyond 64 bits, a number that a double would change,
    NaN or Infinity. `block` is the text of all rows."""
    texts: list[tuple[int, bytes]] | None = None
    for field, column in zip(table.schema, table.columns, strict=True):
        suspects = _suspects(column, field.type)
        if len(suspects) and texts is None:
            texts = lines()
        for row in suspects:
            number, text = (texts or [])[min(int(row), len(texts or []) - 1)]
            for path, reason in _faults(text, [field]):
                raise FileRejected(reason, column=path, **cast(dict[str, Any], {unit: number}))
    doubles = [field for field in table.schema if _has_double(field.type)]
    if not doubles:
        return
    tiny = any(_may_be_tiny(table[field.name]) for field in doubles)
    if _has_fault(block, tiny):
        for number, text in lines():
            if _has_fault(text):
                for path, reason in _faults(text, doubles):
                    raise FileRejected(reason, column=path, **cast(dict[str, Any], {unit: number}))


def _has_double(kind: Any) -> bool:
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return pt.is_floating(kind) or any(map(_has_double, inner))


def _may_be_tiny(column: Any) -> bool:
    """Whether a number in the column may have had too small an exponent: a double of it is zero or has fewer digits."""
    if not pt.is_floating(column.type):
        return True  # nested: the text tells
    values = column.drop_null() if column.null_count else column
    return any(not np.abs(chunk.to_numpy()).min() >= _LEAST_NORMAL for chunk in values.chunks if len(chunk))


def _has_fault(text: bytes, tiny: bool = True) -> bool:
    """Whether a double would change a fraction in the text, even one inside a string. Runs on every block.
    `tiny`: whether to look for exponents that are too small."""
    if tiny and _has_tiny_exponent(text):
        return True
    if not _may_have_long_run(text):
        return False
    fractions = _long_fractions(text)
    # Most numbers were printed from a double and read back as they were: only the others are checked one by one.
    others = fractions.filter(pc.not_equal(fractions, fractions.cast(pa.float64()).cast(pa.string())))
    return any(fault(number) is not None for number in others.to_pylist())


def _long_fractions(text: bytes) -> Any:
    """The fractions of sixteen digits or more, without their signs, as an array of strings."""
    codes = np.frombuffer(text + bytes(_WINDOW), np.uint8)
    starts = _long_runs(codes)
    windows = np.lib.stride_tricks.sliding_window_view(codes, _WINDOW)[starts]
    in_number = _IN_NUMBER[windows]
    lengths = in_number.argmin(axis=1)
    # A number that fills its window ends somewhere behind it.
    wide = [match[0] for at in starts[in_number.all(axis=1)] if (match := _NUMBER_BYTES.match(text, int(at)))]
    offsets: Any = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    characters: Any = windows[np.arange(_WINDOW) < lengths[:, None]]
    numbers: Any = pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(characters))
    if wide:
        numbers = pa.concat_arrays([numbers, pa.array(wide, pa.binary()).cast(pa.string())])
    return numbers.filter(pc.match_substring_regex(numbers, _FRACTION))


def _may_have_long_run(text: bytes) -> bool:
    """False if no sixteen digits and points stand in a row. Looks at every fourth byte: such a run holds four of them.
    A word of four bytes is its first one, modulo 256, so that nothing is gathered byte by byte."""
    words = np.frombuffer(text, "<u4", len(text) // 4)
    for at in range(0, len(words), _STEP // 4):
        part = words[at : at + _STEP // 4 + 3].astype(np.uint8)
        run = (part - 46 < 12) & (part != 47)  # below a point it wraps around; 47 is a slash
        if (run[3:] & run[2:-1] & run[1:-2] & run[:-3]).any():
            return True
    # The last word is incomplete: the run that ends there is looked for byte by byte.
    return _LONG_RUN.search(text, max(len(text) - 2 * _LONG, 0)) is not None


def _has_tiny_exponent(text: bytes) -> bool:
    """Whether a number ends as in `1e-310`: a double that small has fewer digits than others."""
    codes = np.frombuffer(text, np.uint8)
    minus = find_bytes(text, lambda part: part == _MINUS)
    minus = minus[(minus > 0) & (minus < len(codes) - 3)]
    minus = minus[codes[minus - 1] | 0x20 == _E]
    return bool(_are_digits(codes[minus[:, None] + np.arange(1, 4)]).all(axis=1).any())


def _are_digits(codes: Any) -> Any:
    return codes - 48 < 10  # what is below "0" wraps around


def _long_runs(codes: Any) -> Any:
    """Where sixteen digits and points in a row, or more, begin."""
    starts = [np.empty(0, np.int64)]
    for at in range(0, len(codes), _STEP):
        part = codes[max(at - 1, 0) : at + _STEP + _LONG - 1]
        run = (part - 46 < 12) & (part != 47)  # below a point it wraps around; 47 is a slash
        start = run[1:] & ~run[:-1] if at else run & ~np.append([False], run[:-1])
        run = run[1:] if at else run
        for shift in (1, 2, 4, 8):
            run = run[shift:] & run[:-shift]
        starts.append((run & start[: len(run)]).nonzero()[0] + at)
    return np.concatenate(starts)


def _suspects(column: Any, kind: Any) -> Any:
    """The rows to check; all rows if the doubles are nested in structs or lists."""
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
    """Whether no value needs checking, by the column's minimum and maximum, which numpy makes NaN if any value is."""
    if column.null_count:
        return not pc.any(_large(column)).as_py()
    chunks = [chunk.to_numpy() for chunk in column.chunks if len(chunk)]
    return all(values.min() > -EXACT and values.max() < EXACT for values in chunks)


def _large(column: Any) -> Any:
    """True where an integer may be inexact and where the value is NaN; never null."""
    less: Any = pc.less  # its stubs know no plain numbers
    return pc.fill_null(pc.invert(less(pc.abs(column), EXACT)), False)


def _faults(text: bytes, fields: list[Any]) -> Iterator[tuple[str, str]]:
    """Path and reason of each number in those columns that a double would change."""
    decoder = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Constant)
    rest = text.decode().strip()
    while rest:  # pyarrow takes two objects in one line
        try:
            row, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):  # pyarrow also takes an object in two lines
            yield fields[0].name, "the row is not one JSON object: write each row in one line"
            return
        for field in fields if isinstance(row, dict) else ():
            yield from _walk(row.get(field.name), field.type, field.name)
        rest = rest[end:].strip()


def _walk(value: Any, kind: Any, path: str) -> Iterator[tuple[str, str]]:
    if pt.is_struct(kind) and isinstance(value, dict):
        for inner in kind:
            yield from _walk(value.get(inner.name), inner.type, f"{path}.{inner.name}")
    elif pt.is_list(kind) and isinstance(value, list):
        for item in value:
            yield from _walk(item, kind.value_type, path)
    elif not pt.is_floating(kind):
        return
    elif isinstance(value, _Constant):
        yield path, f"{value} is not a JSON number"
    elif isinstance(value, _Number) and (reason := fault(value)) is not None:
        yield path, f"{reason}: write it as text"


class _Constant(str):
    """NaN, Infinity or -Infinity."""


class _Number(str):
    """The number's text: Python's float would round it, too."""
