"""Parses the values of command-line options: `name:type`, `old=new`, `7d`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from catalog import Invalid
from catalog.core.point_in_time import is_relative, parse_time
from cli.times import relative_time

_AGE = re.compile(r"^(\d+)([smhdw])$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def path_in_lake(file: Path, root: Path | None = None) -> str:
    """A file's name in the lake: its path as typed, or relative to a root. `./c1/x.md` -> `c1/x.md`.

    An absolute path, or one with `..`, becomes the full path, so that two files never share a name. Invalid if the
    file is not below the root.
    """
    if root is not None:
        try:
            return file.resolve().relative_to(root.resolve()).as_posix()
        except ValueError:
            raise Invalid(f"{file} is not below {root}: pass a --root that contains all files") from None
    if file.is_absolute() or ".." in file.parts:
        absolute = Path(os.path.abspath(file))  # not `resolve`: a link keeps its own name
        return absolute.relative_to(absolute.anchor).as_posix()
    return file.as_posix()


def pairs(texts: Sequence[str], separator: str, what: str) -> dict[str, str]:
    """`["a:long", "b:decimal(9, 2)"]` as a mapping, split at the first separator."""
    values: dict[str, str] = {}
    for text in texts:
        left, mark, right = (part.strip() for part in text.partition(separator))
        if not (left and mark and right):
            raise Invalid(f"{text!r} is not a {what}")
        if left in values:
            raise Invalid(f"{left!r} is passed twice: leave one out")
        values[left] = right
    return values


def columns(texts: Sequence[str]) -> dict[str, str]:
    return pairs(texts, ":", "column: write name:type, for example metres:double")


def names(texts: Sequence[str]) -> list[str]:
    """`--key a,b --key c` and `--key a --key b --key c` are the same."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def terms(texts: Sequence[str]) -> list[str] | None:
    """Partition or sort terms: `none` alone means an empty list; no option at all means None, no change."""
    if not texts:
        return None
    return [] if list(texts) == ["none"] else list(texts)


def parse_cutoff(text: str, now: datetime | None = None) -> datetime:
    """The time that an age (`7d`) or a time names."""
    age = _AGE.match(text)
    if age:
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[age[2]]: int(age[1])})
    if is_relative(text):
        return relative_time(text, now or datetime.now(UTC))
    try:
        return parse_time(text)
    except Invalid as error:
        raise Invalid(f"{error.message}; or write an age: 30m, 12h, 7d, 4w") from None


def format_time(ms: int | None) -> str:
    if ms is None:
        return ""
    time = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{time:%Y-%m-%d %H:%M:%S}.{time:%f}"[:23]
