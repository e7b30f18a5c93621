"""Schedule expressions of EventBridge and EventBridge Scheduler: rate(...), cron(...), at(...). Pure functions.

aws-croniter parses cron fields; where it differs from AWS it is corrected here, and the tests list the differences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from aws_croniter import AwsCroniter

_UNITS = {"minute": 60, "hour": 3600, "day": 86400}
_RATE = re.compile(r"rate\((\d+) (minute|hour|day)(s?)\)")
_CRON = re.compile(r"cron\((.+)\)")
_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_FIRST_YEAR, _LAST_YEAR = 1970, 2199
_YEAR_STEP = re.compile(r"(\*|\d{4})(?:-(\d{4}))?/([1-9]\d*)")


class Expression(Protocol):
    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        """The first time later than `after`, or None when there is none. A rate counts from `anchor`."""
        ...


def parse(text: str, timezone: str = "UTC") -> Expression:
    """Parses an expression; `timezone` applies to cron and at. Raises ValueError where AWS rejects it."""
    zone = ZoneInfo(timezone)
    if match := _RATE.fullmatch(text):
        return _rate(text, int(match[1]), match[2], plural=bool(match[3]))
    if match := _CRON.fullmatch(text):
        return Cron.of(match[1], zone)
    if match := _AT.fullmatch(text):
        return At(datetime.fromisoformat(match[1]).replace(tzinfo=zone).astimezone(UTC))
    raise ValueError(
        f"{text} is not a schedule expression such as rate(5 minutes), cron(0 3 * * ? *) or at(2026-01-31T12:00:00)"
    )


def _rate(text: str, count: int, unit: str, *, plural: bool) -> Rate:
    if count < 1 or plural != (count > 1):
        raise ValueError(f"{text} is not a rate: write rate(1 {unit}), or rate(2 {unit}s) and more")
    return Rate(timedelta(seconds=count * _UNITS[unit]))


@dataclass(frozen=True)
class Rate:
    period: timedelta

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        if after < anchor:
            return anchor
        return anchor + ((after - anchor) // self.period + 1) * self.period


@dataclass(frozen=True)
class At:
    instant: datetime

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        return self.instant if self.instant > after else None


@dataclass(frozen=True)
class Cron:
    """Wall-clock time in a zone: a time that daylight saving skips does not run, one that it repeats runs once."""

    fields: AwsCroniter
    zone: ZoneInfo

    @classmethod
    def of(cls, text: str, zone: ZoneInfo) -> Cron:
        fields = text.split()
        if len(fields) == 6:
            fields[4] = "SAT" if fields[4] == "L" else fields[4]  # the last day of the week; aws-croniter fails on L
            fields[5] = _spell_out_steps(fields[5])
        try:
            return cls(AwsCroniter(" ".join(fields)), zone)
        except ValueError as error:
            raise ValueError(f"cron({text}) is not a valid AWS cron expression: {error}") from error

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        for wall in self._walls(after.astimezone(self.zone).replace(tzinfo=UTC, fold=0)):
            instant = wall.replace(tzinfo=self.zone).astimezone(UTC)
            exists = instant.astimezone(self.zone).replace(tzinfo=UTC, fold=0) == wall
            if exists and instant > after:
                return instant
        return None

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        """Matching wall-clock times, with time zone UTC because aws-croniter accepts no other.

        aws-croniter gives up after ten steps, too early for example for the next 29 February that is a Monday, so the
        search is continued from each following year.
        """
        year = wall.year
        while year <= _LAST_YEAR:
            match = self.fields.get_next(wall)[0]
            if match:
                yield match
                wall, year = match, match.year
            else:
                wall, year = datetime(year, 12, 31, 23, 59, tzinfo=UTC), year + 1


def _spell_out_steps(years: str) -> str:
    """`2027/5` as a list of years: aws-croniter reads the step as a year and rejects it."""
    match = _YEAR_STEP.fullmatch(years)
    if not match:
        return years
    first = _FIRST_YEAR if match[1] == "*" else int(match[1])
    return ",".join(map(str, range(first, int(match[2] or _LAST_YEAR) + 1, int(match[3])))) or years
