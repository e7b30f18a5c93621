"""A feed is checked against the table that its reader expects, and each change set goes on from the one before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from catalog.changes import (
    ChangeSet,
    FeedVerifier,
    collapse,
    from_ipc,
    from_json_lines,
    to_ipc,
    to_json_lines,
    verify,
    verify_feed,
)
from catalog.core.errors import Conflict, Invalid, NotFound, Unverified
from catalog.core.events import TableMoved
from catalog.core.point_in_time import TableSequence
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world

SCHEMA = {"id": "long", "v": "string"}


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def rows(*numbers: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "v": v} for number in numbers]


def made(world: World, table: str) -> str:
    name = world.name(table)
    world.lake.tables.create(name, SCHEMA, key=["id"])
    for number in range(1, 8):
        world.lake.tables.insert(name, rows(number))
    return name


def feed_of(world: World, name: str) -> list[ChangeSet]:
    world.caught_up()
    return list(world.another().changes(name))


def test_another_tables_feed_does_not_pass_for_this_ones(world: World) -> None:
    a, b = made(world, "a"), made(world, "b")
    of_a, of_b = feed_of(world, a), feed_of(world, b)
    key, uuid = world.signer.verifier_key, of_a[0].commit.table_uuid
    assert verify_feed(of_a, key, table=a) == verify_feed(of_a, key, table=a, table_uuid=uuid) == 7
    assert verify_feed(of_a, key, table_uuid=uuid) == 7
    renamed = [replace(one, commit=replace(one.commit, table=a)) for one in of_b]
    for lie in (of_b, renamed, of_a[:3] + of_b[3:]):
        for pinned in ({"table": a}, {"table_uuid": uuid}, {"table": a, "table_uuid": uuid}):
            with pytest.raises(Unverified):
                verify_feed(lie, key, **pinned)
    with pytest.raises(Unverified, match="name"):
        verify(renamed[0], key)
    with pytest.raises(Invalid, match="which table"):
        verify_feed(of_a, key)


def test_a_renamed_table_has_one_feed_under_the_name_it_has_last(world: World) -> None:
    old, new = made(world, "old"), world.name("new")
    world.caught_up()
    world.lake.iceberg.rename_table(old, new)
    world.lake.request(TableMoved(table=new))
    world.caught_up()
    world.lake.tables.insert(new, rows(50))
    feed, key = feed_of(world, new), world.signer.verifier_key
    assert [one.commit.table for one in feed] == [old] * 7 + [new]
    assert verify_feed(feed, key, table=new) == feed[-1].commit.sequence
    assert verify_feed(feed[:-1], key, table=old) == 7
    for part, name in ((feed, old), (feed[:-1], new)):
        with pytest.raises(Unverified, match=old):
            verify_feed(part, key, table=name)


def _without_parent(world: World, name: str) -> None:
    """What a writer does that names no parent: the table's newest snapshot, as if it were its first."""
    s3, glue, bucket = world.lake.s3, world.lake.client("glue"), world.settings.bucket
    database, _, short = name.partition(".")
    entry = glue.get_table(DatabaseName=database, Name=short)["Table"]
    key = entry["Parameters"]["metadata_location"].removeprefix(f"s3://{bucket}/")
    metadata = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    for snapshot in metadata["snapshots"]:
        if snapshot["snapshot-id"] == metadata["current-snapshot-id"]:
            del snapshot["parent-snapshot-id"]
    other = f"{key.rpartition('/')[0]}/00099-{uuid4()}.metadata.json"
    s3.put_object(Bucket=bucket, Key=other, Body=json.dumps(metadata).encode())
    wanted = {name: entry[name] for name in ("Name", "TableType", "StorageDescriptor")}
    parameters = entry["Parameters"] | {"metadata_location": f"s3://{bucket}/{other}"}
    glue.update_table(DatabaseName=database, TableInput=wanted | {"Parameters": parameters})


@pytest.mark.parametrize("staged", [False, True], ids=["not staged", "staged"])
def test_a_snapshot_without_a_parent_is_compared_with_what_main_showed_before(world: World, staged: bool) -> None:
    name = world.name()
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.lake.tables.insert(name, rows(*range(60)))
    world.caught_up()
    before = world.lake.iceberg.load_table(name).current_snapshot().snapshot_id  # type: ignore[union-attr]
    world.lake.tables.delete(name, "id >= 10")
    _without_parent(world, name)
    snapshot = world.another().iceberg.load_table(name).current_snapshot()
    assert snapshot is not None and snapshot.parent_snapshot_id is None
    uuid = str(world.lake.tables.load(name).metadata.table_uuid)
    key = f"attest/{uuid}/{snapshot.snapshot_id}"
    if not staged:
        world.lake.s3.delete_object(Bucket=world.settings.bucket, Key=key)
    feed = feed_of(world, name)
    assert verify_feed(feed, world.signer.verifier_key, table=name) == feed[-1].commit.sequence
    assert (feed[-1].commit.parent_id, feed[-1].count) == (before, 50)
    assert {row["op"] for row in feed[-1].changes.to_pylist()} == {"DELETE"}
    assert len(collapse(feed)) == 10
    *_, (_, commit), (_, move) = world.public().commits_since(name)
    assert (commit.ref, commit.parent_id, commit.operation) == (None, None, "overwrite")
    assert (move.ref, move.parent_id, move.operation, move.attested) == ("main", before, "reset", "lake")
    # What was staged is the changes from another parent than the snapshot names: the sequencer computed them again.
    assert world.verify().faults == ()


def test_a_change_set_that_does_not_go_on_from_the_one_before_is_refused(world: World) -> None:
    """Timelines from before that rule hold leaves that were compared with the writer's parent, or with nothing."""
    import rfc8785

    from catalog.merkle import Checkpoint, ProofFile, proof
    from catalog.merkle.tree import CompactRange, inclusion_proof, leaf_hash

    feed = feed_of(world, made(world, "t"))
    leaves = [json.loads(one.evidence.leaf) for one in feed if one.evidence]
    created = json.loads(feed[0].evidence.passed[0][0])  # type: ignore[union-attr]
    leaves[4]["parent_id"] = leaves[2]["snapshot_id"]
    entries = [rfc8785.dumps(leaf) for leaf in (created, *leaves)]
    tree, nodes = CompactRange().extend([leaf_hash(entry) for entry in entries])
    hashes = {(level, at): value for level, at, value in nodes}
    note = Checkpoint(world.signer.name, len(entries), tree.root()).sign([world.signer])

    def shown(index: int) -> tuple[bytes, bytes]:
        path = inclusion_proof(index, len(entries), lambda wanted: [hashes[coordinate] for coordinate in wanted])
        return entries[index], proof.write(ProofFile(index, tuple(path), note))

    forged = [
        replace(
            one, commit=replace(one.commit, parent_id=int(leaf["parent_id"]) if leaf["parent_id"] else None)
        ).with_evidence(*shown(index), index, [shown(0)] if index == 1 else [])
        for index, (one, leaf) in enumerate(zip(feed, leaves, strict=True), 1)
    ]
    key, uuid = world.signer.verifier_key, feed[0].commit.table_uuid
    assert verify_feed(forged[:4], key, table_uuid=uuid) == 4
    with pytest.raises(Unverified, match="compared with"):
        verify_feed(forged, key, table_uuid=uuid)


def test_a_feed_stays_in_one_log(world: World) -> None:
    """Two keys are trusted, each for its own log: a feed does not begin in one and go on in the other."""
    from catalog.merkle import Checkpoint, ProofFile, proof
    from catalog.merkle.note import Ed25519Signer
    from catalog.merkle.tree import CompactRange, inclusion_proof, leaf_hash

    name = made(world, "t")
    feed = feed_of(world, name)
    other = Ed25519Signer.generate("elsewhere.test/log")
    entries = [one.evidence.leaf for one in feed if one.evidence]
    tree, nodes = CompactRange().extend([leaf_hash(entry) for entry in (b"0", *entries)])
    hashes = {(level, at): value for level, at, value in nodes}
    note = Checkpoint(other.name, 8, tree.root()).sign([other])
    path = inclusion_proof(7, 8, lambda wanted: [hashes[coordinate] for coordinate in wanted])
    last = feed[-1].with_evidence(entries[-1], proof.write(ProofFile(7, tuple(path), note)), 7, [])
    keys = [world.signer.verifier_key, other.verifier_key]
    verify(last, keys)
    with pytest.raises(Unverified, match="elsewhere"):
        verify_feed([*feed[:-1], last], keys, table=name)


def test_a_feed_that_was_read_back_says_the_name_that_its_leaf_has(world: World) -> None:
    feed = feed_of(world, made(world, "t"))
    lines = list(to_json_lines(feed[0]))
    head = json.loads(lines[0])
    head["commit"]["table"] = "silver.tides"
    with pytest.raises(Unverified, match=r"silver\.tides"):
        verify(from_json_lines([json.dumps(head), *lines[1:]]), world.signer.verifier_key)


def test_a_feed_does_not_go_on_into_a_table_made_anew(world: World) -> None:
    """Both were called the same, and the second has more leaves than the reader had seen of the first."""
    name = made(world, "t")
    first = feed_of(world, name)
    uuid, sequence = first[1].commit.table_uuid, first[1].commit.sequence
    world.lake.tables.drop(name)
    made(world, "t")
    world.caught_up()
    reader = world.another()
    assert first[0].evidence is not None
    second = list(reader.changes(name, extends=first[0].evidence.checkpoint_size))
    assert second[0].commit.table_uuid != uuid
    with pytest.raises(Conflict, match="made anew"):
        reader.changes(name, TableSequence(sequence or 0), table_uuid=uuid)
    for expected in ({"table": name}, {"table_uuid": uuid}):
        with pytest.raises(Unverified, match="uuid"):
            verify_feed([*first, *second], world.signer.verifier_key, **expected)


def test_a_later_feed_proves_that_its_tree_extends_the_one_before(world: World) -> None:
    name = made(world, "t")
    verifier = FeedVerifier([world.signer.verifier_key], table=name)
    for changes in feed_of(world, name):
        verifier.add(changes)
    state = verifier.state()
    assert state is not None
    world.lake.tables.insert(name, rows(99))
    world.caught_up()
    after, seen = TableSequence(state.sequence), state.checkpoint.size
    (unproven,) = world.another().changes(name, after)
    (proven,) = world.another().changes(name, after, table_uuid=state.table_uuid, extends=seen)
    with pytest.raises(Unverified, match="extends"):
        FeedVerifier([world.signer.verifier_key], resume=state).add(unproven)
    for sent in (proven, from_ipc(to_ipc(proven)), from_json_lines(list(to_json_lines(proven)))):
        resumed = FeedVerifier([world.signer.verifier_key], resume=state)
        resumed.add(sent)
        assert resumed.finish() == state.sequence + 1


def test_a_checkpoint_that_never_was_is_not_found_instead_of_awaited(world: World) -> None:
    """`unavailable` would have a caller, or somebody who guesses, repeat it for ever."""
    name = made(world, "t")
    world.caught_up()
    with pytest.raises(NotFound, match="no checkpoint of 18272"):
        list(world.another().changes(name, extends=18272))
