"""What a verification does not ask for, and how it goes on from an earlier one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.core.errors import Unverified
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.tiles import Tile
from catalog.timeline.log import store_keys
from catalog.timeline.log.publisher import PublishedTiles
from catalog.timeline.log.store import StoreReader, StoreWriter
from catalog.timeline.reader.timeline import Timeline
from catalog.timeline.verify.faults import BoundedPool, Fault, FaultCollector
from catalog.timeline.verify.published import PublishedCopy
from catalog.timeline.verify.verifier import Verifier
from tests.contract.timeline.test_publish import leaves
from tests.contract.timeline.test_tampering import SCHEMA, named, tables, verify
from tests.worlds.lake import ORIGIN
from tests.worlds.timeline import ROWS, World


def test_what_expired_or_was_dropped_may_be_gone(world: World) -> None:
    made, name, other = tables(world), world.name("t"), world.name("u")
    made.create(name, SCHEMA, key=["id"])
    made.create(other, SCHEMA)
    for word in ("a", "b", "c"):
        made.upsert(name, pa.table({"id": pa.array([1], pa.int64()), "word": [word]}))
    made.insert(other, ROWS)
    sequencer = world.sequencer()
    sequencer.catch_up([name, other])
    assert verify(world, deep=True).faults == ()

    # Expired, and its files deleted, before and after the sequencer saw it.
    expired = made.expire(name, older_than=2**53, retain_last=1)
    assert expired.objects
    assert verify(world, deep=True).faults == ()
    sequencer.catch_up([name])
    report = verify(world, deep=True)
    assert report.faults == () and report.uncovered == 0

    made.drop(other, purge=True)
    assert verify(world, deep=True).faults == ()
    sequencer.catch_up([other])
    assert verify(world, deep=True).faults == ()


def test_a_clone_is_compared_with_the_commits_of_its_source(world: World) -> None:
    made, name, copy = tables(world), world.name("t"), world.name("copy")
    made.create(name, SCHEMA)
    made.insert(name, ROWS)
    made.clone(name, copy)
    world.sequencer().catch_up([name, copy])
    report = verify(world, deep=True)
    assert (report.faults, report.uncovered) == ((), 0)


def test_only_pinned_keys_count_and_each_in_its_time(world: World) -> None:
    """The lake's own list of keys proves nothing to an auditor. A retired key that was stolen signs nothing new."""
    old, new, stranger = world.signer, Ed25519Signer.generate(ORIGIN), Ed25519Signer.generate(ORIGIN)
    world.sequencer().append(leaves(0, 3))
    world.sequencer(signer=new).append(leaves(3, 4))

    def faults(*signers: Ed25519Signer) -> list[str]:
        reader = StoreReader.open(world.place())
        try:
            keys = [signer.verifier_key for signer in signers]
            report = Verifier(reader, world.client("s3"), world.bucket, world.catalog("auditor"), ORIGIN, keys).verify()
            return [fault.what for fault in report.faults]
        finally:
            reader.close()

    assert faults(old, new) == []
    assert faults(old, new, stranger) == []
    for pinned in ((old,), (new,), (stranger,), (old, stranger)):
        assert any("does not verify" in what or "another log" in what for what in faults(*pinned)), pinned
    head = Timeline(world.stored().source, ORIGIN).head().checkpoint
    writer = StoreWriter.open(world.place())
    writer.write([(store_keys.checkpoint(7), head.sign([old]))])  # the same tree, by the retired key
    writer.close()
    assert any("does not verify" in what for what in faults(old, new))


def test_going_on_from_a_verified_checkpoint_reads_only_what_is_new(world: World) -> None:
    sequencer = world.sequencer()
    for batch in range(5):
        sequencer.append(leaves(batch * 600, 600))
    first = verify(world)
    assert (first.faults, first.leaves, first.checkpoints) == ((), 3000, 5)
    reader = StoreReader.open(world.place())
    verifier = Verifier(reader, world.client("s3", "auditor"), world.bucket, world.catalog("auditor"), ORIGIN)
    verifier.verify(since=first.note)
    mark = world.server.log.mark()
    again = verifier.verify(since=first.note)
    asked = [request for request in world.server.log.since(mark) if request.principal == "auditor"]
    assert (again.faults, again.leaves, again.since, again.size) == ((), 0, 3000, 3000)
    assert len(asked) <= 6  # the checkpoint, the keys, and the last tile of each level and bundle
    reader.close()

    sequencer.append(leaves(3000, 300))
    more = verify(world, since=first.note)
    assert (more.faults, more.leaves, more.checkpoints, more.since) == ((), 300, 1, 3000)
    writer = StoreWriter.open(world.place())
    writer.write([(store_keys.table(leaves(0, 1)[0].table_uuid, 3100), store_keys.pack(1))])
    writer.close()
    assert named(verify(world, since=first.note))[0][1] == 3100
    assert Fault("o", "w", 3, "t", 5).as_dict()["snapshot_id"] == "5"


def test_a_partial_tile_that_was_pruned_meanwhile_is_looked_for_in_the_full_one(world: World) -> None:
    sequencer = world.sequencer()
    sequencer.append(leaves(0, 100))
    before = world.objects("timeline/tile/")
    sequencer.append(leaves(100, 200))
    sequencer.compact()
    assert not before.keys() & world.objects("timeline/tile/").keys()
    findings = FaultCollector()
    with BoundedPool(2) as crew:
        copy = PublishedCopy(PublishedTiles(world.client("s3"), world.bucket), 100, crew, findings)
        for key, contents in before.items():
            copy.compare(Tile.parse(key.removeprefix("timeline/")), contents)
    assert (findings.faults(), copy.tiles) == ((), 2)
    with BoundedPool(2) as crew:
        copy = PublishedCopy(PublishedTiles(world.client("s3"), world.bucket), 100, crew, findings)
        for key, contents in before.items():
            copy.compare(Tile.parse(key.removeprefix("timeline/")), contents[:-1] + b"?")
    assert {fault.index for fault in findings.faults()} == {99}


def test_a_wrong_hash_in_memory_makes_one_proof_fail_and_is_then_forgotten(world: World) -> None:
    world.sequencer().append(leaves(0, 300))
    reader = world.published()
    right = reader.proof(7)
    for ask in (lambda: reader.proof(7), lambda: reader.commit(7)):
        reader._hashes = dict.fromkeys(reader._hashes, b"\x00" * 32)
        with pytest.raises(Unverified):
            ask()
        ask()
    assert reader.proof(7) == right


def test_a_file_from_before_the_first_look_is_counted_and_no_fault(world: World) -> None:
    made, name = tables(world), world.name("t")
    made.create(name, SCHEMA)
    made.insert(name, ROWS)
    made.insert(name, ROWS)
    made.expire(name, older_than=2**53, retain_last=1)
    world.sequencer().catch_up([name])
    report = verify(world, deep=True)
    # The first insert's manifest and, behind it, its data file: the snapshot that added them has no leaf.
    assert (report.faults, report.uncovered) == ((), 1)


def test_damage_to_a_manifest_list_hides_no_other_damage_of_its_commit(world: World) -> None:
    made, name = tables(world), world.name("t")
    made.create(name, SCHEMA)
    made.insert(name, ROWS)
    world.sequencer().catch_up([name])
    paths = [key for key in world.objects("tables/") if key.endswith((".parquet", ".avro"))]
    s3 = world.client("s3", "tamperer")
    for key in paths:
        s3.put_object(Bucket=world.bucket, Key=key, Body=b"rubbish")
    report = verify(world, deep=True)
    assert sorted(named(report)) == sorted((f"s3://{world.bucket}/{key}", 1) for key in paths) and len(paths) == 3
