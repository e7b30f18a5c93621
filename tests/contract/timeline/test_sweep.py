"""A sweep: finds every change without a message, costs nothing for a table that did not change, and may end early."""

from __future__ import annotations

import pytest

from catalog.iceberg import TRANSACTION_PREFIX
from catalog.timeline.sequencer import sweep
from tests.worlds.timeline import ROWS, SEQUENCER, World


def requests(world: World, mark: int) -> list[str]:
    made = world.server.log.since(mark, lambda request: request.principal == SEQUENCER)
    return [f"{request.action} {request.path}" for request in made]


def test_a_table_that_did_not_change_is_listed_and_not_read(world: World) -> None:
    for name in ("a", "b", "c"):
        world.table(name).append(ROWS)
    sequencer = world.sequencer()
    assert len(sequencer.sweep().leaves) >= 6
    mark = world.server.log.mark()
    assert sequencer.sweep().leaves == []
    made = requests(world, mark)
    assert not [request for request in made if "GetTable /" in request or "metadata.json" in request], made
    assert not [request for request in made if request.startswith(("PUT", "DELETE"))], made
    assert sum(request.startswith("GetTables") for request in made) >= 1


def test_what_changed_without_a_message_is_found_and_nothing_else_is_read(world: World) -> None:
    tables = {name: world.table(name) for name in ("a", "b", "c")}
    sequencer = world.sequencer()
    sequencer.sweep()
    tables["b"].append(ROWS)
    world.catalog().drop_table(world.name("c"))
    mark = world.server.log.mark()
    swept = sequencer.sweep()
    found = [(leaf.table, leaf.operation) for _, leaf in swept.leaves if leaf.table.startswith(world.namespace)]
    assert sorted(found) == [(world.name("b"), "append"), (world.name("c"), "drop")]
    assert not [request for request in requests(world, mark) if f"/{world.namespace}/a/" in request]


def test_a_table_with_an_open_transaction_is_inspected_by_every_sweep(world: World) -> None:
    """Its writer may have crashed: the result names it until somebody has completed or aborted the transaction."""
    table = world.table("a")
    world.table("b")
    table.append(ROWS)  # a branch begins at a snapshot
    table.append(ROWS, branch=f"{TRANSACTION_PREFIX}unfinished")
    sequencer = world.sequencer()
    for _ in range(3):
        assert sequencer.sweep().unfinished == [world.name("a")]


def test_a_sweep_that_is_short_of_time_has_made_progress(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEPT_TOGETHER", 1)
    for name in ("a", "b", "c"):
        world.table(name)
    sequencer, leaves = world.sequencer(), 0
    for _ in range(50):  # other worlds of this server have tables as well
        swept = sequencer.sweep(lambda: True)
        leaves += len(swept.leaves)
        if swept.complete:
            break
    assert swept.complete and leaves >= 3
    assert world.published().head().checkpoint.size == leaves
