"""What words on the command line mean: `name:type`, `old=new`, `7d`, and the moments that --as-of takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from catalog.errors import Invalid, NotFound

if TYPE_CHECKING:
    from catalog.lake import Lake

AS_OF_HELP = "A snapshot id, a time (2026-03-01 or 2026-03-01T12:00Z), a snapshot's name, or @INDEX of the timeline."
_AGE = re.compile(r"^(\d+)([smhdw])$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def pairs(texts: Sequence[str], separator: str, what: str) -> dict[str, str]:
    """`["a:long", "b:decimal(9, 2)"]` as a mapping, split at the first separator."""
    found: dict[str, str] = {}
    for text in texts:
        left, mark, right = (part.strip() for part in text.partition(separator))
        if not (left and mark and right):
            raise Invalid(f"{text!r} is no {what}")
        if left in found:
            raise Invalid(f"{left!r} is given twice")
        found[left] = right
    return found


def columns(texts: Sequence[str]) -> dict[str, str]:
    return pairs(texts, ":", "column: write name:type, for example metres:double")


def names(texts: Sequence[str]) -> list[str]:
    """`--key a,b --key c` and `--key a --key b --key c` are the same."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def terms(texts: Sequence[str]) -> list[str] | None:
    """Partition or sort terms; `none` alone asks for none, nothing at all asks for nothing to change."""
    if not texts:
        return None
    return [] if list(texts) == ["none"] else list(texts)


def moment(text: str) -> int | str | datetime:
    """A snapshot id or milliseconds, a time, or a name: what the tables call AsOf. Times without a zone are UTC."""
    if text.isdecimal():
        return int(text)
    return time_of(text) or text


def time_of(text: str) -> datetime | None:
    """None if it is no time."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def as_of(lake: Lake, table: str, text: str | None) -> int | str | datetime | None:
    """The moment, `@INDEX` looked up in the timeline and proven against its signed head."""
    if text is None or not text.startswith("@"):
        return None if text is None else moment(text)
    if not text[1:].isdecimal():
        raise Invalid(f"{text!r} is no index of the timeline: write @ and a number, for example @42")
    snapshot_id = lake.timeline.as_of(table, index=int(text[1:])).snapshot_id
    if snapshot_id is None:
        raise NotFound(f"{table} was still empty at index {text[1:]} of the timeline", subject=table)
    return snapshot_id


def before(text: str, now: datetime | None = None) -> datetime:
    """`7d` ago, or a time."""
    age = _AGE.match(text)
    if age:
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    found = time_of(text)
    if found is None:
        raise Invalid(f"{text!r} is neither an age (30m, 12h, 7d, 4w) nor a time (2026-03-01T12:00Z)")
    return found


def shown_time(ms: int | None) -> str:
    if ms is None:
        return ""
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{time:%Y-%m-%d %H:%M:%S}.{time:%f}"[:23]
