"""The golden log (tests/golden/README.md): what strangers' tools made of it is what ours makes."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from pathlib import Path

import pytest

from catalog.merkle import (
    Checkpoint,
    CompactRange,
    Ed25519Signer,
    NoteError,
    ProofError,
    ProofFile,
    VerifierKey,
    leaf_hash,
    open_checkpoint,
    open_note,
    proof,
    tiles,
    tree,
    verify_consistency,
    verify_inclusion,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "timeline"
TREE = json.loads((GOLDEN / "tree.json").read_text())
KEYS = json.loads((GOLDEN / "keys.json").read_text())
NOTES = json.loads((GOLDEN / "notes.json").read_text())
TILES = json.loads((GOLDEN / "tiles.json").read_text())
LARGE = json.loads((GOLDEN / "large.json").read_text())
ROOTS = [sha256(b"").digest(), *map(base64.b64decode, TREE["roots"])]
PROOFS = sorted((GOLDEN / "proofs").iterdir())


def golden_tile(path: str) -> bytes:
    return (GOLDEN / path).read_bytes()


def entries() -> list[bytes]:
    bundles = [tiles.Tile.parse(path) for path in ("tile/entries/000", "tile/entries/001.p/44")]
    return [e for bundle in bundles for e in tiles.split_entries(bundle, golden_tile(bundle.path))]


@pytest.fixture(scope="module")
def leaves() -> list[bytes]:
    return [leaf_hash(entry) for entry in entries()]


@pytest.fixture(scope="module")
def read_hashes(leaves):
    store = {(level, index): value for level, index, value in CompactRange().extend(leaves)[1]}
    return lambda coordinates: [store[coordinate] for coordinate in coordinates]


def test_the_bundles_have_the_entries_that_were_logged():
    # The rule by which the entries were made, see the README.
    for i, entry in enumerate(entries()):
        assert entry == f"entry {i}|".encode() * (i % 5) + (b"\x00\xff\n" if i % 7 == 3 else b"")
    assert tiles.join_entries(entries()[:256]) == golden_tile("tile/entries/000")
    assert tiles.join_entries(entries()[256:]) == golden_tile("tile/entries/001.p/44")


def test_the_roots_of_all_sizes(leaves):
    compact = CompactRange()
    assert compact.root() == ROOTS[0]
    for size, leaf in enumerate(leaves, 1):
        compact, _ = compact.append(leaf)
        assert compact.root() == tree.root(leaves[:size]) == ROOTS[size]


@pytest.mark.parametrize("case", TREE["inclusion"], ids=lambda c: f"{c['Index']} of {c['Size']}")
def test_inclusion_proofs(case, leaves, read_hashes):
    index, size, expected = case["Index"], case["Size"], [base64.b64decode(h) for h in case["Proof"]]
    assert tree.inclusion_proof(index, size, read_hashes) == expected
    verify_inclusion(leaves[index], index, size, expected, ROOTS[size])


@pytest.mark.parametrize("case", TREE["consistency"], ids=lambda c: f"{c['Old']} to {c['New']}")
def test_consistency_proofs(case, read_hashes):
    old, new, expected = case["Old"], case["New"], [base64.b64decode(h) for h in case["Proof"]]
    assert tree.consistency_proof(old, new, read_hashes) == expected
    verify_consistency(old, new, expected, ROOTS[old], ROOTS[new])


def test_all_proofs_of_all_sizes_by_their_digest(read_hashes):
    for size in range(1, 301):
        inclusion, consistency = sha256(), sha256()
        for m in range(size):
            inclusion.update(b"".join(tree.inclusion_proof(m, size, read_hashes)))
            consistency.update(b"".join(tree.consistency_proof(m + 1, size, read_hashes)))
        assert inclusion.hexdigest() == TREE["inclusion_digests"][size - 1]
        assert consistency.hexdigest() == TREE["consistency_digests"][size - 1]


def test_proofs_in_trees_of_up_to_2_40_leaves():
    def read_hashes(coordinates):
        return [sha256(f"{level}/{index}".encode()).digest() for level, index in coordinates]

    assert max(case["Size"] for case in LARGE) > 2**39
    for case in LARGE:
        size, index, old = case["Size"], case["Index"], case["Old"]
        assert CompactRange.read(size, read_hashes).root().hex() == case["Root"]
        inclusion = b"".join(tree.inclusion_proof(index, size, read_hashes))
        consistency = b"".join(tree.consistency_proof(old, size, read_hashes))
        assert sha256(inclusion).hexdigest() == case["Inclusion"]
        assert sha256(consistency).hexdigest() == case["Consistency"]


@pytest.mark.parametrize("size", [1, 2, 70, 255, 256, 257, 300])
def test_the_tiles_of_each_published_size(size, read_hashes):
    for tile in tiles.new_tiles(0, size):
        assert tiles.join_hashes(read_hashes(tile.coordinates())) == golden_tile(tile.path)

    def read_tiles(paths):
        return [golden_tile(path) for path in paths]

    from_tiles = tiles.hash_reader(size, read_tiles)
    assert CompactRange.read(size, from_tiles).root() == ROOTS[size]
    for index in {0, size // 3, size - 1}:
        assert tree.inclusion_proof(index, size, from_tiles) == tree.inclusion_proof(index, size, read_hashes)


@pytest.mark.parametrize("case", TILES["growth"], ids=lambda c: f"{c['Old']} to {c['New']}")
def test_which_tiles_are_new(case):
    assert [tile.path for tile in tiles.new_tiles(case["Old"], case["New"])] == case["Tiles"]
    bundles = [path.replace("tile/0/", "tile/entries/") for path in case["Tiles"] if path.startswith("tile/0/")]
    assert [bundle.path for bundle in tiles.new_bundles(case["Old"], case["New"])] == bundles


@pytest.mark.parametrize("case", TILES["paths"], ids=lambda c: c["Path"])
def test_tile_paths(case):
    tile = tiles.Tile(case["Level"], case["Index"], case["Width"])
    bundle = tiles.Tile(tiles.ENTRIES, case["Index"], case["Width"])
    assert (tile.path, bundle.path) == (case["Path"], case["Bundle"])
    assert tiles.Tile.parse(case["Path"]) == tile
    assert tiles.Tile.parse(case["Bundle"]) == bundle


@pytest.mark.parametrize("who", ["log", "next", "other"])
def test_keys_read_and_write_as_in_go(who):
    signer, verifier = Ed25519Signer.parse(KEYS[who]["signer"]), VerifierKey.parse(KEYS[who]["verifier"])
    assert signer.verifier_key == verifier
    assert signer.private_key() == KEYS[who]["signer"]
    assert str(verifier) == KEYS[who]["verifier"]


@pytest.mark.parametrize("size", [0, 1, 2, 70, 255, 256, 257, 300])
def test_checkpoints_are_the_same_bytes(size):
    note = (GOLDEN / "checkpoints" / str(size)).read_bytes()
    signers = [Ed25519Signer.parse(KEYS[who]["signer"]) for who in ("log", "next", "other")]
    expected = Checkpoint(KEYS["origin"], size, ROOTS[size])
    assert expected.sign(signers if size >= 256 else signers[:1]) == note
    assert open_checkpoint(note, [signers[0].verifier_key]) == expected
    if size >= 256:  # the rotated key alone is enough
        assert open_checkpoint(note, [signers[1].verifier_key]) == expected


@pytest.mark.parametrize("path", PROOFS, ids=lambda path: path.stem)
def test_proof_files(path, read_hashes):
    index, size = map(int, path.name.removesuffix(proof.FILE_SUFFIX).split("-of-"))
    data, key = path.read_bytes(), VerifierKey.parse(KEYS["log"]["verifier"])
    inclusion = proof.verify(data, entries()[index], [key], origin=KEYS["origin"])
    assert (inclusion.index, inclusion.checkpoint) == (index, Checkpoint(KEYS["origin"], size, ROOTS[size]))
    written = ProofFile(
        index,
        tuple(tree.inclusion_proof(index, size, read_hashes)),
        (GOLDEN / "checkpoints" / str(size)).read_bytes(),
        b"seven, with \x00 extra data" if index == 7 else b"",
    )
    assert proof.write(written) == data
    with pytest.raises(ProofError):
        proof.verify(data, b"another entry", [key])


def test_there_are_proof_files():
    assert len(PROOFS) == 5


@pytest.mark.parametrize("case", NOTES, ids=lambda case: case["What"])
def test_notes_are_judged_as_in_go(case):
    note, keys = base64.b64decode(case["Note"]), [VerifierKey.parse(key) for key in case["Keys"]]
    if case["Verdict"] == "good":
        signed_by = [f"{key.name}+{key.key_id.hex()}" for key in open_note(note, keys).signed_by]
        assert signed_by == case["Signers"]
    else:
        with pytest.raises(NoteError) as refused:
            open_note(note, keys)
        reason = {"invalid": "is not over this text", "unknown": "not signed by a known key"}
        for verdict, words in reason.items():
            assert (words in str(refused.value)) == (verdict == case["Verdict"])
