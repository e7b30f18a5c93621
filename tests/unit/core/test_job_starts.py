"""When a scheduled job is started: never for nothing, never late by more than a week."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.core.job_starts import RUNNING, WEEK_MS, LastStart, reason_to_start, state_of

NOW = 10 * WEEK_MS
LAST = LastStart(state="a", job_run_id="r", at_ms=NOW - 1000)


def test_an_empty_lake_starts_nothing() -> None:
    assert reason_to_start(state_of({}, ()), None, None, NOW) is None
    assert reason_to_start(state_of({"gold.t": "m1"}, ("bronze",)), None, None, NOW) is None


def test_the_first_run_and_a_change_start_it() -> None:
    assert reason_to_start("a", None, None, NOW)
    assert reason_to_start("b", LAST, "SUCCESS", NOW)
    assert reason_to_start("a", LAST, "SUCCESS", NOW) is None


@pytest.mark.parametrize("ended", ["FAILED", "CANCELLED"])
def test_a_run_that_did_not_end_well_is_repeated(ended: str) -> None:
    assert reason_to_start("a", LAST, ended, NOW)


@pytest.mark.parametrize("state", RUNNING)
def test_no_second_run_beside_one_that_runs(state: str) -> None:
    assert reason_to_start("b", LAST, state, NOW) is None


@given(age=st.integers(min_value=0, max_value=4 * WEEK_MS))
def test_it_runs_once_a_week_in_any_case(age: int) -> None:
    last = LastStart("a", "r", NOW - age)
    assert (reason_to_start("a", last, "SUCCESS", NOW) is not None) == (age >= WEEK_MS)


def test_the_state_is_of_the_tables_that_the_job_reads() -> None:
    before = {"bronze.notes": "m1", "gold.insights": "m1"}
    derived, landed = {**before, "gold.insights": "m2"}, {**before, "bronze.notes": "m2"}
    assert state_of(before, ("bronze",)) == state_of(derived, ("bronze",)) != state_of(landed, ("bronze",))
    assert len({state_of(tables, ()) for tables in (before, derived, landed)}) == 3
