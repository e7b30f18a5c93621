"""Tiles: the specification's own examples, what is refused, and how few are read."""

from __future__ import annotations

from hashlib import sha256

import pytest

from catalog.merkle import CompactRange, ProofError, tiles, tree
from catalog.merkle.tiles import ENTRIES, Tile


def test_the_specifications_paths():
    assert Tile(0, 1234067).path == "tile/0/x001/x234/067"
    assert Tile(0, 1234067, 8).path == "tile/0/x001/x234/067.p/8"
    assert Tile(ENTRIES, 0).path == "tile/entries/000"
    assert Tile.parse("tile/entries/x001/000.p/255") == Tile(ENTRIES, 1000, 255)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "tile/0/0",
        "tile/0/0000",
        "tile/0/x000/001",
        "tile/0/x001/x000",
        "tile/0/001/002",
        "tile/00/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/0/000.p/0",
        "tile/0/000.p/08",
        "tile/0/000.p/256",
        "tile/0/000.p/",
        "tile/0/000.p/8/",
        "/tile/0/000",
        "tile/0/000\n",
        "tile/0/\u0660\u0660\u0660",
        "tile/data/000",
        "checkpoint",
    ],
)
def test_a_path_has_one_spelling(path):
    with pytest.raises(ValueError, match=r"tile path|no tile has"):
        Tile.parse(path)


def test_the_specifications_tree_of_70_000():
    """273 full tiles of level 0 and one of width 112; a full one of level 1 and one of 17; one of level 2."""
    published = tiles.new_tiles(0, 70_000)
    assert [sum(tile.level == level for tile in published) for level in range(4)] == [274, 2, 1, 0]
    partial = [(tile.level, tile.index, tile.width) for tile in published if tile.width < 256]
    assert partial == [(0, 273, 112), (1, 1, 17), (2, 0, 1)]
    assert tiles.new_tiles(0, 256) == [Tile(0, 0), Tile(1, 0, 1)]


def test_only_what_changed_is_new():
    assert tiles.new_tiles(300, 301) == [Tile(0, 1, 45)]
    assert tiles.new_tiles(511, 512) == [Tile(0, 1), Tile(1, 0, 2)]
    assert tiles.new_tiles(512, 512) == []
    assert tiles.new_bundles(255, 257) == [Tile(ENTRIES, 0), Tile(ENTRIES, 1, 1)]
    assert tiles.new_tiles(0, 0) == tiles.new_bundles(0, 0) == []
    for call in (tiles.new_tiles, tiles.new_bundles):
        with pytest.raises(ValueError, match="cannot grow"):
            call(2, 1)


def test_where_an_entry_is():
    assert tiles.tile_at(ENTRIES, 299 // 256, 300) == Tile(ENTRIES, 1, 44)
    assert tiles.tile_at(ENTRIES, 0, 300) == Tile(ENTRIES, 0)
    with pytest.raises(ValueError, match="has no tile 2"):
        tiles.tile_at(ENTRIES, 2, 300)


def test_a_tile_names_the_hashes_it_is_made_of():
    assert Tile(0, 1, 2).coordinates() == [(0, 256), (0, 257)]
    assert Tile(2, 0, 1).coordinates() == [(16, 0)]
    assert Tile(ENTRIES, 1, 1).coordinates() == [(0, 256)]


def test_bundles_are_length_prefixed():
    assert tiles.join_entries([b"ab", b"", b"c"]) == b"\x00\x02ab\x00\x00\x00\x01c"
    assert tiles.split_entries(Tile(ENTRIES, 0, 3), b"\x00\x02ab\x00\x00\x00\x01c") == [b"ab", b"", b"c"]
    with pytest.raises(ValueError, match="over the limit"):
        tiles.join_entries([b"x" * 65_536])


@pytest.mark.parametrize(
    "data", [b"", b"\x00\x02ab", b"\x00\x02ab\x00\x00\x00", b"\x00\x02ab\x00\x00\x00\x01", b"\x00\x00" * 4]
)
def test_a_bundle_of_another_length_is_refused(data):
    with pytest.raises(ProofError, match=r"tile/entries/000\.p/3"):
        tiles.split_entries(Tile(ENTRIES, 0, 3), data)


@pytest.mark.parametrize("length", [0, 31, 32, 63, 65, 96, 8191])
def test_a_tile_of_another_length_is_refused(length):
    with pytest.raises(ProofError, match=r"tile/0/000\.p/2 has"):
        tiles.split_hashes(Tile(0, 0, 2), bytes(length))


def test_the_full_tile_may_stand_for_a_partial_one():
    full = b"".join(sha256(bytes([i])).digest() for i in range(256))
    assert tiles.split_hashes(Tile(0, 0, 2), full) == [full[:32], full[32:64]]


class Bucket:
    """The published tiles of a tree of equal leaves: any size, no memory."""

    def __init__(self) -> None:
        self.rows = [b"\xaa" * 32]
        for level in range(40):
            self.rows.append(sha256(b"\x01" + self.rows[level] * 2).digest())
        self.asked: list[list[str]] = []

    def read_tiles(self, paths):
        self.asked.append(list(paths))
        return [self.rows[tile.level * 8] * tile.width for tile in map(Tile.parse, paths)]

    def read_hashes(self, coordinates):
        return [self.rows[level] for level, _ in coordinates]


@pytest.mark.parametrize("index", [0, 1, 255, 256, 65_535, 65_536, 500_000, 983_039, 983_040, 999_935, 999_999])
def test_a_proof_at_a_million_leaves_reads_at_most_five_tiles(index):
    bucket, size = Bucket(), 1_000_000
    proof = tree.inclusion_proof(index, size, tiles.hash_reader(size, bucket.read_tiles))
    assert proof == tree.inclusion_proof(index, size, bucket.read_hashes)
    (paths,) = bucket.asked
    assert len(paths) == len(set(paths)) <= 5
    old = tree.consistency_proof(index + 1, size, tiles.hash_reader(size, bucket.read_tiles))
    assert old == tree.consistency_proof(index + 1, size, bucket.read_hashes)
    assert all(len(paths) <= 5 for paths in bucket.asked)


def test_the_worst_proof_at_a_million_leaves_by_its_tiles():
    bucket, size = Bucket(), 1_000_000
    tree.inclusion_proof(0, size, tiles.hash_reader(size, bucket.read_tiles))
    assert sorted(bucket.asked[0]) == [
        "tile/0/000",
        "tile/0/x003/906.p/64",
        "tile/1/000",
        "tile/1/015.p/66",
        "tile/2/000.p/15",
    ]


def test_a_reader_refuses_what_the_tree_does_not_have():
    reader = tiles.hash_reader(300, Bucket().read_tiles)
    for coordinate in [(0, 300), (8, 1), (9, 0), (-1, 0), (0, -1)]:
        with pytest.raises(ValueError, match="no complete node"):
            reader([coordinate])
    with pytest.raises(ValueError, match="returned 0"):
        tiles.hash_reader(300, lambda paths: [])([(0, 0)])
    with pytest.raises(ProofError):
        tiles.hash_reader(300, lambda paths: [b"short"])([(0, 0)])
    assert tiles.hash_reader(300, lambda paths: [])([]) == []


def test_the_compact_range_is_read_from_the_tiles():
    bucket = Bucket()
    compact = CompactRange.read(1_000_000, tiles.hash_reader(1_000_000, bucket.read_tiles))
    assert compact == CompactRange.read(1_000_000, bucket.read_hashes)
    assert len(bucket.asked[0]) == 3
