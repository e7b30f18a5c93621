"""The sequencer stopped before and after every request it makes to the world, then run again.

A run is a list of requests. For each of them the world goes away just before it, or just after it with its
answer lost, and stays away for the rest of the run, as it does for a process that dies there. The next
sequencer finds a world that works. Then: the same tree as if nothing had happened, nothing twice, nothing
missing, all of it public.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest

from catalog.core.errors import LakeError, Unavailable
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.sequencer.sequencer import Sequencer
from infra.local.faults import disconnect, refuse
from infra.local.requests import Request
from tests.worlds.timeline import ROWS, SEQUENCER, World


def by_sequencer(request: Request) -> bool:
    return request.principal == SEQUENCER


@contextmanager
def dies_before(world: World, step: int) -> Iterator[None]:
    with world.server.faults.fault(by_sequencer, refuse, skip=step):
        yield


@contextmanager
def dies_after(world: World, step: int) -> Iterator[None]:
    with ExitStack() as stack:
        faults = world.server.faults
        stack.enter_context(faults.fault(by_sequencer, disconnect, when="after", skip=step, times=1))
        stack.enter_context(faults.fault(by_sequencer, refuse, skip=step))
        yield


@contextmanager
def stumbles_at(world: World, step: int) -> Iterator[None]:
    """One request fails and all others work: what a client's own retry may or may not mend."""
    with world.server.faults.fault(by_sequencer, disconnect, when="after", skip=step, times=1):
        yield


def assert_whole(world: World, table: Any, commits: int) -> None:
    """`commits`: how many leaves the table should have after its first, which says that it was made."""
    table.refresh()
    public, stored = world.published(), world.stored()
    head = public.head()
    size = head.checkpoint.size
    entries = [public.source.entry(index, size) for index in range(size)]
    assert size == 1 + commits
    assert root(map(leaf_hash, entries)) == head.checkpoint.root
    assert stored.head() == head
    assert [stored.source.entry(index, size) for index in range(size)] == entries
    leaves = [Leaf.decode(entry) for entry in entries]
    assert [leaf.sequence for leaf in leaves] == list(range(size))
    snapshots = [leaf.snapshot_id for leaf in leaves if leaf.is_snapshot]
    assert snapshots == [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    times = [leaf.sequenced_ms for leaf in leaves]
    assert times == sorted(times)
    announced = {i for event in world.ear.heard for i in range(event.first_index, event.last_index + 1)}
    assert announced == set(range(size))
    public.proof(size - 1)


def opened(sequencer: Sequencer) -> None:
    """On a loaded machine even a store that answers may be late."""
    for _ in range(10):
        with suppress(Unavailable):
            sequencer.catch_up([])
            return
    raise AssertionError("the store does not open")


def run_through(world: World, commit: Any, stop: Any, warm: bool, until: Any = None) -> int:
    """Stops a run at each of its requests in turn, up to the first that `until` is true of."""
    table = world.table()
    world.sequencer().catch_up([world.name("t")])
    commits = 0

    def sequencer() -> Sequencer:
        # Opening an answering store takes a fraction of this; one that is away costs all of it, at every step.
        # A victim that gives up too early is stopped there, which is what is tried here anyway.
        made = world.sequencer(timeout_s=5 if warm else 0.8)
        if warm:
            opened(made)
        return made

    for _ in range(2):
        commit(table)
        commits += 1
        clean = sequencer()
        mark = world.server.log.mark()
        clean.catch_up([world.name("t")])
        requests = world.server.log.since(mark, by_sequencer)
        clean.close()
    steps = next((n for n, request in enumerate(requests) if until and until(request)), len(requests))
    for step in range(steps):
        commit(table)
        commits += 1
        victim, acknowledged = sequencer(), None
        with stop(world, step):
            try:
                outcome = victim.catch_up([world.name("t")])
                acknowledged = None if outcome.failed else outcome.size
            except LakeError:
                pass
        second = world.sequencer()
        completed = second.catch_up([world.name("t")])
        assert not completed.failed, f"step {step}: {completed.failed}"
        size = completed.size
        assert acknowledged in (None, size), f"step {step}: an acknowledged run left nothing to do"
        assert_whole(world, table, commits)
        second.close()
        victim.close()
    return steps


STOPS = pytest.mark.parametrize("stop", [dies_before, dies_after, stumbles_at])


@STOPS
def test_a_warm_run_stopped_at_any_request_is_completed_by_the_next(world: World, stop: Any) -> None:
    assert run_through(world, lambda table: table.append(ROWS), stop, warm=True) > 12


@STOPS
def test_an_opening_stopped_at_any_request_is_completed_by_the_next(world: World, stop: Any) -> None:
    def commit(table: Any) -> None:
        table.transaction().set_properties(note=uuid4().hex).commit_transaction()

    steps = run_through(world, commit, stop, warm=False, until=lambda request: request.service == "glue")
    assert steps > 12
