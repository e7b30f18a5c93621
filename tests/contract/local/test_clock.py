"""The clock that tests move, and the agenda that runs by it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from infra.local.clock import Clock, ManualClock, SystemClock
from infra.local.eventbridge.agenda import Agenda

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Waiting:
    """A thread inside `wait_until`, and what it came back with."""

    def __init__(self, clock: Clock, instant: datetime) -> None:
        self.stop = threading.Event()
        self.outcome: bool | None = None
        self._thread = threading.Thread(target=self._wait, args=(clock, instant), daemon=True)
        self._thread.start()

    def _wait(self, clock: Clock, instant: datetime) -> None:
        self.outcome = clock.wait_until(instant, self.stop)

    def result(self) -> bool | None:
        self._thread.join(timeout=5)
        return self.outcome


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(START)
    assert clock.now() == START
    assert clock.advance(MINUTE) == START + MINUTE == clock.now()
    assert clock.set(START + 5 * MINUTE) == clock.now()


def test_a_manual_clock_tells_utc_whatever_it_was_given() -> None:
    eastern = datetime.fromisoformat("2026-01-01T02:00:00+02:00")
    assert ManualClock(eastern).now().isoformat() == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize("wrong", [START - MINUTE, datetime(2026, 1, 2)], ids=["backwards", "no zone"])
def test_a_manual_clock_refuses_a_time_that_cannot_be(wrong: datetime) -> None:
    with pytest.raises(ValueError, match="clock"):
        ManualClock(START).set(wrong)


def test_a_move_wakes_exactly_those_whose_instant_has_come() -> None:
    clock = ManualClock(START)
    early, late = Waiting(clock, START + MINUTE), Waiting(clock, START + 3 * MINUTE)
    clock.advance(2 * MINUTE)
    assert early.result() is True
    assert late.outcome is None
    clock.advance(MINUTE)
    assert late.result() is True


@pytest.mark.parametrize("clock", [ManualClock(START), SystemClock()], ids=["manual", "system"])
def test_a_set_event_ends_a_wait_that_would_last(clock: Clock) -> None:
    waiting = Waiting(clock, clock.now() + timedelta(days=365))
    waiting.stop.set()
    assert waiting.result() is False


def test_the_system_clock_waits_for_its_instant() -> None:
    clock = SystemClock()
    instant = clock.now() + timedelta(milliseconds=30)
    assert clock.wait_until(instant, threading.Event())
    assert clock.now() >= instant
    assert clock.now().utcoffset() == timedelta(0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def agenda(clock: ManualClock) -> Iterator[Agenda]:
    agenda = Agenda(clock)
    agenda.start()
    yield agenda
    agenda.stop()


def test_the_agenda_runs_in_the_order_of_instants_not_of_booking(clock: ManualClock, agenda: Agenda) -> None:
    done: list[str] = []
    for name, minutes in [("c", 3), ("a", 1), ("b", 2), ("later", 9)]:
        agenda.at(START + minutes * MINUTE, lambda name=name: done.append(name))  # type: ignore[misc]
    agenda.wait_until_idle()
    assert done == []
    clock.advance(5 * MINUTE)
    agenda.wait_until_idle()
    assert done == ["a", "b", "c"]


def test_what_is_booked_inside_a_jump_runs_in_its_place(clock: ManualClock, agenda: Agenda) -> None:
    done: list[int] = []

    def tick(minute: int) -> None:
        done.append(minute)
        agenda.at(START + (minute + 2) * MINUTE, lambda: tick(minute + 2))

    agenda.at(START + 1 * MINUTE, lambda: tick(1))
    agenda.at(START + 4 * MINUTE, lambda: done.append(4))
    clock.advance(6 * MINUTE)
    agenda.wait_until_idle()
    assert done == [1, 3, 4, 5]


def test_an_action_that_raises_does_not_stop_the_next(clock: ManualClock, agenda: Agenda) -> None:
    done: list[str] = []
    agenda.at(START + MINUTE, lambda: done.append(str(1 / 0)))
    agenda.at(START + 2 * MINUTE, lambda: done.append("next"))
    clock.advance(2 * MINUTE)
    agenda.wait_until_idle()
    assert done == ["next"]


def test_settling_does_not_pretend(clock: ManualClock, agenda: Agenda) -> None:
    release = threading.Event()
    agenda.at(START, lambda: release.wait(5) and None)
    with pytest.raises(TimeoutError):
        agenda.wait_until_idle(timeout=0.05)
    release.set()
    agenda.wait_until_idle()
