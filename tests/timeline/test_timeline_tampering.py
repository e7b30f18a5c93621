"""One wrong byte anywhere is found and named, with its commit; and nothing that may be gone is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from catalog.errors import Unverified
from catalog.merkle.checkpoint import open_checkpoint
from catalog.merkle.tree import CompactRange, consistency_proof, leaf_hash
from catalog.merkle.verify import ProofError, verify_consistency
from catalog.tables.manager import Tables
from catalog.timeline import keys
from catalog.timeline.attest import key_of
from catalog.timeline.store import Reader, Writer
from catalog.timeline.verification import Report, Verifier
from infra.local.server import ApiServer
from tests.timeline.conftest import ORIGIN, ROWS, SEQUENCER, World

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])


def tables(world: World) -> Tables:
    return Tables(world.iceberg())


def verify(world: World, **options: Any) -> Report:
    reader = Reader.open(world.place())
    try:
        catalog = world.iceberg("auditor")
        s3 = world.client("s3", "auditor")
        return Verifier(reader, s3, world.bucket, catalog, ORIGIN, [world.signer.verifier_key]).verify(**options)
    finally:
        reader.close()


@dataclass
class Lake:
    """A merge-on-read table with two inserts, a delete and a tag: leaves 0 to 4."""

    world: World
    leaves: list[Any]

    def commit(self, operation: str, which: int = 0) -> tuple[int, Any]:
        return [found for found in self.leaves if found[1].operation == operation][which]

    def attested(self, index: int, ending: str) -> str:
        leaf = self.leaves[index][1]
        key = key_of(leaf.table_uuid, leaf.snapshot_id)
        lines = self.world.objects(key)[key].decode().splitlines()[1:]
        paths = [line.split('"')[1] for line in lines]
        return next(path for path in paths if path.endswith(ending))

    def change(self, key: str, change: Callable[[bytes], bytes]) -> Callable[[], None]:
        s3 = self.world.client("s3", "tamperer")
        key = key.removeprefix(f"s3://{self.world.bucket}/")
        before = s3.get_object(Bucket=self.world.bucket, Key=key)["Body"].read()
        s3.put_object(Bucket=self.world.bucket, Key=key, Body=change(before))
        return lambda: s3.put_object(Bucket=self.world.bucket, Key=key, Body=before)


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    monkey = pytest.MonkeyPatch()
    monkey.setenv("AWS_ACCESS_KEY_ID", SEQUENCER)
    monkey.setenv("AWS_SECRET_ACCESS_KEY", "x")
    suffix = uuid4().hex[:12]
    world = World(server, f"lake-{suffix}", f"n{suffix}")
    server.endpoint.client("s3", "person").create_bucket(Bucket=world.bucket)
    name = world.name("t")
    made = tables(world)
    made.create(name, SCHEMA, mode="mor", key=["id"])
    made.insert(name, ROWS)
    sequencer = world.sequencer()
    sequencer.catch_up([name])
    made.insert(name, pa.table({"id": pa.array([7, 8, 9], pa.int64()), "word": ["x", "y", "z"]}))
    made.delete(name, "id = 8")
    sequencer.catch_up([name])
    yield Lake(world, list(world.published().commits_since(name)))
    sequencer.close()
    monkey.undo()


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :]


def named(report: Report) -> list[tuple[str, int | None]]:
    return [(fault.object, fault.index) for fault in report.faults]


def test_a_lake_that_nobody_touched_has_no_fault(lake: Lake) -> None:
    report = verify(lake.world, deep=True)
    assert report.faults == ()
    assert [leaf.operation for _, leaf in lake.leaves][:3] == ["create", "append", "append"]
    assert (report.leaves, report.size, report.published_size) == (len(lake.leaves),) * 3
    # three attestations, three manifest lists, three manifests, three files, one metadata file
    assert (report.objects, report.uncovered, report.checkpoints) == (13, 0, 2)
    assert report.check() is report


def data_objects(lake: Lake) -> dict[str, tuple[str, int]]:
    """Kind of object -> one of it, and the commit that added it."""
    prefix = f"s3://{lake.world.bucket}/"
    first, last = lake.commit("append")[0], lake.leaves[-1][0]
    table = lake.world.iceberg().load_table(lake.world.name("t"))
    leaf = lake.leaves[first][1]
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    return {
        "metadata": (table.metadata_location, last),
        "manifest list": (by_id[leaf.snapshot_id].manifest_list, first),
        "manifest": (lake.attested(first, ".avro"), first),
        "data file": (lake.attested(first, ".parquet"), first),
        "delete file": (lake.attested(last, ".parquet"), last),
        "attestation": (prefix + key_of(leaf.table_uuid, leaf.snapshot_id), first),
    }


@pytest.mark.parametrize("kind", ["metadata", "manifest list", "manifest", "data file", "delete file", "attestation"])
def test_a_flipped_byte_in_an_object_is_named_with_the_commit_that_added_it(lake: Lake, kind: str) -> None:
    path, index = data_objects(lake)[kind]
    restore = lake.change(path, flip)
    try:
        report = verify(lake.world, deep=True)
        assert verify(lake.world).faults == ()
    finally:
        restore()
    assert set(named(report)) == {(path, index)}
    leaf = lake.leaves[index][1]
    assert {(fault.table, fault.snapshot_id) for fault in report.faults} == {(leaf.table, leaf.snapshot_id)}
    with pytest.raises(Unverified, match=f"{path}.*commit {index} of {leaf.table}") as refusal:
        report.check()
    assert refusal.value.subject == path


@pytest.mark.parametrize("kind", ["manifest list", "manifest", "data file", "delete file", "attestation"])
def test_an_object_that_is_gone_or_cut_is_named(lake: Lake, kind: str) -> None:
    path, index = data_objects(lake)[kind]
    s3 = lake.world.client("s3", "tamperer")
    restore = lake.change(path, lambda data: data[:-1])
    try:
        assert set(named(verify(lake.world, deep=True))) == {(path, index)}
        s3.delete_object(Bucket=lake.world.bucket, Key=path.removeprefix(f"s3://{lake.world.bucket}/"))
        report = verify(lake.world, deep=True)
    finally:
        restore()
    assert set(named(report)) == {(path, index)} and report.faults[0].what == "it is gone"


def test_several_faults_are_all_named(lake: Lake) -> None:
    chosen = [data_objects(lake)[kind] for kind in ("manifest", "data file", "delete file", "metadata")]
    restores = [lake.change(path, flip) for path, _ in chosen]
    try:
        assert set(named(verify(lake.world, deep=True))) == set(chosen)
    finally:
        for restore in restores:
            restore()


PUBLISHED = ["timeline/tile/0/000.p/4", "timeline/tile/entries/000.p/4", "timeline/checkpoint", "timeline/keys"]


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_flipped_byte_in_the_published_log_is_named(lake: Lake, key: str) -> None:
    restore = lake.change(key, flip)
    try:
        report = verify(lake.world)
    finally:
        restore()
    assert {fault.object for fault in report.faults} == {key}
    if "/tile/" in key:
        assert [fault.index for fault in report.faults] == [2]
        s3 = lake.world.client("s3", "tamperer")
        s3.delete_object(Bucket=lake.world.bucket, Key=key)
        try:
            assert named(verify(lake.world)) == [(key, 0)]
        finally:
            restore()


def rows(lake: Lake) -> dict[str, tuple[bytes, Callable[[bytes], bytes | None], int | None]]:
    """Kind of row -> its key, what is done to it, and the commit that must be named."""
    uuid, snapshot = lake.leaves[1][1].table_uuid, lake.leaves[1][1].snapshot_id
    ms = lake.leaves[1][1].sequenced_ms
    return {
        "leaf": (keys.leaf(2), flip, 2),
        "leaf gone": (keys.leaf(2), lambda _: None, 2),
        "node": (keys.node(0, 0), lambda tile: flip(tile[:32]) + tile[32:], 0),
        "checkpoint": (keys.checkpoint(2), flip, 1),
        "checkpoint gone": (keys.checkpoint(2), lambda _: None, 1),
        "table index": (keys.table(uuid, 1), lambda _: keys.pack(2), 2),
        "table index gone": (keys.table(uuid, 1), lambda _: None, 1),
        "snapshot index": (keys.snapshot(snapshot, uuid), lambda _: keys.pack(0), 0),
        "snapshot index gone": (keys.snapshot(snapshot, uuid), lambda _: None, 1),
        "time index gone": (keys.time(ms, 1), lambda _: None, 1),
        "time index spare": (keys.time(ms, 0), lambda _: b"", 0),
        "name": (keys.name("release"), lambda _: keys.pack(99), None),
        "state": (keys.state(uuid), lambda value: value.replace(b'"sequence":4', b'"sequence":3'), 3),
        "state gone": (keys.state(uuid), lambda _: None, 3),
        "bearers": (keys.uuids(lake.world.name("t")), lambda _: None, 3),
        "head": (keys.HEAD, lambda value: value.replace(b'"size":4', b'"size":3'), None),
        "keys": (keys.KEYS, flip, None),
    }


KINDS = """leaf, leaf gone, node, checkpoint, checkpoint gone, table index, table index gone, snapshot index,
snapshot index gone, time index gone, time index spare, name, state, state gone, bearers, head, keys"""


@pytest.mark.parametrize("kind", KINDS.replace("\n", " ").split(", "))
def test_a_changed_row_of_the_database_is_named(lake: Lake, kind: str) -> None:
    key, change, index = rows(lake)[kind]
    writer = Writer.open(lake.world.place())
    before = writer.get(key)

    def store(value: bytes | None) -> None:
        writer.write([] if value is None else [(key, value)], [key] if value is None else [])

    after = change(before or b"")
    assert after != before
    store(after)
    try:
        report = verify(lake.world)
    finally:
        store(before)
        writer.close()
    assert report.fault_count >= 1
    spelled = key.partition(b"/")[0].decode()
    assert any(f.object.startswith(f"slatedb:{spelled}") and f.index == index for f in report.faults), report.faults
    assert verify(lake.world).faults == ()


def test_rewritten_history_is_shown_by_the_consistency_proof(world: World) -> None:
    """Two logs under one key, one leaf apart: each is sound in itself, and no proof joins their checkpoints."""
    name = world.name("t")
    world.table().append(ROWS)
    sequencer = world.sequencer()
    sequencer.catch_up([name])
    kept = world.published().head()
    entries = [world.published().source.entry(index, 2) for index in range(2)]
    world.iceberg().load_table(name).append(ROWS)
    sequencer.catch_up([name])
    size = world.published().head().checkpoint.size
    entries = [world.published().source.entry(index, size) for index in range(size)]
    entries[0] = entries[0].replace(b'"create"', b'"rename"')

    tree, nodes = CompactRange().extend([leaf_hash(entry) for entry in entries])
    hashes = {(level, at): value for level, at, value in nodes}
    forged = kept.checkpoint.__class__(ORIGIN, size, tree.root()).sign([world.signer])
    claimed = open_checkpoint(forged, [world.signer.verifier_key])
    proof = consistency_proof(2, size, lambda wanted: [hashes[coordinate] for coordinate in wanted])
    with pytest.raises(ProofError):
        verify_consistency(2, size, proof, kept.checkpoint.root, claimed.root)

    # Whoever replaces the whole database, with the key, still meets the checkpoint an auditor kept.
    assert verify(world, since=kept.note).faults == ()
    writer = Writer.open(world.place())
    head = writer.get(keys.HEAD)
    assert head is not None
    old = world.published().head()
    changed = head.replace(old.checkpoint.root.hex().encode(), claimed.root.hex().encode())
    import json

    record = json.loads(changed) | {"checkpoint": forged.decode()}
    tile = b"".join(leaf_hash(entry) for entry in entries)
    writer.write(
        [
            (keys.leaf(0), entries[0]),
            (keys.node(0, 0), tile),
            (keys.HEAD, json.dumps(record).encode()),
            (keys.checkpoint(size), forged),
        ]
    )
    writer.close()
    report = verify(world, since=kept.note)
    assert "slatedb:head" in {fault.object for fault in report.faults}
    assert any("history was changed" in fault.what for fault in report.faults)
