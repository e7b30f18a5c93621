"""Times as people write them on the command line: `yesterday`, `2 hours ago`. Days are UTC's, as everywhere else.

Small and strict on purpose. The words become a time of the one grammar (`catalog.core.point_in_time`) here, where the
user knows which present is meant; snapshots and indexes cannot have these words as names.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

from catalog import Invalid
from catalog.core.point_in_time import FEED_GRAMMAR, GRAMMAR, Moment, is_relative, parse_time

_WORDS = "now, today, yesterday, '2 hours ago'"
AS_OF_HELP = f"The point in time: {GRAMMAR}; or {_WORDS}."
POSITION_HELP = f"{FEED_GRAMMAR}; or {_WORDS}."

CLOCK_DIFFERENCE = timedelta(minutes=1)
"""How far the lake's clock may be ahead of this machine's."""
_AGO = re.compile(r"([0-9]{1,6}) (second|minute|hour|day|week)s? ago")


def past_point(context: typer.Context, text: str | None) -> str | None:
    """An option's callback: the point in time in the grammar. Invalid for a future time."""
    return text if text is None or context.resilient_parsing else resolve_point(text, datetime.now(UTC))


def relative_point(context: typer.Context, text: str | None) -> str | None:
    """The same for proofs, which have a stricter rule for what is after the last leaf: the newest checkpoint."""
    if text is None or context.resilient_parsing or not is_relative(text):
        return text
    return str(Moment(relative_time(text, datetime.now(UTC))))


def resolve_point(text: str, now: datetime) -> str:
    """`yesterday` -> `2026-02-28T00:00:00Z`. Anything but a relative time is returned as it is."""
    if is_relative(text):
        return str(Moment(relative_time(text, now)))
    try:
        time = parse_time(text)
    except Invalid:  # not a time; whoever parses it says what is wrong
        return text
    if time > now + CLOCK_DIFFERENCE:
        raise Invalid(f"{text} is in the future: it is {_shown(now)} now. Leave the option out for the newest state")
    return text


def relative_time(text: str, now: datetime) -> datetime:
    """The time that the words mean. Invalid, with the words that work, for any other."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = {"now": now, "today": midnight, "yesterday": midnight - timedelta(days=1)}
    if text.lower() in days:
        return days[text.lower()]
    age = _AGO.fullmatch(text.lower())
    try:
        if age is not None:
            return now - timedelta(**{f"{age[2]}s": int(age[1])})
    except OverflowError:
        pass
    raise Invalid(
        f"{text!r} is not a time that the command knows: write {_WORDS} (seconds, minutes, hours, days or weeks), "
        "2026-03-01 for midnight UTC, or 2026-03-01T12:00:00Z"
    )


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
