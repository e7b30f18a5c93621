"""Laws of the public formats: what is written reads back, what was changed is refused."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from catalog.merkle import (
    Checkpoint,
    CompactRange,
    Ed25519Signer,
    NoteError,
    ProofError,
    ProofFile,
    VerifierKey,
    open_checkpoint,
    open_note,
    proof,
    sign_note,
    tiles,
    tree,
)

SIGNER = Ed25519Signer("example.com/log", bytes(range(32)))
OTHER = Ed25519Signer("example.com/other", bytes(range(1, 33)))
LEAVES = [sha256(str(i).encode()).digest() for i in range(70_000)]
STORE = {(level, index): value for level, index, value in CompactRange().extend(LEAVES)[1]}

lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
texts = st.lists(lines | st.just(""), min_size=1, max_size=6).map(lambda parts: "".join(f"{p}\n" for p in parts))
hashes = st.binary(min_size=32, max_size=32)
sizes = st.integers(0, 63).flatmap(lambda bits: st.integers(0, (1 << bits) - 1))


def read_hashes(coordinates):
    return [STORE[coordinate] for coordinate in coordinates]


@settings(deadline=None)
@given(texts, st.permutations([SIGNER, OTHER]))
def test_a_note_reads_back(text, signers):
    note = sign_note(text, signers)
    keys = [signer.verifier_key for signer in signers]
    assert open_note(note, keys).text == text
    assert open_note(note, keys).signed_by == tuple(keys)
    assert open_note(note, keys[:1]).signed_by == tuple(keys[:1])


@settings(deadline=None, max_examples=300)
@given(texts, st.data())
def test_a_note_with_any_byte_changed_is_refused(text, data):
    note = bytearray(sign_note(text, [SIGNER]))
    at = data.draw(st.integers(0, len(note) - 1))
    kind = data.draw(st.sampled_from(["change", "drop", "add"]))
    byte = data.draw(st.integers(0, 255))
    if kind == "change":
        assume(note[at] != byte)
        note[at] = byte
    elif kind == "drop":
        del note[at]
    else:
        note.insert(at, byte)
    assume(bytes(note) != sign_note(text, [SIGNER]))
    with pytest.raises(NoteError):
        open_note(bytes(note), [SIGNER.verifier_key])


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_not_a_note_nor_a_proof(noise):
    with pytest.raises(NoteError):
        open_note(noise, [SIGNER.verifier_key])
    with pytest.raises(ProofError):
        proof.read(noise)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Z", "Cc", "Cs"], exclude_characters="+"), min_size=1), hashes)
def test_keys_read_back(name, seed):
    signer = Ed25519Signer(name, seed)
    assert Ed25519Signer.parse(signer.private_key()) == signer
    assert VerifierKey.parse(str(signer.verifier_key)) == signer.verifier_key


@settings(deadline=None)
@given(lines, sizes, hashes, st.lists(lines, max_size=3))
def test_a_checkpoint_reads_back(origin, size, root, extensions):
    checkpoint = Checkpoint(origin, size, root, tuple(extensions))
    assert Checkpoint.parse(checkpoint.text()) == checkpoint
    assert open_checkpoint(checkpoint.sign([SIGNER]), [SIGNER.verifier_key], origin) == checkpoint


@settings(deadline=None)
@given(sizes, st.lists(hashes, max_size=63), st.binary(max_size=100), st.data())
def test_a_proof_file_reads_back_and_has_one_spelling(index, path, extra, data):
    written = proof.write(ProofFile(index, tuple(path), b"any checkpoint\n", extra))
    assert proof.read(written) == ProofFile(index, tuple(path), b"any checkpoint\n", extra)
    at = data.draw(st.integers(0, written.index(b"\n\n")))
    changed = written[:at] + data.draw(st.sampled_from([b"", b" ", b"\n", b"0", b"="])) + written[at + 1 :]
    assume(changed != written)
    try:
        read = proof.read(changed)
    except ProofError:
        return
    assert read != proof.read(written)


tile_values = st.builds(
    tiles.Tile, st.integers(-1, 63), st.integers(0, 2**55) | st.integers(0, 2000), st.integers(1, 256)
)


@settings(deadline=None)
@given(tile_values)
def test_a_tile_path_reads_back(tile):
    assert tiles.Tile.parse(tile.path) == tile


@settings(deadline=None)
@given(tile_values, st.data())
def test_a_changed_tile_path_is_another_tile_or_none(tile, data):
    path = tile.path
    at = data.draw(st.integers(0, len(path)))
    changed = (
        path[:at] + data.draw(st.sampled_from(["", "0", "x", "/", ".p/", "x000/", "\n", "\u0663"])) + path[at + 1 :]
    )
    assume(changed != path)
    with suppress(ValueError):
        assert tiles.Tile.parse(changed) != tile


@settings(deadline=None)
@given(st.lists(st.binary(max_size=300) | st.just(b"x" * 65535), min_size=1, max_size=20), st.data())
def test_a_bundle_reads_back_and_is_strict(entries, data):
    bundle = tiles.Tile(tiles.ENTRIES, 0, len(entries))
    contents = tiles.join_entries(entries)
    assert tiles.split_entries(bundle, contents) == entries
    cut = data.draw(st.integers(0, len(contents) - 1))
    for wrong in (contents[:cut], contents + b"\x00", contents + b"\x00\x00"):
        with pytest.raises(ProofError):
            tiles.split_entries(bundle, wrong)


growing = st.lists(st.integers(0, 700) | st.integers(0, 20_000), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(growing)
def test_publishing_what_is_new_at_each_step_gives_every_tile_of_every_size(steps):
    published, size = set(), 0
    for step in steps:
        old, size = size, min(size + step, len(LEAVES))
        new = [*tiles.new_tiles(old, size), *tiles.new_bundles(old, size)]
        assert not published.intersection(new) and len(set(new)) == len(new)
        published.update(new)
        needed = set()
        for level in range(-1, 4):  # every hash of the tree of this size, by the tile that the specification puts it in
            row = size >> (8 * max(level, 0))
            needed |= {tiles.Tile(level, i, min(256, row - i * 256)) for i in range((row + 255) // 256)}
        assert needed <= published
    assert len({tile.path for tile in published}) == len(published)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_proofs_made_from_tiles_are_the_stores_and_take_one_read_of_few_tiles(data):
    size = data.draw(st.integers(1, len(LEAVES)))
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.integers(1, size))
    published = {tile.path: b"".join(read_hashes(tile.coordinates())) for tile in tiles.new_tiles(0, size)}
    asked = []

    def read_tiles(paths):
        asked.append(len(paths))
        assert len(set(paths)) == len(paths)
        return [published[path] for path in paths]

    from_tiles = tiles.hash_reader(size, read_tiles)
    assert tree.inclusion_proof(index, size, from_tiles) == tree.inclusion_proof(index, size, read_hashes)
    assert tree.consistency_proof(old, size, from_tiles) == tree.consistency_proof(old, size, read_hashes)
    assert len(asked) <= 2 and all(n <= 5 for n in asked)
