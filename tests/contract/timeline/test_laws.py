"""Laws of the timeline: how work is cut into batches does not show in what it says."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import StaticTable

from catalog.merkle import proof
from catalog.merkle.tiles import new_bundles, new_tiles
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.log.frontier import Frontier
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.store import StoreLocation, StoreReader
from catalog.timeline.reader.sources import StoredSource
from catalog.timeline.reader.timeline import Timeline
from catalog.timeline.sequencer.attestation import BytesFile
from tests.worlds.lake import ORIGIN
from tests.worlds.timeline import ROWS, World

cuts = st.lists(st.integers(1, 300), min_size=1, max_size=6)


@given(cuts)
@settings(max_examples=60, deadline=None)
def test_an_edge_grown_in_any_steps_is_the_tree_and_has_its_tiles(steps: Sequence[int]) -> None:
    edge, all_leaves, tiles = Frontier(), list[bytes](), {}
    for step in steps:
        fresh = [b"%d" % number for number in range(len(all_leaves), len(all_leaves) + step)]
        expected = {*new_tiles(edge.size, edge.size + step), *new_bundles(edge.size, edge.size + step)}
        edge, changed = edge.grow(fresh)
        assert set(changed) == expected
        tiles |= changed
        all_leaves += fresh
    assert edge.tree.root() == root(map(leaf_hash, all_leaves))
    rest = all_leaves[len(all_leaves) - len(all_leaves) % 256 :]
    again = Frontier.load(edge.size, lambda tile: tiles[tile], rest)
    assert (again.tree, again.tiles, again.leaves) == (edge.tree, edge.tiles, edge.leaves)


class Memory(FileIO):
    """The tables' files, read once: thousands of looks should not be thousands of requests."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__()
        self._objects = objects

    def new_input(self, location: str) -> InputFile:
        return BytesFile(location, self._objects[location])

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError


class Past:
    """A catalog that shows each table as it was after some of its commits."""

    def __init__(self, world: World, names: Sequence[str]) -> None:
        tables = {name: world.catalog().load_table(name) for name in names}
        self.versions = {
            name: [*(entry.metadata_file for entry in table.metadata.metadata_log), table.metadata_location]
            for name, table in tables.items()
        }
        self.at = dict.fromkeys(names, 0)
        objects = {f"s3://{world.bucket}/{key}": data for key, data in world.objects("tables/").items()}
        self._tables = {
            location: StaticTable.from_metadata(location, world.catalog().properties)
            for locations in self.versions.values()
            for location in locations
        }
        for table in self._tables.values():
            table.io = Memory(objects)

    def load_table(self, name: str) -> StaticTable:
        return self._tables[self.versions[name][self.at[name]]]


@pytest.fixture
def past(world: World) -> Past:
    for name in ("a", "b"):
        table = world.table(name)
        for _ in range(3):
            table.append(ROWS)
        table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[1].snapshot_id).commit()
        table.append(ROWS)
    return Past(world, [world.name("a"), world.name("b")])


def facts(leaf: Leaf) -> tuple[object, ...]:
    """What a leaf says of its commit, without when, and in which metadata file, the sequencer saw it."""
    ids = (leaf.table_uuid, leaf.sequence, leaf.snapshot_id, leaf.parent_id, leaf.ref, leaf.committed_ms)
    return (leaf.operation, *ids, leaf.schema_sha256, leaf.manifest_list_sha256, leaf.content_root)


# Not shrunk: an example is a whole history, and shrinking one takes minutes.
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_when_and_in_what_order_tables_are_looked_at_does_not_change_the_leaves(
    world: World, past: Past, data: st.DataObject
) -> None:
    """One sequencer looks at some tables, in some order, after any of their commits; one only at the end."""
    names = list(past.at)

    def sequenced(looks: int) -> dict[str, list[tuple[object, ...]]]:
        past.at = dict.fromkeys(names, 0)
        place, bucket = StoreLocation.in_memory(), f"public-{uuid4().hex}"
        world.client("s3", "person").create_bucket(Bucket=bucket)
        sequencer = world.sequencer(place=place, iceberg=past, publish_to=bucket)
        for _ in range(looks):
            for name in names:
                last = len(past.versions[name]) - 1
                past.at[name] = data.draw(st.integers(past.at[name], last))
            sequencer.catch_up(data.draw(st.permutations(names))[: data.draw(st.integers(1, 2))])
        past.at = {name: len(past.versions[name]) - 1 for name in names}
        sequencer.catch_up(names)
        reader = StoreReader.open(place)
        timeline = Timeline(StoredSource(reader), ORIGIN, [world.signer.verifier_key])
        size = timeline.head().checkpoint.size
        for index in range(size):
            entry = timeline.source.entry(index, size)
            assert proof.verify(timeline.proof(index), entry, [world.signer.verifier_key]).index == index
        leaves = {name: [facts(leaf) for _, leaf in timeline.commits_since(name)] for name in names}
        assert sum(map(len, leaves.values())) == size
        reader.close()
        sequencer.close()
        return leaves

    at_once = sequenced(0)
    assert [len(leaves) for leaves in at_once.values()] == [6, 6]
    assert sequenced(data.draw(st.integers(1, 4))) == at_once
