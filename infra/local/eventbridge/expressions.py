"""Schedule expressions of EventBridge and its Scheduler: rate(...), cron(...), at(...). Pure; knows no clock.

Cron fields are read by aws-croniter; what it gets wrong against AWS is mended here and listed in the tests.
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
        """The first instant later than `after`; None when there is no more. A rate counts from `anchor`."""
        ...


def parse(text: str, timezone: str = "UTC") -> Expression:
    """Reads an expression; `timezone` is for cron and at. Raises ValueError where AWS refuses it."""
    zone = ZoneInfo(timezone)
    if found := _RATE.fullmatch(text):
        return _rate(text, int(found[1]), found[2], plural=bool(found[3]))
    if found := _CRON.fullmatch(text):
        return Cron.of(found[1], zone)
    if found := _AT.fullmatch(text):
        return At(datetime.fromisoformat(found[1]).replace(tzinfo=zone).astimezone(UTC))
    raise ValueError(f"{text} is not like rate(5 minutes), cron(0 3 * * ? *) or at(2026-01-31T12:00:00)")


def _rate(text: str, count: int, unit: str, *, plural: bool) -> Rate:
    if count < 1 or plural != (count > 1):
        raise ValueError(f"{text} is not a rate: 1 takes the singular, more the plural, and 0 nothing")
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
    """Wall-clock time in a zone: an hour that spring skips is skipped, one that autumn repeats runs once."""

    fields: AwsCroniter
    zone: ZoneInfo

    @classmethod
    def of(cls, text: str, zone: ZoneInfo) -> Cron:
        fields = text.split()
        if len(fields) == 6:
            fields[4] = "SAT" if fields[4] == "L" else fields[4]  # the week's last day; aws-croniter never finds it
            fields[5] = _spell_out_steps(fields[5])
        try:
            return cls(AwsCroniter(" ".join(fields)), zone)
        except ValueError as error:
            raise ValueError(f"cron({text}) is not a cron expression of AWS: {error}") from error

    def next(self, after: datetime, anchor: datetime) -> datetime | None:
        for wall in self._walls(after.astimezone(self.zone).replace(tzinfo=UTC, fold=0)):
            instant = wall.replace(tzinfo=self.zone).astimezone(UTC)
            exists = instant.astimezone(self.zone).replace(tzinfo=UTC, fold=0) == wall
            if exists and instant > after:
                return instant
        return None

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        """Matching wall-clock times, marked as UTC because aws-croniter takes nothing else.

        It gives up after ten steps, which is short of the next 29 February that is a Monday: so it is asked
        again from each following year.
        """
        year = wall.year
        while year <= _LAST_YEAR:
            found = self.fields.get_next(wall)[0]
            if found:
                yield found
                wall, year = found, found.year
            else:
                wall, year = datetime(year, 12, 31, 23, 59, tzinfo=UTC), year + 1


def _spell_out_steps(years: str) -> str:
    """`2027/5` as a list of years: aws-croniter takes a step for a year and refuses it."""
    found = _YEAR_STEP.fullmatch(years)
    if not found:
        return years
    first = _FIRST_YEAR if found[1] == "*" else int(found[1])
    return ",".join(map(str, range(first, int(found[2] or _LAST_YEAR) + 1, int(found[3])))) or years
