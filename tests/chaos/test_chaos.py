"""Real processes, real SIGKILL, for half a minute; `make chaos` for six."""

from __future__ import annotations

from tests.chaos.run import run


def test_nothing_acknowledged_is_lost_doubled_or_hidden_when_functions_are_killed() -> None:
    outcome = run(seed=1, seconds=30)
    assert outcome.wrong == [], str(outcome)
    assert outcome.kills + outcome.freezes >= 2 and all(outcome.acknowledged.values()), str(outcome)
