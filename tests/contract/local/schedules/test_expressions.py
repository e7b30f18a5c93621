"""Schedule expressions mean what AWS means, also where aws-croniter does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from infra.local.eventbridge import expressions

START = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
MINUTE = timedelta(minutes=1)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# Expected instants were read off a calendar, not computed.
CRONS = [
    ("0/15 * * * ? *", "2026-01-01T00:15"),
    ("5,35 14 * * ? *", "2026-01-01T14:05"),
    ("0 8-10/2 1 1/3 ? *", "2026-01-01T08:00"),
    ("0 12 ? * MON-FRI *", "2026-01-01T12:00"),
    ("0 12 ? * 2 *", "2026-01-05T12:00"),  # 1 is Sunday
    ("0 12 ? * sun *", "2026-01-04T12:00"),
    ("0 22 ? * FRI-MON *", "2026-01-02T22:00"),  # a range may wrap
    ("0 12 ? * L *", "2026-01-03T12:00"),  # the last day of the week
    ("0 12 ? * 6L *", "2026-01-30T12:00"),  # the month's last Friday
    ("0 12 ? * FRI#2 *", "2026-01-09T12:00"),
    ("0 0 L * ? *", "2026-01-31T00:00"),
    ("0 0 L 2 ? *", "2026-02-28T00:00"),
    ("0 0 L-3 * ? *", "2026-01-28T00:00"),
    ("0 0 31W 1 ? *", "2026-01-30T00:00"),  # the 31st is a Saturday
    ("0 0 1W 8 ? *", "2026-08-03T00:00"),  # 1 August is a Saturday, and July is another month
    ("0 0 29 2 ? *", "2028-02-29T00:00"),
    ("0 0 ? 2 MON#5 *", "2044-02-29T00:00"),
    ("0 0 1 JAN ? 2030", "2030-01-01T00:00"),
    ("0 0 1 1 ? 2027/5", "2027-01-01T00:00"),
    ("0 0 1 1 ? 2020", None),
    ("0 0 30 2 ? *", None),
]


@pytest.mark.parametrize(("fields", "expected"), CRONS)
def test_cron_means_what_aws_means(fields: str, expected: str | None) -> None:
    fires_at = expressions.parse(f"cron({fields})").next(START, START)
    assert fires_at == (instant(expected) if expected else None)


@pytest.mark.parametrize(
    "text",
    [
        "cron(0 3 * * *)",
        "cron(0 3 * * * *)",
        "cron(0 3 ? * ? *)",
        "cron(60 3 * * ? *)",
        "cron(0 24 * * ? *)",
        "cron(0 3 ? * 8 *)",
        "cron(0 3 ? * MON#6 *)",
        "cron(0 3 LW * ? *)",  # in aws-croniter's grammar, but not in AWS's documentation
        "cron(0 3 * * ? 1969)",
        "rate(0 minutes)",
        "rate(1 minutes)",
        "rate(5 minute)",
        "rate(5 seconds)",
        "at(2026-01-01)",
        "every day",
        "",
    ],
)
def test_an_expression_aws_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        expressions.parse(text)


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("cron(0 12 * * ? *)", "2026-01-01T00:00", "2026-01-01T10:00"),
        ("cron(0 12 * * ? *)", "2026-07-01T00:00", "2026-07-01T09:00"),
        ("cron(30 3 * * ? *)", "2026-03-28T12:00", "2026-03-30T00:30"),  # 03:30 on the 29th does not exist
        ("cron(30 3 * * ? *)", "2026-10-24T12:00", "2026-10-25T00:30"),  # 03:30 on the 25th comes twice
        ("cron(30 3 * * ? *)", "2026-10-25T00:30", "2026-10-26T01:30"),
        ("cron(30 3 * * ? *)", "2026-10-25T01:10", "2026-10-26T01:30"),  # within the repeated hour
        ("at(2026-06-01T12:00:00)", "2026-01-01T00:00", "2026-06-01T09:00"),
    ],
)
def test_wall_clock_expressions_follow_their_zone_over_the_change_of_hour(text: str, after: str, expected: str) -> None:
    fires_at = expressions.parse(text, "Europe/Helsinki").next(instant(after), START)
    assert fires_at == instant(expected)


@pytest.mark.parametrize(("text", "minutes"), [("rate(1 minute)", 1), ("rate(2 hours)", 120), ("rate(1 day)", 1440)])
def test_a_rate_counts_from_its_anchor(text: str, minutes: int) -> None:
    rate = expressions.parse(text)
    assert rate.next(START - MINUTE, START) == START
    assert rate.next(START, START) == START + minutes * MINUTE
    assert rate.next(START + timedelta(seconds=1), START) == START + minutes * MINUTE
