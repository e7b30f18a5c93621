"""Whoever has the key can sign any leaves. One that does not follow from those before is a fault, and is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.store import StoreLocation, StoreWriter
from catalog.timeline.verify.faults import FaultCollector
from catalog.timeline.verify.replay import Replay
from tests.worlds.table_map import map_of, root_of

A, B, C = (f"6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c{end}" for end in ("0a", "0b", "0c"))
NAMES = {A: "sales.a", B: "sales.b", C: "sales.c"}


def leaf(uuid: str, sequence: int, operation: str, snapshot: int | None, parent: int | None, **more: object) -> Leaf:
    facts: dict[str, object] = {
        "table": NAMES[uuid],
        "table_uuid": uuid,
        "snapshot_id": snapshot,
        "parent_id": parent,
        "sequence": sequence,
        "committed_ms": 0,
        "sequenced_ms": 0,
        "operation": operation,
        "ref": "main",
        "schema_sha256": None,
        "metadata_sha256": None,
    }
    return Leaf(**{**facts, **more})  # type: ignore[arg-type]


def history() -> list[list[Leaf]]:
    """Batches: two tables, a tag, a branch, a rollback, a drop with another table under the name, a rename."""
    return [
        [leaf(A, 0, "create", None, None), leaf(A, 1, "append", 1, None), leaf(B, 0, "create", None, None)],
        [leaf(A, 2, "append", 2, 1), leaf(B, 1, "append", 1, None)],
        [leaf(A, 3, "tag", 1, None, ref="v1"), leaf(A, 4, "append", 9, 2, ref="try")],
        [leaf(A, 5, "rollback", 1, 2), leaf(A, 6, "schema", 1, 1), leaf(A, 7, "metadata", 1, 1)],
        [leaf(B, 2, "drop", None, 1), leaf(C, 0, "create", None, None, table="sales.b")],
        [leaf(A, 8, "rename", 1, 1, table="sales.d"), leaf(C, 1, "overwrite", 5, None, table="sales.b")],
        [
            leaf(A, 9, "transaction", 4, 1, table="sales.d", content_count=1),
            leaf(C, 2, "transaction", 6, 5, table="sales.b"),
        ],
        [leaf(B, 3, "rename", 1, 1, table="sales.e"), leaf(A, 10, "reset", 7, 4, table="sales.d")],
    ]


def complete(batches: Sequence[Sequence[Leaf]]) -> list[Leaf]:
    """The leaves as a sequencer would sign them: each batch with its time, and the root of the map in its last leaf."""
    made = list[Leaf]()
    for ms, batch in enumerate(batches, 1):
        made += [replace(one, sequenced_ms=ms) for one in batch]
        records = [(index, json.loads(one.encode())) for index, one in enumerate(made)]
        made[-1] = replace(made[-1], map_root=root_of(map_of(records)).hex())
    return made


@pytest.fixture(scope="module")
def db() -> Iterator[StoreWriter]:
    writer = StoreWriter.open(StoreLocation.in_memory())
    yield writer
    writer.close()


def faults(db: StoreWriter, leaves: Sequence[Leaf]) -> list[tuple[int | None, str]]:
    collector = FaultCollector()
    replay = Replay(db, 0, collector)
    for index, one in enumerate(leaves):
        replay.add(index, one)
    return [(fault.index, fault.what) for fault in collector.faults()]


def test_an_honest_history_has_no_fault(db: StoreWriter) -> None:
    assert faults(db, complete(history())) == []


def changed(at: int, **fields: object) -> list[list[Leaf]]:
    batches, left = history(), at
    for batch in batches:
        if left < len(batch):
            batch[left] = replace(batch[left], **fields)  # type: ignore[arg-type]
            break
        left -= len(batch)
    return batches


FORGERIES = {
    "two leaves of one sequence": (changed(3, sequence=1), 3, "sequence is 1"),
    "a gap in the sequence": (changed(3, sequence=3), 3, "sequence is 3"),
    "a metadata leaf that moves main": (changed(9, snapshot_id=2), 9, "operation metadata, but moves main"),
    "a schema leaf that moves main": (changed(8, snapshot_id=2), 8, "operation schema, but moves main"),
    "a rename that moves main": (changed(12, snapshot_id=2), 12, "operation rename, but moves main"),
    "a drop that states a snapshot": (changed(10, snapshot_id=1), 10, "operation drop, but moves main"),
    "a parent nobody showed": (changed(3, parent_id=77), 3, "parent_id is 77, but main was at 1"),
    "a parentless snapshot": (changed(3, parent_id=None), 3, "parent_id is None, but main was at 1"),
    "a first snapshot with a parent": (changed(1, parent_id=5), 1, "parent_id is 5, but main was at None"),
    "an append on MAIN": (changed(3, ref="MAIN"), 3, "looks like it"),
    "an append on a wide main": (changed(3, ref="ｍain"), 3, "looks like it"),
    "a metadata leaf of another reference": (changed(9, ref="v1"), 9, "its operation is metadata, but its reference"),
    "a tag that is main": (changed(5, ref="main"), 5, "its operation is tag, but its reference is main"),
    "a transaction on no reference": (changed(15, ref=None), 15, "its operation is transaction, but its reference"),
    "an operation that does not exist": (changed(3, operation="Append"), 3, "'Append', which does not exist"),
    "a digest that is none": (changed(3, content_root="AB" * 32), 3, "content_root is not a SHA-256"),
    "changes that nobody attests": (changed(3, changes_root="00" * 32, changes_count=1), 3, "only some of"),
    "a negative count": (changed(3, content_count=-1), 3, "content_count is negative"),
    "a reference with an unseen character": (changed(3, ref="main\u200b"), 3, "mistaken for main"),
    "a commit of no snapshot": (changed(3, snapshot_id=None), 3, "has no snapshot"),
    "a table under another's name": (changed(13, table="sales.d"), 13, "another table sales.d"),
    "a name that changes without a rename": (changed(3, table="sales.z"), 3, "has another name"),
    "a transaction that is interrupted": (changed(14, content_count=3), 15, "interrupts"),
    "a transaction that never ends": (changed(15, content_count=1), 15, "in the middle of a transaction"),
}


@pytest.mark.parametrize("kind", FORGERIES)
def test_a_leaf_that_does_not_follow_is_named(db: StoreWriter, kind: str) -> None:
    batches, index, what = FORGERIES[kind]
    assert any(at == index and what in said for at, said in faults(db, complete(batches))), kind


def test_a_map_that_is_not_that_of_the_leaves_is_named(db: StoreWriter) -> None:
    leaves = complete(history())
    ends = [index for index, one in enumerate(leaves) if one.map_root is not None]
    for end in ends:
        lie = [*leaves[:end], replace(leaves[end], map_root="00" * 32), *leaves[end + 1 :]]
        assert [index for index, _ in faults(db, lie)] == [end]
        silent = [*leaves[:end], replace(leaves[end], map_root=None), *leaves[end + 1 :]]
        if end != ends[-1]:  # the last is checked by `finish`
            assert (end, "it ends a batch, but has no map_root") in faults(db, silent)


def test_a_map_root_in_the_middle_of_a_batch_is_named(db: StoreWriter) -> None:
    leaves = complete(history())
    leaves[0] = replace(leaves[0], map_root=complete([[leaves[0]]])[0].map_root)
    assert faults(db, leaves) == [(0, "it has a map_root, but is not the last leaf of its batch")]


def test_the_last_leaf_of_all_has_a_map(db: StoreWriter) -> None:
    collector = FaultCollector()
    replay = Replay(db, 0, collector)
    replay.add(0, leaf(A, 0, "create", None, None, sequenced_ms=1))
    replay.finish(is_newest=False)
    assert [fault.what for fault in collector.faults()] == ["it ends a batch, but has no map_root"]
