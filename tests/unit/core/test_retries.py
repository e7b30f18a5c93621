"""Work that lost a race is done again, a bounded number of times, and never after any other error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.core.errors import Conflict, Invalid
from catalog.core.retries import Retry

QUICK = Retry(attempts=3, base_s=0)


def losing(times: int, error: Exception) -> tuple[Callable[[], int], list[int]]:
    calls = list[int]()

    def attempt() -> int:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error
        return len(calls)

    return attempt, calls


def test_the_first_attempt_that_wins_is_the_answer() -> None:
    attempt, calls = losing(2, Conflict("lost"))
    assert QUICK.run(attempt) == 3
    assert len(calls) == 3


def test_the_last_conflict_is_raised() -> None:
    attempt, calls = losing(9, Conflict("lost"))
    with pytest.raises(Conflict):
        QUICK.run(attempt)
    assert len(calls) == 3


def test_any_other_error_is_raised_at_once() -> None:
    attempt, calls = losing(1, Invalid("wrong"))
    with pytest.raises(Invalid):
        QUICK.run(attempt)
    assert len(calls) == 1


def test_waits_grow_up_to_the_cap() -> None:
    waits = list(Retry(attempts=50, base_s=0.02, cap_s=1.0).waits())
    assert len(waits) == 50
    assert all(0 <= wait <= min(1.0, 0.02 * 2**number) for number, wait in enumerate(waits))
