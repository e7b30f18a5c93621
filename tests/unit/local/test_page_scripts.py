"""The page's own verifier and reader of the log, run as a browser would run them, against what catalog.merkle makes."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from catalog.merkle import Checkpoint, Ed25519Signer, ProofFile, proof
from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.policy import Policy, PolicyError
from catalog.merkle.tiles import ENTRIES as BUNDLES
from catalog.merkle.tiles import Tile, join_entries
from catalog.merkle.tree import CompactRange, inclusion_proof, leaf_hash
from catalog.merkle.verify import ProofError
from infra.local.gateway.page import FILES

SIGNER = Ed25519Signer("example.com/log", bytes(32))
OTHER = Ed25519Signer("example.com/log", b"x" * 32)
WITNESS = Ed25519Signer("witness.example/w1", b"w" * 32)
ENTRIES = [f'{{"leaf":{number}}}'.encode() for number in range(40)]

RUNNER = """
import { verifyProof } from PROOF;
import { verifyWitnessed } from POLICY;
let text = "";
for await (const part of process.stdin) text += part;
const verdicts = [];
for (const [file, entry, key, policy] of JSON.parse(text)) {
  const bytes = Uint8Array.from(Buffer.from(entry, "base64"));
  try {
    const asked = [file, bytes, key, policy];
    const found = policy === undefined ? await verifyProof(...asked) : await verifyWitnessed(...asked);
    verdicts.push([found.index, found.size]);
  } catch (error) {
    verdicts.push(error.constructor.name);
  }
}
console.log(JSON.stringify(verdicts));
"""


def verdicts(cases: Sequence[tuple[str, bytes, str] | tuple[str, bytes, str, str]]) -> list[Any]:
    script = RUNNER.replace("PROOF", json.dumps((FILES / "proof.js").as_uri()))
    script = script.replace("POLICY", json.dumps((FILES / "policy.js").as_uri()))
    asked = json.dumps([(file, base64.b64encode(entry).decode(), *rest) for file, entry, *rest in cases])
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=300, check=True)
    results: list[Any] = json.loads(done.stdout)
    return results


def proof_of(index: int, size: int, signer: Ed25519Signer = SIGNER, extra: bytes = b"") -> str:
    nodes = {}
    tree = CompactRange()
    for entry in ENTRIES[:size]:
        tree, added = tree.append(leaf_hash(entry))
        nodes.update({(level, at): value for level, at, value in added})
    path = inclusion_proof(index, size, lambda wanted: [nodes[coordinate] for coordinate in wanted])
    note = Checkpoint(signer.name, size, tree.root()).sign([signer])
    return proof.write(ProofFile(index, tuple(path), note, extra)).decode()


def test_every_leaf_of_every_small_tree_is_proven() -> None:
    wanted = [(index, size) for size in [*range(1, 18), 32, 33, 40] for index in range(size)]
    key = str(SIGNER.verifier_key)
    results = verdicts([(proof_of(index, size, extra=ENTRIES[index]), ENTRIES[index], key) for index, size in wanted])
    assert results == [list(pair) for pair in wanted]


def test_whatever_is_changed_is_refused() -> None:
    key, entry, file = str(SIGNER.verifier_key), ENTRIES[5], proof_of(5, 13)
    lines = file.split("\n")
    spoiled = [
        (file, entry + b" ", key),
        (file, ENTRIES[6], key),
        (file.replace("index 5", "index 4"), entry, key),
        (file.replace("index 5", "index 13"), entry, key),
        ("\n".join([*lines[:2], *lines[3:]]), entry, key),
        ("\n".join([*lines[:3], lines[2], *lines[3:]]), entry, key),
        ("\n".join([*lines[:2], lines[3], lines[2], *lines[4:]]), entry, key),
        (file.replace("\n13\n", "\n14\n"), entry, key),
        (proof_of(5, 13, OTHER), entry, key),
        (file, entry, str(OTHER.verifier_key)),
        (file, entry, str(Ed25519Signer("example.com/elsewhere", bytes(32)).verifier_key)),
        (file, entry, key.replace("+", "+0", 1)),
        (file[: file.rindex("\n\n")], entry, key),
        (file.replace("tlog-proof@v1", "tlog-proof@v2"), entry, key),
        ("", entry, key),
    ]
    mutated = [file[:at] + chr(ord(file[at]) ^ 1) + file[at + 1 :] for at in range(len(file)) if file[at] != "\n"]
    cases = spoiled + [(one, entry, key) for one in mutated]
    for case, verdict in zip(cases, verdicts(cases), strict=True):
        assert isinstance(verdict, str), case


def test_signatures_of_others_are_ignored_wherever_they_stand() -> None:
    """A witness's, and that of another key under the log's own name: a key is its name and its id."""
    key, entry, file = str(SIGNER.verifier_key), ENTRIES[5], proof_of(5, 13)
    head, _, own = file.rpartition("\n\n")
    others = [proof_of(5, 13, other).rpartition("\n\n")[2] for other in (OTHER, WITNESS)]
    signed = [[own, *others], [*others, own], [others[0], own, others[1]]]
    results = verdicts([(f"{head}\n\n{''.join(lines)}", entry, key) for lines in signed])
    assert results == [[5, 13]] * 3
    assert verdicts([(f"{head}\n\n{''.join(others)}", entry, key)]) == ["ProofError"]


WITNESSES = [WitnessSigner(f"witness.example/w{n}", bytes([n]) * 32) for n in (1, 2, 3)]
OWN = WitnessSigner("witness.example/own", SIGNER.seed)
TWO_OF_THREE = "\n".join(
    [
        "# two of three",
        f"log {SIGNER.verifier_key} https://log.example",
        *(f"witness w{n}\t{witness.witness_key}" for n, witness in enumerate(WITNESSES)),
        "group two 2 w0 w1 w2",
        "quorum two",
    ]
)
POLICIES = [
    TWO_OF_THREE,
    TWO_OF_THREE.replace("group two 2 ", "group two all "),
    TWO_OF_THREE.replace("group two 2 ", "group two any "),
    TWO_OF_THREE.replace("group two 2 w0 w1 w2", "group one any w0 w1\ngroup two all one w2"),
    TWO_OF_THREE.replace("quorum two", "quorum w1"),
    TWO_OF_THREE.replace("quorum two", "quorum none"),
    TWO_OF_THREE.replace("quorum two", ""),
    TWO_OF_THREE.replace("quorum two", "quorum nobody"),
    TWO_OF_THREE.replace("group two 2 ", "group two 4 "),
    TWO_OF_THREE.replace("group two 2 ", "group two 0 "),
    TWO_OF_THREE.replace("w0 w1 w2", "w0 w0 w1"),
    TWO_OF_THREE.replace(f"log {SIGNER.verifier_key}", f"log {OTHER.verifier_key}"),
    TWO_OF_THREE.replace(str(WITNESSES[1].witness_key), str(WITNESSES[0].witness_key)),
    TWO_OF_THREE.replace(str(WITNESSES[1].witness_key), str(OWN.witness_key)),
    TWO_OF_THREE.replace(str(WITNESSES[1].witness_key), str(WITNESS.verifier_key)),
    TWO_OF_THREE + "\nquorum two",
    "",
]


def by_python(file: str, entry: bytes, key: str, policy: str) -> Any:
    try:
        trusted = Policy.parse(policy.encode())
        if key not in map(str, trusted.logs):
            return "ProofError"
        found = proof.verify(file.encode(), entry, policy=trusted)
    except (PolicyError, ProofError):
        return "ProofError"
    return [found.index, found.checkpoint.size]


def test_a_policy_gets_the_verdict_that_the_command_gives() -> None:
    """Every subset of the witnesses, one of them twice, of another checkpoint, changed, or the log itself."""
    key, entry, file = str(SIGNER.verifier_key), ENTRIES[5], proof_of(5, 13)
    text, other = (f.partition("\n\n")[2].partition("\n\n")[0] + "\n" for f in (file, proof_of(5, 12)))
    lines = [witness.cosign(text, 1_800_000_000) for witness in WITNESSES]
    strange = [OWN.cosign(text, 1), WITNESSES[0].cosign(other, 1), lines[1].replace("A", "B", 1), lines[2] * 2]
    sets = [[line for at, line in enumerate(lines) if subset >> at & 1] for subset in range(8)]
    signed = ["".join(one) for one in [*sets, *([*lines[:2], more] for more in strange), *([one] for one in strange)]]
    cases = [(file + one, entry, key, policy) for policy in POLICIES for one in signed]
    results = verdicts(cases)
    for case, verdict in zip(cases, results, strict=True):
        assert verdict == by_python(*case), (case[3], case[0])
    assert {str(verdict) for verdict in results} == {"[5, 13]", "ProofError"}


READER = """
import { readEntries, tilePath } from LOG;
let text = "";
for await (const part of process.stdin) text += part;
const { tiles, asked, numbers } = JSON.parse(text);
const fetchTile = async (path) => {
  if (!(path in tiles)) throw new Error(`no ${path}`);
  return Uint8Array.from(Buffer.from(tiles[path], "base64"));
};
const found = [];
for (const [first, size] of asked) {
  try {
    found.push((await readEntries(first, size, fetchTile)).map((entry) => Buffer.from(entry).toString()));
  } catch (error) {
    found.push(error.message);
  }
}
console.log(JSON.stringify({ found, paths: numbers.map(tilePath) }));
"""


def read_entries(tiles: dict[str, bytes], asked: Sequence[tuple[int, int]], numbers: Sequence[int] = ()) -> Any:
    script = READER.replace("LOG", json.dumps((FILES / "log.js").as_uri()))
    given = {path: base64.b64encode(data).decode() for path, data in tiles.items()}
    command = ["node", "--input-type=module", "--eval", script]
    told = json.dumps({"tiles": given, "asked": asked, "numbers": numbers})
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=300, check=True)
    return json.loads(done.stdout)


def test_entries_are_read_from_the_tiles_that_the_sequencer_publishes() -> None:
    entries = [f"leaf {number}".encode() * (number % 40) for number in range(600)]

    def bundle(first: int, width: int) -> bytes:
        return join_entries(entries[first : first + width])

    tiles = {"entries/000": bundle(0, 256), "entries/001": bundle(256, 256), "entries/002.p/88": bundle(512, 88)}
    asked = [(0, 600), (300, 600), (599, 600), (600, 600), (0, 256), (250, 512), (0, 0)]
    found = read_entries(tiles, asked)["found"]
    assert found == [[entry.decode() for entry in entries[first:size]] for first, size in asked]


def test_a_partial_tile_that_is_gone_is_read_from_the_whole_one_and_a_short_one_is_refused() -> None:
    entries = [b"%d" % number for number in range(256)]
    whole, short = join_entries(entries), join_entries(entries[:9])
    assert read_entries({"entries/000": whole}, [(3, 5)])["found"] == [["3", "4"]]
    assert "9 entries where the log has 10" in read_entries({"entries/000.p/10": short}, [(0, 10)])["found"][0]
    assert "truncated" in read_entries({"entries/000.p/9": short[:-1]}, [(0, 9)])["found"][0]


def test_tiles_are_named_as_the_sequencer_names_them() -> None:
    numbers = [0, 7, 999, 1000, 1_234_067, 999_999_999, 1_000_000_000]
    expected = [Tile(BUNDLES, number, 256).path.removeprefix("tile/entries/") for number in numbers]
    assert read_entries({}, [], numbers)["paths"] == expected
    assert expected[4] == "x001/x234/067"


def test_the_page_is_plain_files_that_load_nothing_from_elsewhere() -> None:
    for file in FILES.iterdir():
        assert not re.search(r"""["'(]\s*(?:\w+:)?//""", file.read_text()), file.name


@pytest.mark.parametrize("name", ["page.js", "proof.js", "log.js", "policy.js"])
def test_the_scripts_parse(name: str) -> None:
    done = subprocess.run(["node", "--check", str(FILES / name)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
