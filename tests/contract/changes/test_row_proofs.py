"""That a row was, or was not, in a table at a point of the timeline: proven in one file, and checked offline."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from catalog.changes import RowProof, StateComputer
from catalog.changes.key_digest import key_digest
from catalog.changes.state_map import StateMaps
from catalog.changes.state_proof import Fork, OtherLeaf, Place, ShownRow
from catalog.core.errors import Invalid, LakeError, NotFound, Unverified
from catalog.lake import Lake
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.policy import Policy
from catalog.timeline import Leaf, RowState
from infra.local.server import ApiServer
from tests.contract.changes.test_expected_table import SCHEMA, rows
from tests.property.changes.forged_rows import mutated
from tests.worlds.changes import World, make_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def fresh(world: World) -> Lake:
    """A reader that is not behind."""
    world.caught_up()
    return world.another()


def made(world: World, table: str = "t", count: int = 300) -> str:
    name = world.name(table)
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.caught_up()
    world.lake.tables.insert(name, rows(*range(count)))
    world.caught_up()
    return name


def check(world: World, proof: RowProof | bytes, **expected: Any) -> Any:
    data = proof if isinstance(proof, bytes) else proof.write()
    return RowProof.read(data).verify([world.signer.verifier_key], **expected)


def test_a_row_is_proven_at_each_point_with_its_values_or_that_it_is_absent(world: World) -> None:
    tables, name = world.lake.tables, made(world)
    tables.upsert(name, rows(7, v="new"))
    world.caught_up()
    tables.delete(name, "id = 7")
    lake = fresh(world)
    found = [lake.prove_row(name, {"id": 7}, at) for at in (0, 1, 2, 3)]
    shown = [check(world, proof, table=name, key={"id": "7"}, index=at) for at, proof in enumerate(found)]
    assert [row.values for row in shown] == [None, {"id": 7, "v": "x"}, {"id": 7, "v": "new"}, None]
    assert [row.exists for row in shown] == [False, True, True, False]
    assert [row.index for row in shown] == [0, 1, 2, 3]
    hidden = lake.prove_row(name, {"id": 7}, 2, values=False)
    assert check(world, hidden, table=name, key={"id": 7}, index=2).values is None
    now = lake.prove_row(name, {"id": 8})
    head = lake.timeline.head().checkpoint
    assert check(world, now, table=name, key={"id": 8}, checkpoint=head).exists
    for key in ({"id": 10**6}, {"id": -1}):
        assert not check(world, lake.prove_row(name, key), table=name, key=key, index=3).exists


def test_a_time_is_proven_by_the_leaves_on_both_sides_of_it(world: World) -> None:
    tables, name = world.lake.tables, made(world)
    tables.delete(name, "id = 7")
    lake = fresh(world)
    times = [leaf.sequenced_ms for _, leaf in lake.timeline.commits_since(name)]
    for ms, exists in ((times[1], True), (times[2] - 1, True), (times[0], False)):
        proof = prove_at(lake, name, ms)
        assert check(world, proof, table=name, key={"id": 7}, time_ms=ms).exists == exists
        with pytest.raises(Unverified):
            check(world, proof, table=name, key={"id": 7}, time_ms=times[2])
        with pytest.raises(Unverified, match="the leaf after its point"):
            check(world, proof, table=name, key={"id": 7}, index=proof.index)
    late = prove_at(lake, name, times[2] + 5)
    with pytest.raises(Unverified, match="newest checkpoint"):
        check(world, late, table=name, key={"id": 7}, time_ms=times[2] + 5)
    head = lake.timeline.head().checkpoint
    assert not check(world, late, table=name, key={"id": 7}, time_ms=times[2] + 5, checkpoint=head).exists


def prove_at(lake: Lake, name: str, ms: int) -> RowProof:
    from catalog.changes import prove_row

    return prove_row(lake.timeline, name, {"id": 7}, time_ms=ms)


def test_composite_keys_of_many_types_are_proven(world: World) -> None:
    name = world.name()
    columns = {"region": "string", "day": "date", "id": "long", "note": "string"}
    world.lake.tables.create(name, columns, key=["day", "region", "id"])
    written = [{"region": "DE", "day": "2026-03-01", "id": at, "note": None} for at in range(5)]
    world.caught_up()
    world.lake.tables.insert(name, written)
    lake = fresh(world)
    key = {"id": 3, "region": "DE", "day": "2026-03-01"}
    shown = check(world, lake.prove_row(name, key), table=name, key=key, index=1)
    assert shown.exists and shown.values["region"] == "DE" and shown.values["note"] is None
    assert not check(
        world, lake.prove_row(name, key | {"region": "FR"}), table=name, key=key | {"region": "FR"}, index=1
    ).exists
    with pytest.raises(Invalid, match=r"the key of .* is \(region, day, id\), not \(id\)"):
        lake.prove_row(name, {"id": 3})
    with pytest.raises(Invalid, match="is not a value of type date"):
        lake.prove_row(name, key | {"day": "soon"})


def test_what_has_no_map_is_refused_with_the_reason(world: World) -> None:
    keyless, name = world.name("keyless"), made(world)
    world.lake.tables.create(keyless, SCHEMA)
    world.lake.tables.insert(keyless, rows(1))
    world.lake.tables.insert(name, rows(7))
    lake = fresh(world)
    with pytest.raises(Invalid, match="the table has no key"):
        lake.prove_row(keyless, {"id": 1})
    with pytest.raises(Invalid, match="two rows had one key"):
        lake.prove_row(name, {"id": 1})
    with pytest.raises(NotFound, match="no table"):
        lake.prove_row(world.name("none"), {"id": 1})
    with pytest.raises(NotFound, match="there is no index 99"):
        lake.prove_row(name, {"id": 1}, 99)
    with pytest.raises(Invalid, match="neither an index nor a time"):
        lake.prove_row(name, {"id": 1}, "snapshot:7")


def test_an_index_in_the_middle_of_a_batch_is_refused_with_what_to_ask_for(world: World) -> None:
    name = world.name()
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.lake.tables.insert(name, rows(1))
    world.lake.tables.insert(name, rows(2))
    lake = fresh(world)
    with pytest.raises(Invalid, match=r"in the middle of a batch.* ask for index 2"):
        lake.prove_row(name, {"id": 1}, 1)
    assert check(world, lake.prove_row(name, {"id": 2}, 2), table=name, key={"id": 2}, index=2).exists


def test_forged_proofs_are_refused(world: World) -> None:
    name, other = made(world, "a"), made(world, "b", 5)
    world.lake.tables.upsert(name, rows(7, v="new"))
    lake = fresh(world)
    expected = {"table": name, "key": {"id": 7}, "index": 4}
    right = lake.prove_row(name, {"id": 7}, 4)
    old = lake.prove_row(name, {"id": 7}, 1)
    absent = lake.prove_row(name, {"id": 777}, 4)
    beside = lake.prove_row(name, {"id": 8}, 4)
    elsewhere = lake.prove_row(other, {"id": 777}, 4)
    assert check(world, right, **expected).values == {"id": 7, "v": "new"}
    row, stale, next_row = right.rows.end, old.rows.end, beside.rows.end
    assert isinstance(row, ShownRow) and isinstance(stale, ShownRow) and isinstance(next_row, ShownRow)

    def ends(end: Any, proof: RowProof = right) -> RowProof:
        return replace(proof, rows=replace(proof.rows, end=end))

    siblings = right.rows.siblings
    wrong = {
        "of another table": (elsewhere, {}),
        "of another key": (beside, {}),
        "of another key, which is absent": (absent, {}),
        "a stale state": (old, {}),
        "a stale state in the new leaf": (replace(right, entry=old.entry, rows=old.rows), {}),
        "a hidden commit": (replace(old, index=4), {}),
        "another row": (ends(next_row), {}),
        "another row's values": (ends(replace(row, encoding=next_row.encoding)), {}),
        "values of a row that is absent": (ends(row, absent), {"key": {"id": 777}}),
        "an old value": (ends(replace(stale, salt=row.salt)), {}),
        "an old value that is not shown": (ends(replace(stale, salt=row.salt, encoding=b"")), {}),
        "a row of a second key": (ends(replace(row, position=1)), {}),
        "a path that is too short": (replace(right, rows=replace(right.rows, siblings=siblings[:-1])), {}),
        "a path that is too long": (replace(right, rows=replace(right.rows, siblings=(*siblings, bytes(32)))), {}),
        "a row that is there is absent": (ends(None), {}),
        "absent by another leaf": (replace(right, rows=absent.rows), {}),
        "absent by its own leaf": (ends(OtherLeaf(key_digest(right.description.key, [7]), row.commitment)), {}),
        "absent by a leaf elsewhere": (ends(OtherLeaf(bytes(32), row.commitment)), {}),
        "a fork for one key": (ends(Fork(Place((), row), Place((), None))), {}),
        "another description": (
            replace(absent, description=replace(absent.description, key=((1, "int"),))),
            {"key": {"id": 777}},
        ),
        "columns in disguise": (
            replace(right, description=replace(right.description, columns=((1, "id"), (2, "w")))),
            {},
        ),
        "another table's entry": (replace(right, entry=elsewhere.entry), {}),
        "the wrong uuid": (right, {"table_uuid": elsewhere.entry.table_uuid}),
        "the wrong index": (right, {"index": 3}),
        "a leaf that is not there": (replace(right, leaf=old.leaf), {}),
        "another log": (
            right,
            {"policy": Policy.parse(f"log {Ed25519Signer.generate('x').verifier_key}\nquorum none\n".encode())},
        ),
    }
    for what, (proof, changed) in wrong.items():
        with pytest.raises(Unverified):
            keys = [] if "policy" in changed else [world.signer.verifier_key]
            RowProof.read(proof.write()).verify(keys, **{**expected, **changed})
            pytest.fail(what)


def test_the_caller_says_against_which_checkpoint_and_as_of_what(world: World) -> None:
    name = made(world, "c")
    lake = fresh(world)
    proof = lake.prove_row(name, {"id": 7}, 1)
    newer = Checkpoint(lake.settings.origin, 99, bytes(32))
    with pytest.raises(Unverified, match="not the expected one"):
        check(world, proof, table=name, key={"id": 7}, index=1, checkpoint=newer)
    with pytest.raises(Invalid, match="as of what"):
        check(world, proof, table=name, key={"id": 7})


def test_no_mutation_of_a_proof_is_accepted(world: World) -> None:
    """Flips, cuts, swaps and splices of the bytes of proofs, decoded and not: none verifies for its claim."""
    name, seed = made(world), random.Random(18)
    world.lake.tables.upsert(name, rows(7, v="new"))
    lake = fresh(world)
    claims = [({"id": 7}, 2), ({"id": 7}, 1), ({"id": 9999}, 2)]
    files = [lake.prove_row(name, key, at).write() for key, at in claims]
    accepted = 0
    for _ in range(6000):
        which = seed.randrange(len(claims))
        forged = mutation(seed, files[which], files[(which + 1) % len(files)])
        key, at = claims[which]
        if forged == files[which]:
            continue
        try:
            check(world, forged, table=name, key=key, index=at)
        except Unverified:
            continue
        accepted += 1
    assert not accepted


def mutation(seed: random.Random, data: bytes, other: bytes) -> bytes:
    """Half of the mutations are of the file; the others of what is in `extra`, which is base64."""
    from catalog.merkle.proof import read, write

    if seed.random() < 0.5:
        return mutated(seed, data, other)
    file, source = read(data), read(other)
    try:
        return write(replace(file, extra=mutated(seed, file.extra, source.extra)))
    except ValueError:
        return mutated(seed, data, other)


def test_a_proof_is_small_and_read_strictly(world: World) -> None:
    name = made(world)
    data = fresh(world).prove_row(name, {"id": 7}).write()
    assert len(data) < 2048
    assert RowProof.read(data).write() == data
    for wrong in (data + b"\n", data.replace(b"index 1", b"index 01"), b"", data[:-1], data[1:]):
        with pytest.raises(Unverified):
            check(world, wrong, table=name, key={"id": 7}, index=1)


def test_a_signed_lie_about_rows_is_found_by_deep_verification_only(world: World) -> None:
    """Said in docs/spec: a proof shows what the lake signed; whether that is the table is for the auditor."""
    name = made(world)
    world.lake.sequencer._compute_state = Forgetful()
    world.lake.tables.insert(name, rows(1000))
    lake = fresh(world)
    proof = lake.prove_row(name, {"id": 1000}, values=False)
    assert not check(world, proof, table=name, key={"id": 1000}, index=2).exists
    assert [fault.what for fault in world.verify().faults] == ["its state_root is not that of the table's rows"]


class Forgetful(StateComputer):
    """Leaves new rows out of the map."""

    def __call__(self, table: Any, leaf: Leaf, *arguments: Any) -> RowState:
        class Deaf(StateMaps):
            def updated(self, before: Any, records: Any) -> Any:
                return before

        import catalog.changes.row_state as module

        right, module.StateMaps = module.StateMaps, Deaf  # type: ignore[misc]
        try:
            return super().__call__(table, leaf, *arguments)
        finally:
            module.StateMaps = right  # type: ignore[misc]


def test_a_lost_page_is_not_taken_for_an_absence(world: World) -> None:
    lake, name = world.lake, made(world)
    source: Any = fresh(world).timeline.source
    source.state_nodes = lambda hashes: [b""] * len(hashes)
    from catalog.changes import prove_row
    from catalog.timeline import Timeline

    with pytest.raises(LakeError, match="lost a state"):
        prove_row(Timeline(source, lake.settings.origin), name, {"id": 7})
