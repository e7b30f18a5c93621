"""Every bad input is refused with its place and reason, kept aside whole, and harms nothing beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from catalog.formats.limits import FormatLimits
from catalog.ingest.outcomes import Outcome
from infra.local.server import ApiServer
from tests.worlds.ingest import IngestWorld
from tests.worlds.ingest_cases import CASES, GOOD, IDS, RULE, Case, fixed


@dataclass
class Dropped:
    """All cases dropped, a batch for each set of limits, with a good file of every table in each batch."""

    world: IngestWorld
    outcomes: dict[Case, Outcome]
    good: list[Outcome]
    kept: dict[str, bytes]


@pytest.fixture(scope="module")
def dropped(server: ApiServer) -> Dropped:
    world = IngestWorld.create(server)
    world.rules.set(world.name("ruled"), RULE)
    outcomes, good = dict[Case, Outcome](), list[Outcome]()
    for limits in sorted({case.limits for case in CASES}, key=len):
        cases = [case for case in CASES if case.limits == limits]
        fine = [world.put(f"{table}/{name}", body) for table, (name, body) in GOOD.items()] if not limits else []
        files = [world.put(f"{case.table}/{case.name}", case.body) for case in cases]
        # The good ones first: they decide what a table holds that nobody has described.
        results = world.ingest(limits=FormatLimits(**dict(limits))).run([*fine, *files])
        good += results[: len(fine)]
        outcomes |= dict(zip(cases, results[len(fine) :], strict=True))
    return Dropped(world, outcomes, good, world.objects("quarantine/"))


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60 and len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_it_is_refused_with_its_place_and_reason(dropped: Dropped, case: Case) -> None:
    outcome = dropped.outcomes[case]
    assert outcome.status == "quarantined", outcome.error
    assert outcome.error is not None and case.reason in outcome.error.message
    report: dict[str, Any] = json.loads(dropped.kept[str(outcome.report)])
    assert (report["position"], report["source"]) == (case.position, outcome.landed.key)
    assert case.reason in report["reason"] and dropped.kept[report["kept_as"]] == case.body


def test_what_lies_beside_goes_in_and_nothing_else(dropped: Dropped) -> None:
    assert {outcome.status for outcome in dropped.good} == {"committed"}
    for table in GOOD:
        assert dropped.world.tables().scan(dropped.world.name(table)).num_rows == 1, table


def test_mended_and_dropped_again_they_all_go_in(dropped: Dropped) -> None:
    world = dropped.world
    wanted = [(case, body) for n, case in enumerate(CASES, 100) if (body := fixed(case, n)) and "late" not in case.name]
    outcomes = world.ingest().run([world.put(f"{case.table}/{case.name}", body) for case, body in wanted])
    assert [outcome.error for outcome in outcomes if outcome.status != "committed"] == []
    numbers = {n for n, case in enumerate(CASES, 100) if case.table == "ruled"}
    assert {value for (value,) in world.rows("ruled", "a")} == {1, *numbers}
