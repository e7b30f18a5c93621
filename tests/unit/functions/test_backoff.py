"""How long a refused message waits: an outage is survived, and what can never be served is given up soon."""

from __future__ import annotations

from catalog.core.errors import Conflict, Invalid, Unavailable
from functions.sqs_batch import HEARTBEAT_S, VISIBILITY_S, backoff_s
from infra.stacks.queues import RECEIVES_BEFORE_DEAD_LETTER

RECOVERY_S = 30
"""What docs/guide/operate.md promises."""


def test_a_message_survives_two_hours_of_outage_and_is_back_in_seconds_after_a_short_one() -> None:
    waits = [backoff_s(Unavailable("away"), receives) for receives in range(1, RECEIVES_BEFORE_DEAD_LETTER)]
    assert waits[:4] == [1, 2, 4, 8] and waits == sorted(waits)
    assert sum(waits) >= 2 * 3600 and max(waits) <= 43_200
    assert backoff_s(Conflict("raced"), 10_000) == max(waits)


def test_a_message_that_can_never_be_served_is_not_kept_waiting() -> None:
    assert backoff_s(Invalid("no message"), 1) == backoff_s(Invalid("no message"), 19) == 0


def test_a_killed_process_is_noticed_in_time_and_a_slow_one_is_not_taken_for_dead() -> None:
    assert VISIBILITY_S < RECOVERY_S
    assert 3 * HEARTBEAT_S < VISIBILITY_S
