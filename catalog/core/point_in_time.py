"""A point in time of the lake: one type and one grammar for every command, route and SQL clause.

Pure: reads no table and no timeline. Other modules resolve a point to a snapshot, a cut of the timeline, or a position
in a table's change feed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from catalog.core.errors import Invalid

GRAMMAR = (
    "a timeline index (42), an RFC 3339 time (2026-03-01T12:00:00Z; 2026-03-01 is midnight UTC), "
    "a named snapshot, or snapshot:ID"
)
"""How users write a point in time; help texts and the API's descriptions quote it."""
FEED_GRAMMAR = f"{GRAMMAR}; or sequence:N, a leaf's number in the table's own history"
"""The same for a position in a table's change feed."""

INDEX_LIMIT = 10**12
"""Indexes are below this: milliseconds since 1970 have had 13 digits since 2001, snapshot ids have about 19."""
_ID_LIMIT = 2**63
_MAX_NAME_LENGTH = 256
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPELLINGS = "42 for a timeline index, 2026-03-01T12:00:00Z for a time, snapshot:ID for a snapshot's id, or a name"

_NUMBER = re.compile(r"0|[1-9][0-9]*")
_NUMBER_LIKE = re.compile(r"[+-]?[0-9][0-9_.,]*(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
# A year and month, a date or a week, with or without a time of day: what looks like a time, but is not in the grammar.
_TIME_LIKE = re.compile(
    r"[0-9]{4}-[0-9]{1,2}(?:-[0-9]{1,2})?(?:[Tt ](?:[0-9:].*)?)?|[0-9]{8}[Tt][0-9].*|[0-9]{4}-?W[0-9]{2}.*"
)
# Relative to the present. Only the command resolves them; nothing may have such a name.
_RELATIVE = re.compile(r"now|today|yesterday|tomorrow|.*\sago", re.IGNORECASE)
_PREFIXED = re.compile(r"(snapshot|sequence):", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TimelineIndex:
    """The cut of the timeline at one index: all tables at once, each proven."""

    index: int

    def __post_init__(self) -> None:
        if self.index < 0:
            raise Invalid(f"{self.index} is not a timeline index: the first is 0. Write {_SPELLINGS}")
        if self.index >= INDEX_LIMIT:
            raise Invalid(
                f"{self.index} is too large for a timeline index: write snapshot:{self.index} for a snapshot's id, or "
                "a time such as 2026-03-01T12:00:00Z instead of milliseconds"
            )

    def __str__(self) -> str:
        return str(self.index)


@dataclass(frozen=True, slots=True)
class Moment:
    """The last cut of the timeline that was sequenced at or before a time, in UTC."""

    time: datetime

    def __post_init__(self) -> None:
        if self.time.tzinfo is None:
            raise Invalid(f"the time {self.time.isoformat()} has no zone: write {self.time.isoformat()}Z for UTC")
        try:
            object.__setattr__(self, "time", self.time.astimezone(UTC))
        except OverflowError:
            raise Invalid(f"the time {self.time.isoformat()} is out of range: UTC's years are 1 to 9999") from None

    @property
    def ms(self) -> int:
        """Whole milliseconds since 1970, rounded down."""
        return (self.time - _EPOCH) // timedelta(milliseconds=1)

    def __str__(self) -> str:
        return self.time.isoformat().removesuffix("+00:00") + "Z"


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """A tag or branch of the table, or else a named index of the timeline."""

    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """A snapshot of one table by its Iceberg id."""

    id: int

    def __post_init__(self) -> None:
        if not 0 <= self.id < _ID_LIMIT:
            raise Invalid(f"snapshot:{self.id} is out of range: a snapshot's id has 63 bits")

    def __str__(self) -> str:
        return f"snapshot:{self.id}"


@dataclass(frozen=True, slots=True)
class TableSequence:
    """A leaf by its number in its table's own history: what watermarks and change sets count. -1: before the first."""

    number: int

    def __post_init__(self) -> None:
        if not -1 <= self.number < INDEX_LIMIT:
            raise Invalid(f"sequence:{self.number} is out of range: a table's leaves are numbered from 0")

    def __str__(self) -> str:
        return f"sequence:{self.number}"


PointInTime: TypeAlias = TimelineIndex | Moment | NamedSnapshot | SnapshotId
FeedPosition: TypeAlias = PointInTime | TableSequence
PointLike: TypeAlias = PointInTime | int | datetime | str
"""What Python callers may pass: a timeline index, a datetime with a zone, or text in the grammar."""
FeedPositionLike: TypeAlias = FeedPosition | int | datetime | str


def parse_point_in_time(text: str) -> PointInTime:
    """Parses GRAMMAR. Invalid, with the valid spellings, for anything ambiguous."""
    _check_printable(text)
    if _NUMBER.fullmatch(text):
        return TimelineIndex(int(text)) if len(text) < 20 else _too_long(text)
    if (time := _time(text)) is not None:
        return Moment(time)
    if text.startswith("snapshot:") and _NUMBER.fullmatch(text[9:]):
        return SnapshotId(int(text[9:])) if len(text) < 32 else _too_long(text)
    return NamedSnapshot(text)


def parse_feed_position(text: str) -> FeedPosition:
    """Parses FEED_GRAMMAR: a point in time, or `sequence:<n>`."""
    number = text[9:] if text.startswith("sequence:") else None
    if number is not None and (number == "-1" or (_NUMBER.fullmatch(number) and len(number) < 20)):
        return TableSequence(int(number))
    return parse_point_in_time(text)


def parse_time(text: str) -> datetime:
    """Parses a time of GRAMMAR, where only a time makes sense. In UTC."""
    _check_printable(text)
    time = _time(text)
    if time is None:
        raise Invalid(f"{text!r} is not a time: write 2026-03-01T12:00:00Z, or 2026-03-01 for midnight UTC")
    return Moment(time).time


def point_in_time(value: PointLike) -> PointInTime:
    """The point in time of a value that a Python caller passed."""
    if isinstance(value, str):
        return parse_point_in_time(value)
    if isinstance(value, datetime):
        return Moment(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return TimelineIndex(value)
    if isinstance(value, TimelineIndex | Moment | NamedSnapshot | SnapshotId):
        return value
    raise Invalid(f"{value!r} is not a point in time: pass {_SPELLINGS}")


def feed_position(value: FeedPositionLike) -> FeedPosition:
    """The position in a table's change feed of a value that a Python caller passed."""
    if isinstance(value, str):
        return parse_feed_position(value)
    return value if isinstance(value, TableSequence) else point_in_time(value)


def is_relative(text: str) -> bool:
    """Whether a person means a time relative to the present: `yesterday`, `2 hours ago`."""
    return _RELATIVE.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Invalid if the grammar, or a person, may read the name of a snapshot or an index as something else."""
    _check_printable(name)
    if len(name) > _MAX_NAME_LENGTH:
        raise Invalid(f"{name[:20]!r}… is too long for a name: at most {_MAX_NAME_LENGTH} characters")
    if name.startswith("@"):
        bare = name[1:]
        hint = (
            f"write {bare} for the timeline's index {bare}" if _NUMBER.fullmatch(bare) else "a name has no @ in front"
        )
        raise Invalid(f"{name!r} is not a point in time: {hint}")
    if name.isnumeric() or _NUMBER_LIKE.fullmatch(name):
        raise Invalid(f"{name!r} is neither a timeline index nor a name: write {_SPELLINGS}")
    if _time(name) is not None or _TIME_LIKE.fullmatch(name):
        raise Invalid(
            f"{name!r} is neither a time nor a name: write a time as 2026-03-01T12:00:00Z, or a day as 2026-03-01"
        )
    if is_relative(name):
        raise Invalid(
            f"{name!r} is neither a time nor a name: only options of the command take a time relative to the present. "
            "Write a time as 2026-03-01T12:00:00Z, or a day as 2026-03-01"
        )
    if (prefix := _PREFIXED.match(name)) is not None:
        word = prefix[1].lower()
        where = "" if word == "snapshot" else ", which only a table's change feed has"
        raise Invalid(f"{name!r} is not a point in time: write {word}:<number>{where}, or {_SPELLINGS}")


def _check_printable(text: str) -> None:
    if not text or text.isspace():
        raise Invalid(f"a point in time is missing: write {_SPELLINGS}")
    if not text.isprintable():
        raise Invalid(f"{text!r} is not a point in time: it has characters that cannot be printed")
    if text != text.strip():
        raise Invalid(f"{text!r} has spaces around it: write {text.strip()!r}")


def _time(text: str) -> datetime | None:
    """The time; None if the text does not look like one. Invalid without a zone, or for a day that does not exist."""
    match = _TIME.fullmatch(text)
    if match is None and not _DATE.fullmatch(text):
        return None
    day, hour, zone = (text, "00:00", "Z") if match is None else match.groups()
    if zone is None:
        raise Invalid(f"the time {text!r} has no zone: write {day}T{hour}Z for UTC, or an offset such as +01:00")
    try:
        return datetime.fromisoformat(f"{day}T{hour}{zone.upper()}").astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{text!r} is not a time: {error}; write one such as 2026-03-01T12:00:00Z") from None


def _too_long(text: str) -> PointInTime:
    raise Invalid(f"{text[:40]}… has too many digits: write {_SPELLINGS}")
