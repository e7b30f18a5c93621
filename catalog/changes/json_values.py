"""Values of Arrow types as JSON and back.

Times and dates are the numbers in their row encoding (docs/row-digest.md), bytes are base64, decimals and integers from
2**53 on are text, a map is a list of pairs.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa

from catalog.changes import type_tags
from catalog.core.strict_json import EXACT

_DECIMAL = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?(E[+-]?[0-9]{1,2})?")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_FLOAT = re.compile(r"nan|-?inf")


def json_of(value: Any, kind: Any) -> Any:
    """A value of a plain type (see type_tags.plain) as JSON."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < EXACT else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if pa.types.is_struct(kind):
        return {field.name: json_of(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [[json_of(key, kind.key_type), json_of(item, kind.item_type)] for key, item in value]
    return [json_of(item, kind.value_type) for item in value]


def value_of(value: Any, kind: Any) -> Any:
    """The inverse of `json_of`: a value that pa.array accepts for the type. ValueError or TypeError for any other JSON.

    Text becomes a number only if it has few digits: pyarrow 26 crashes on a decimal with a very small exponent.
    """
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, dict) or len(value) != kind.num_fields:
            raise ValueError(f"{value!r:.80} has not the fields of {kind!s:.80}")
        return {field.name: value_of(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(value_of(key, kind.key_type), value_of(item, kind.item_type)) for key, item in _list(value)]
    if type_tags.is_list(kind):
        return [value_of(item, kind.value_type) for item in _list(value)]
    if pa.types.is_decimal(kind):
        return Decimal(_matching(_DECIMAL, value))
    if pa.types.is_floating(kind):
        return float(_matching(_FLOAT, value)) if isinstance(value, str) else float(_number(value))
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return int(_matching(_INTEGER, value)) if isinstance(value, str) else _integer(value)
    if isinstance(kind, pa.BaseExtensionType) or type_tags.is_bytes(kind):
        return _bytes(value)
    expected = bool if pa.types.is_boolean(kind) else str
    if not isinstance(value, expected):
        raise ValueError(f"{value!r:.80} is not of type {kind}")
    return value


def _bytes(value: Any) -> bytes:
    """Base64 in its one spelling: spare bits in the last character would be a second one."""
    data = b64decode(_matching(None, value), validate=True)
    if b64encode(data).decode() != value:
        raise ValueError(f"{value!r:.80} is not base64")
    return data


def _matching(pattern: re.Pattern[str] | None, value: Any) -> str:
    if not isinstance(value, str) or (pattern is not None and not pattern.fullmatch(value)):
        raise ValueError(f"{value!r:.80} is not the text of a value")
    return value


def _number(value: Any) -> float | int:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r:.80} is not a number")
    number: float | int = value
    return number


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.80} is not an integer")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.80} is not a list")
    return value
