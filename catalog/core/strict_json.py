"""JSON from somebody who may want to deceive: bounded before anything is built, and with one meaning only.

Python's parser keeps the last of two equal keys, other readers the first, so that one signed text says two things. It
also accepts NaN, integers of any length and any nesting. Uses only the standard library.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

EXACT = 2**53
"""Integers from here on are text: many JSON readers round them."""


def parse_strictly(
    data: bytes | str, *, max_bytes: int = 1 << 20, max_values: int = 1 << 20, max_depth: int = 64
) -> Any:
    """The JSON value; ValueError for anything else, for a key that occurs twice in an object, and over a limit.

    Memory is at most about 100 bytes per value beyond the text. Costs one pass, and a second over nested values.
    """
    if len(data) > max_bytes:
        raise ValueError(f"{len(data)} bytes of JSON are over the limit of {max_bytes}")
    text = data.decode() if isinstance(data, bytes) else data
    containers = text.count("[") + text.count("{")
    if containers + text.count(",") > max_values:
        raise ValueError(f"the JSON has more than {max_values} values")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise _too_deep(max_depth) from None
    if containers > max_depth and _is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in members if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r:.80} is there twice")
    return members


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) >= EXACT:
        raise ValueError(f"the number {text:.20} is not exact: integers from 2**53 on are text")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"the number {text:.20} is too large")
    return value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _is_deeper(value: Any, limit: int) -> bool:
    """Whether containers are nested deeper than the limit. A loop: the nesting is up to the one who wrote it."""
    level: list[Any] = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        inside = (inner for outer in level for inner in (outer.values() if isinstance(outer, dict) else outer))
        level = [inner for inner in inside if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _too_deep(limit: int) -> ValueError:
    return ValueError(f"the JSON is nested deeper than {limit} levels")
