"""The page's own verifier, run as a browser would run it, against proofs that catalog.merkle makes and spoils."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from catalog.merkle import Checkpoint, Ed25519Signer, ProofFile, proof
from catalog.merkle.tree import CompactRange, inclusion_proof, leaf_hash
from infra.local.gateway.page import FILES

SIGNER = Ed25519Signer("example.com/log", bytes(32))
OTHER = Ed25519Signer("example.com/log", b"x" * 32)
ENTRIES = [f'{{"leaf":{number}}}'.encode() for number in range(40)]

RUNNER = """
import { verifyProof } from PROOF;
let text = "";
for await (const part of process.stdin) text += part;
const verdicts = [];
for (const [file, entry, key] of JSON.parse(text)) {
  try {
    const found = await verifyProof(file, Uint8Array.from(Buffer.from(entry, "base64")), key);
    verdicts.push([found.index, found.size]);
  } catch (error) {
    verdicts.push(error.constructor.name);
  }
}
console.log(JSON.stringify(verdicts));
"""


def verdicts(cases: Sequence[tuple[str, bytes, str]]) -> list[Any]:
    script = RUNNER.replace("PROOF", json.dumps((FILES / "proof.js").as_uri()))
    asked = json.dumps([(file, base64.b64encode(entry).decode(), key) for file, entry, key in cases])
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=300, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


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
    found = verdicts([(proof_of(index, size, extra=ENTRIES[index]), ENTRIES[index], key) for index, size in wanted])
    assert found == [list(pair) for pair in wanted]


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


def test_the_page_is_plain_files_that_load_nothing_from_elsewhere() -> None:
    for name in ("index.html", "page.js", "proof.js", "page.css"):
        assert "//" not in Path(FILES / name).read_text().replace("// ", "").replace("https://", "HOST"), name
        assert "HOST" not in (FILES / name).read_text()


@pytest.mark.parametrize("name", ["page.js", "proof.js"])
def test_the_scripts_parse(name: str) -> None:
    done = subprocess.run(["node", "--check", str(FILES / name)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
