"""The digest of a key from its values, as docs/row-digest.md specifies it. Needs the standard library alone.

catalog.changes.encoding does the same for whole columns, and shares no code with this: row proofs are checked here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from hashlib import sha256
from typing import Any
from uuid import UUID

_DECIMAL = re.compile(r"decimal\(\s*[0-9]{1,2}\s*,\s*([0-9]{1,2})\s*\)")
_FIXED = re.compile(r"fixed\[([0-9]{1,9})\]")
_SCALARS = {"boolean": 1, "int": 2, "long": 2, "date": 5, "time": 6}
_TIMESTAMPS = {"timestamp": 7, "timestamptz": 8, "timestamp_ns": 9, "timestamptz_ns": 10}
_INSTANT = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def key_digest(key: Sequence[tuple[int, str]], values: Sequence[Any]) -> bytes:
    """The key digest of one value for each key column, given as (field id, Iceberg type) by ascending id.

    A value is text or the Python value: `4711`, `"4711"`; dates and times as ISO 8601, bytes in hex. ValueError says
    which value does not fit.
    """
    if len(values) != len(key):
        raise ValueError(f"the key has {len(key)} columns, and {len(values)} values were given")
    entries, payloads = list[bytes](), list[bytes]()
    for (field_id, kind), value in zip(key, values, strict=True):
        tag, slot, payload = _encoded(kind, value)
        entries.append(field_id.to_bytes(4, "big") + bytes((tag,)) + slot)
        payloads.append(payload)
    head = bytes(4) + b"\x0f" + len(key).to_bytes(8, "big")
    return sha256(head + b"".join(entries) + b"".join(payloads)).digest()


def _encoded(kind: str, value: Any) -> tuple[int, bytes, bytes]:
    """Tag, slot and payload of a value."""
    try:
        if kind in _SCALARS:
            return _SCALARS[kind], _scalar(kind, value).to_bytes(8, "big", signed=True), b""
        if kind in _TIMESTAMPS:
            return _TIMESTAMPS[kind], _instant(kind, value).to_bytes(8, "big", signed=True), b""
        if (decimal := _DECIMAL.fullmatch(kind)) is not None:
            scale = int(decimal[1])
            digits = _unscaled(value, scale)
            return 4, scale.to_bytes(4, "big") + len(digits).to_bytes(4, "big"), digits
        if kind == "string":
            if not isinstance(value, str):
                raise ValueError("it is not text")
            return 11, *_sized(value.encode())
        if kind in ("binary", "uuid") or _FIXED.fullmatch(kind):
            return 12, *_sized(_octets(kind, value))
    except (ValueError, TypeError, OverflowError, InvalidOperation) as error:
        raise ValueError(f"{value!r:.80} is not a value of type {kind}: {error}") from None
    raise ValueError(f"a column of type {kind!r:.40} cannot be a key")


def _sized(payload: bytes) -> tuple[bytes, bytes]:
    return len(payload).to_bytes(8, "big"), payload


def _scalar(kind: str, value: Any) -> int:
    if kind == "boolean":
        if value in (True, False) and isinstance(value, bool):
            return int(value)
        return {"true": 1, "false": 0}[str(value)] if str(value) in ("true", "false") else _refuse("true or false")
    if kind == "date":
        if isinstance(value, datetime):
            raise ValueError("it has a time")
        return (date.fromisoformat(value) if isinstance(value, str) else value).toordinal() - 719_163
    if kind == "time":
        at = time.fromisoformat(value) if isinstance(value, str) else value
        if at.tzinfo is not None:
            raise ValueError("it has a zone")
        return int((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + int(at.microsecond)
    if isinstance(value, (bool, float)):
        raise ValueError("it is not an integer")
    number = int(value) if not isinstance(value, str) else _integer(value)
    size = 31 if kind == "int" else 63
    return number if -(2**size) <= number < 2**size else _refuse(f"an integer of {size + 1} bits")


def _refuse(expected: str) -> int:
    raise ValueError(f"it is not {expected}")


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?(0|[1-9][0-9]*)", text, re.ASCII):
        raise ValueError("it is not an integer")
    return int(text)


def _instant(kind: str, value: Any) -> int:
    """Microseconds, or nanoseconds, from 1970."""
    text = value.isoformat() if isinstance(value, datetime) else value
    if not isinstance(text, str) or (match := _INSTANT.fullmatch(text)) is None:
        raise ValueError("write it as 2026-03-01T12:00:00, with a zone if the type has one")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    time(hour, minute, second)
    zone, zoned = match[8], "tz" in kind
    if (zone is not None) != zoned:
        raise ValueError("it needs a zone" if zoned else "the type has no zone")
    offset = 0
    if zone not in (None, "Z"):
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise ValueError("its zone does not exist")
        offset = (hours * 60 + minutes) * 60 * (-1 if zone[0] == "-" else 1)
    seconds = (date(year, month, day).toordinal() - 719_163) * 86_400 + hour * 3600 + minute * 60 + second - offset
    fraction, places = match[7] or "", 9 if kind.endswith("_ns") else 6
    if fraction[places:].strip("0"):
        raise ValueError(f"it has more than {places} decimals")
    scale: int = 10**places
    return seconds * scale + int(fraction[:places].ljust(places, "0"))


def _unscaled(value: Any, scale: int) -> bytes:
    if isinstance(value, float):
        raise ValueError("a float is not exact: write it as text")
    number = Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > 80:
        raise ValueError("it is not a decimal")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)))
    shift = exponent + scale
    if shift < 0:
        unscaled, rest = divmod(unscaled, 10**-shift)
        if rest:
            raise ValueError(f"it has more than {scale} decimals")
    else:
        unscaled *= 10**shift
    return str(-unscaled if sign else unscaled).encode()


def _octets(kind: str, value: Any) -> bytes:
    if kind == "uuid":
        return (value if isinstance(value, UUID) else UUID(value)).bytes
    octets = bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    fixed = _FIXED.fullmatch(kind)
    if fixed is not None and len(octets) != int(fixed[1]):
        raise ValueError(f"it has {len(octets)} bytes")
    return octets
