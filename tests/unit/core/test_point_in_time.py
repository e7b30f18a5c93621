"""The grammar of a point in time: what each spelling means, what is refused and with which help."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.errors import Invalid
from catalog.core.point_in_time import (
    FeedPosition,
    Moment,
    NamedSnapshot,
    PointInTime,
    SnapshotId,
    TableSequence,
    TimelineIndex,
    check_name,
    feed_position,
    parse_feed_position,
    parse_point_in_time,
    point_in_time,
)

NOON = Moment(datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("0", TimelineIndex(0)),
        ("42", TimelineIndex(42)),
        ("999999999999", TimelineIndex(999_999_999_999)),
        ("2026-03-01T12:00:00Z", NOON),
        ("2026-03-01t12:00:00z", NOON),
        ("2026-03-01 12:00:00Z", NOON),
        ("2026-03-01T12:00Z", NOON),
        ("2026-03-01T12:00:00.000+00:00", NOON),
        ("2026-03-01T17:30:00+05:30", NOON),
        ("2026-03-01T04:00-08:00", NOON),
        ("2026-03-01T12:00:00.25Z", Moment(datetime(2026, 3, 1, 12, microsecond=250_000, tzinfo=UTC))),
        ("2026-03-01T12:00:00.123456789Z", Moment(datetime(2026, 3, 1, 12, microsecond=123_456, tzinfo=UTC))),
        ("2026-03-01", Moment(datetime(2026, 3, 1, tzinfo=UTC))),
        ("snapshot:0", SnapshotId(0)),
        ("snapshot:9223372036854775807", SnapshotId(2**63 - 1)),
        ("before-repair", NamedSnapshot("before-repair")),
        ("end of Q1", NamedSnapshot("end of Q1")),
        ("v1.5", NamedSnapshot("v1.5")),
        ("2026-q1", NamedSnapshot("2026-q1")),
        ("2026-03-31-close", NamedSnapshot("2026-03-31-close")),
        ("ebb_été", NamedSnapshot("ebb_été")),
        ("main", NamedSnapshot("main")),
    ],
)
def test_a_spelling_means_one_point(text: str, point: PointInTime) -> None:
    assert parse_point_in_time(text) == point
    assert parse_feed_position(text) == point
    assert point_in_time(text) == point
    assert parse_point_in_time(str(point)) == point


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1772366400000", "write snapshot:1772366400000 for a snapshot's id, or a time such as 2026-03-01T12:00:00Z"),
        ("5551234567890123456", "write snapshot:5551234567890123456"),
        ("9" * 500, "too many digits"),
        ("snapshot:" + "9" * 500, "too many digits"),
        ("snapshot:9223372036854775808", "63 bits"),
        ("2026-03-01T12:00:00", "write 2026-03-01T12:00:00Z for UTC"),
        ("2026-03-01 12:00", "write 2026-03-01T12:00Z for UTC"),
        ("2026-02-30", "is not a time"),
        ("2026-03-01T25:00Z", "is not a time"),
        ("0001-01-01T00:00+01:00", "is not a time"),
        ("2026-03", "neither a time nor a name"),
        ("2026-3-1", "neither a time nor a name"),
        ("2026-03-01T12", "neither a time nor a name"),
        ("2026-03-01T12:00:00+0100", "neither a time nor a name"),
        ("20260301T120000Z", "neither a time nor a name"),
        ("2026-W09-7", "neither a time nor a name"),
        ("@42", "write 42 "),
        ("@monday", "no @ in front"),
        ("", "42 for a timeline index"),
        ("  ", "42 for a timeline index"),
        (" 42", "write '42'"),
        ("monday ", "write 'monday'"),
        ("-1", "neither a timeline index nor a name"),
        ("+42", "neither a timeline index nor a name"),
        ("042", "neither a timeline index nor a name"),
        ("1_000", "neither a timeline index nor a name"),
        ("4.2", "neither a timeline index nor a name"),
        ("1e6", "neither a timeline index nor a name"),
        ("٤٢", "neither a timeline index nor a name"),
        ("mon\nday", "cannot be printed"),
        ("mon\x00day", "cannot be printed"),
        ("mon\u202eday", "cannot be printed"),
        ("snapshot:", "write snapshot:<number>"),
        ("snapshot:abc", "write snapshot:<number>"),
        ("snapshot:-5", "write snapshot:<number>"),
        ("snapshot:07", "write snapshot:<number>"),
        ("Snapshot:7", "write snapshot:<number>"),
        ("sequence:7", "only a table's change feed"),
        ("n" * 257, "too long"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_with_what_to_write(text: str, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_point_in_time(text)
    assert told in refused.value.message


@pytest.mark.parametrize(
    "name", ["42", "@42", "2026-03-01", "2026-03-01T12:00:00Z", "snapshot:7", "sequence:7", "-1", ""]
)
def test_nothing_gets_a_name_that_means_something_else(name: str) -> None:
    for refuse in (check_name, NamedSnapshot):
        with pytest.raises(Invalid):
            refuse(name)


def test_a_change_feed_also_counts_the_tables_own_leaves() -> None:
    assert parse_feed_position("sequence:7") == TableSequence(7)
    assert parse_feed_position("sequence:-1") == TableSequence(-1)
    assert parse_feed_position("7") == feed_position(7) == TimelineIndex(7)
    assert feed_position(TableSequence(7)) == TableSequence(7)
    for text in ("sequence:", "sequence:-2", "sequence:x", "sequence:" + "9" * 30):
        with pytest.raises(Invalid):
            parse_feed_position(text)


def test_python_callers_pass_what_they_have() -> None:
    assert point_in_time(42) == TimelineIndex(42)
    assert point_in_time(NOON.time.astimezone(timezone(timedelta(hours=2)))) == NOON
    assert point_in_time(SnapshotId(7)) == SnapshotId(7)
    for value in (True, -1, 10**12, 4.2, None, datetime(2026, 3, 1), TableSequence(7)):
        with pytest.raises(Invalid):
            point_in_time(value)  # type: ignore[arg-type]


def test_a_moment_counts_whole_milliseconds_exactly() -> None:
    """As a float, 1772366400.001 s is a little less than that millisecond."""
    for ms in (1_772_366_400_001, 1_772_366_400_999, -1):
        assert Moment(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).ms == ms


_TIMES = st.datetimes(
    min_value=datetime(1, 1, 2),
    max_value=datetime(9999, 12, 30),
    timezones=st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)


@st.composite
def _names(draw: st.DrawFn) -> FeedPosition:
    text = draw(st.text(max_size=12) | st.from_regex(r"[0-9T:.+@-]{1,12}", fullmatch=True))
    try:
        return parse_feed_position(text)
    except Invalid:
        return NamedSnapshot("kept")


@given(
    st.integers(0, 10**12 - 1).map(TimelineIndex)
    | _TIMES.map(Moment)
    | st.integers(0, 2**63 - 1).map(SnapshotId)
    | st.integers(-1, 10**12 - 1).map(TableSequence)
    | _names()
)
def test_every_point_is_spelled_so_that_it_is_read_back(point: FeedPosition) -> None:
    assert parse_feed_position(str(point)) == point
    if not isinstance(point, TableSequence):
        assert parse_point_in_time(str(point)) == point
