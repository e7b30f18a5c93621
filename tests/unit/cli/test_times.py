"""Times as people write them: each spelling means one time, and what may mean two is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import Invalid
from catalog.core.point_in_time import NamedSnapshot, parse_point_in_time
from cli.options import parse_cutoff
from cli.times import CLOCK_DIFFERENCE, resolve_point
from tests.unit.cli.test_command import ALL
from tests.worlds.cli import run

NOW = datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC)
MEANINGS = {
    "now": "2026-03-01T12:30:15Z",
    "today": "2026-03-01T00:00:00Z",
    "yesterday": "2026-02-28T00:00:00Z",
    "Yesterday": "2026-02-28T00:00:00Z",
    "30 seconds ago": "2026-03-01T12:29:45Z",
    "1 minute ago": "2026-03-01T12:29:15Z",
    "2 hours ago": "2026-03-01T10:30:15Z",
    "1 day ago": "2026-02-28T12:30:15Z",
    "4 weeks ago": "2026-02-01T12:30:15Z",
}
UNCHANGED = ["42", "2026-03-01", "2026-02-28T23:59:59+01:00", "monday", "snapshot:7", "sequence:-1", "", "2026-13-01"]
REFUSED = [
    "tomorrow",
    "2 months ago",
    "1 year ago",
    "an hour ago",
    "-2 hours ago",
    "1.5 hours ago",
    "2h ago",
    "2  hours ago",
    "٢ hours ago",
    "a while ago",
    "999999 weeks ago",
]


@pytest.mark.parametrize("text", MEANINGS)
def test_a_relative_time_becomes_a_time_of_the_grammar(text: str) -> None:
    assert resolve_point(text, NOW) == MEANINGS[text]
    assert parse_cutoff(text, NOW) == datetime.fromisoformat(MEANINGS[text])


@pytest.mark.parametrize("text", UNCHANGED)
def test_everything_else_is_left_to_the_grammar(text: str) -> None:
    assert resolve_point(text, NOW) == text


@pytest.mark.parametrize("text", REFUSED)
def test_what_may_mean_two_times_is_refused_with_spellings_that_work(text: str) -> None:
    with pytest.raises(Invalid, match=r"yesterday, '2 hours ago'.*2026-03-01T12:00:00Z"):
        resolve_point(text, NOW)


@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=10**5)))
def test_the_future_begins_after_what_clocks_may_differ(later: timedelta) -> None:
    edge = NOW + CLOCK_DIFFERENCE
    assert resolve_point(edge.isoformat(), NOW) == edge.isoformat()
    with pytest.raises(Invalid, match=r"in the future: it is 2026-03-01T12:30:15Z now"):
        resolve_point((edge + later).isoformat(), NOW)


@pytest.mark.parametrize("text", [*MEANINGS, *REFUSED])
def test_no_snapshot_may_have_such_a_name(text: str) -> None:
    with pytest.raises(Invalid, match="relative to the present"):
        NamedSnapshot(text)
    with pytest.raises(Invalid, match="relative to the present"):
        parse_point_in_time(text)  # SQL and the API have no such times


def test_names_that_only_contain_the_words_stay_names() -> None:
    for name in ("before-now", "today-2", "yesterday's", "chicago", "ago"):
        assert parse_point_in_time(name) == NamedSnapshot(name)


POINTS = {
    f"{' '.join(path)} {option.name}": option
    for path, command in ALL.items()
    for option in command.params
    if "a timeline index" in (getattr(option, "help", None) or "")
}


@pytest.mark.parametrize(
    "words",
    [
        ("query", "select 1", "--as-of", "2999-01-01"),
        ("table", "rollback", "silver.tides", "2999-01-01T00:00:00Z"),
        ("changes", "silver.tides", "--since", "2999-01-01"),
        ("api", "changes", "silver.tides", "--until", "2999-01-01"),
    ],
    ids=" ".join,
)
def test_a_command_refuses_the_future_before_it_opens_a_lake(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert isinstance(result.exception, Invalid)
    assert "in the future" in result.exception.message


def test_every_option_that_takes_a_point_in_time_takes_these() -> None:
    assert len(POINTS) > 10
    assert [
        name for name, option in POINTS.items() if option.callback is None or "'2 hours ago'" not in option.help
    ] == []
