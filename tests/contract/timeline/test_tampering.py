"""One wrong byte anywhere is found and named, with its commit; and nothing that may be gone is missed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import open_checkpoint
from catalog.merkle.tree import CompactRange, consistency_proof, leaf_hash
from catalog.merkle.verify import ProofError, verify_consistency
from catalog.tables.manager import Tables
from catalog.timeline.log import store_keys
from catalog.timeline.log.store import StoreReader, StoreWriter
from catalog.timeline.sequencer.attestation import attestation_key
from catalog.timeline.verify.verifier import Report, Verifier
from infra.local.server import ApiServer
from tests.worlds.lake import ORIGIN
from tests.worlds.table_map import key_of, map_of, root_of
from tests.worlds.timeline import ROWS, SEQUENCER, World

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])


def tables(world: World) -> Tables:
    return Tables(world.catalog())


def verify(world: World, **options: Any) -> Report:
    reader = StoreReader.open(world.place())
    try:
        catalog = world.catalog("auditor")
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
        key = attestation_key(leaf.table_uuid, leaf.snapshot_id)
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
    world = World.create(server)
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


def test_the_last_leaf_of_each_batch_has_the_root_of_the_map_after_it(lake: Lake) -> None:
    records = [(index, json.loads(leaf.encode())) for index, leaf in lake.leaves]
    roots = [leaf.map_root for _, leaf in lake.leaves]
    first, second = (root_of(map_of(records[:size])).hex() for size in (2, 4))
    assert roots == [None, first, None, second]


def data_objects(lake: Lake) -> dict[str, tuple[str, int]]:
    """Kind of object -> one of it, and the commit that added it."""
    prefix = f"s3://{lake.world.bucket}/"
    first, last = lake.commit("append")[0], lake.leaves[-1][0]
    table = lake.world.catalog().load_table(lake.world.name("t"))
    leaf = lake.leaves[first][1]
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    return {
        "metadata": (table.metadata_location, last),
        "manifest list": (by_id[leaf.snapshot_id].manifest_list, first),
        "manifest": (lake.attested(first, ".avro"), first),
        "data file": (lake.attested(first, ".parquet"), first),
        "delete file": (lake.attested(last, ".parquet"), last),
        "attestation": (prefix + attestation_key(leaf.table_uuid, leaf.snapshot_id), first),
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
    assert set(named(report)) == {(path, index)} and report.faults[0].what == "it is missing"


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


def map_root(lake: Lake, index: int) -> bytes:
    return bytes.fromhex(str(lake.leaves[index][1].map_root))


def rows(lake: Lake) -> dict[str, tuple[bytes, Callable[[bytes], bytes | None], int | None]]:
    """Kind of row -> its key, what is done to it, and the commit that must be named."""
    uuid, snapshot = lake.leaves[1][1].table_uuid, lake.leaves[1][1].snapshot_id
    ms = lake.leaves[1][1].sequenced_ms
    return {
        "leaf": (store_keys.leaf(2), flip, 2),
        "leaf gone": (store_keys.leaf(2), lambda _: None, 2),
        "node": (store_keys.node(0, 0), lambda tile: flip(tile[:32]) + tile[32:], 0),
        "checkpoint": (store_keys.checkpoint(2), flip, 1),
        "checkpoint gone": (store_keys.checkpoint(2), lambda _: None, 1),
        "table index": (store_keys.table(uuid, 1), lambda _: store_keys.pack(2), 2),
        "table index gone": (store_keys.table(uuid, 1), lambda _: None, 1),
        "snapshot index": (store_keys.snapshot(snapshot, uuid), lambda _: store_keys.pack(0), 0),
        "snapshot index gone": (store_keys.snapshot(snapshot, uuid), lambda _: None, 1),
        "time index gone": (store_keys.time(ms, 1), lambda _: None, 1),
        "time index spare": (store_keys.time(ms, 0), lambda _: b"", 0),
        "name": (store_keys.name("release"), lambda _: store_keys.pack(99), None),
        "state": (store_keys.state(uuid), lambda value: value.replace(b'"sequence":4', b'"sequence":3'), 3),
        "state gone": (store_keys.state(uuid), lambda _: None, 3),
        "map entry": (store_keys.table_entry(key_of(lake.world.name("t"))), flip, None),
        "map entry gone": (store_keys.table_entry(key_of(lake.world.name("t"))), lambda _: None, None),
        "map entry spare": (store_keys.table_entry(bytes(32)), lambda _: b"{}", None),
        "map node": (store_keys.map_node(map_root(lake, 1)), flip, 1),
        "map node gone": (store_keys.map_node(map_root(lake, 3)), lambda _: None, 3),
        "uuids": (store_keys.uuids(lake.world.name("t")), lambda _: None, 3),
        "head": (store_keys.HEAD, lambda value: value.replace(b'"size":4', b'"size":3'), None),
        "keys": (store_keys.KEYS, flip, None),
    }


KINDS = """leaf, leaf gone, node, checkpoint, checkpoint gone, table index, table index gone, snapshot index,
snapshot index gone, time index gone, time index spare, name, state, state gone, uuids, map entry,
map entry gone, map entry spare, map node, map node gone, head, keys"""


@pytest.mark.parametrize("kind", KINDS.replace("\n", " ").split(", "))
def test_a_changed_row_of_the_database_is_named(lake: Lake, kind: str) -> None:
    key, change, index = rows(lake)[kind]
    writer = StoreWriter.open(lake.world.place())
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
    world.catalog().load_table(name).append(ROWS)
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
    writer = StoreWriter.open(world.place())
    head = writer.get(store_keys.HEAD)
    assert head is not None
    old = world.published().head()
    changed = head.replace(old.checkpoint.root.hex().encode(), claimed.root.hex().encode())
    record = json.loads(changed) | {"checkpoint": forged.decode()}
    tile = b"".join(leaf_hash(entry) for entry in entries)
    writer.write(
        [
            (store_keys.leaf(0), entries[0]),
            (store_keys.node(0, 0), tile),
            (store_keys.HEAD, json.dumps(record).encode()),
            (store_keys.checkpoint(size), forged),
        ]
    )
    writer.close()
    report = verify(world, since=kept.note)
    assert "slatedb:head" in {fault.object for fault in report.faults}
    assert any("history was changed" in fault.what for fault in report.faults)
