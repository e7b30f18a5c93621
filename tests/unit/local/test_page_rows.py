"""The page's verifier of row proofs, run as a browser would run it: it says what catalog.changes says."""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import pytest

from catalog.changes import RowProof
from catalog.core.errors import Unverified
from catalog.merkle import proof as proof_file
from infra.local.gateway.page import FILES
from tests.property.changes.forged_rows import mutated
from tests.unit.changes.test_golden_row_proofs import ASKED, EXISTS, KEY, data, expected, keys

RUNNER = """
import { verifyProof } from PROOF;
import { verifyRows } from ROWS;
let text = "";
for await (const part of process.stdin) text += part;
const verdicts = [];
for (const [file, asked, key] of JSON.parse(text)) {
  try {
    const found = await verifyRows(file, asked, (text, entry) => verifyProof(text, entry, key));
    verdicts.push(found.rows);
  } catch (error) {
    verdicts.push(error.constructor.name);
  }
}
console.log(JSON.stringify(verdicts));
"""
AT_INDEX = [name for name in ASKED if "index" in ASKED[name]]


def verdicts(cases: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    script = RUNNER.replace("PROOF", json.dumps((FILES / "proof.js").as_uri()))
    script = script.replace("ROWS", json.dumps((FILES / "rows.js").as_uri()))
    asked = json.dumps([(file, question, str(KEY)) for file, question in cases])
    command = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=300, check=True)
    results: list[Any] = json.loads(done.stdout)
    return results


def asked(name: str, **other: Any) -> dict[str, Any]:
    wanted = {"table": "sales.orders", "index": ASKED[name].get("index"), "rows": ASKED[name]["keys"]} | other
    return {**wanted, "rows": [{column: str(value) for column, value in row.items()} for row in wanted["rows"]]}


def test_golden_files_are_proven_with_their_rows() -> None:
    for name, found in zip(AT_INDEX, verdicts([(data(name).decode(), asked(name)) for name in AT_INDEX]), strict=True):
        assert [row["exists"] for row in found] == EXISTS[name]
    (found,) = verdicts([(data("row").decode(), asked("row"))])
    assert found == [{"region": "DE", "id": "7", "note": "note 7", "exists": True}]


@pytest.mark.parametrize("name", AT_INDEX)
def test_another_question_is_refused(name: str) -> None:
    others = [
        {"table": "silver.notes"},
        {"index": 1},
        {"index": 9},
        {"rows": keys(1)},
        {"rows": []},
        {"rows": [{"id": 7}]},
    ]
    others += [{"rows": [*ASKED[name]["keys"], *keys(1)]}]
    file = data(name).decode()
    assert verdicts([(file, asked(name, **other)) for other in others]) == ["ProofError"] * len(others)


def test_a_proof_about_a_time_is_left_to_the_command() -> None:
    assert verdicts([(data("time").decode(), asked("time", index=1))]) == ["ProofError"]


@pytest.mark.parametrize("name", AT_INDEX)
def test_no_mutation_is_proven(name: str) -> None:
    chance, file = random.Random(f"page {name}"), proof_file.read(data(name))
    forged = list[bytes]()
    while len(forged) < 300:
        extra = mutated(chance, file.extra, proof_file.read(data(chance.choice(AT_INDEX))).extra)
        one = proof_file.write(proof_file.ProofFile(file.index, file.hashes, file.checkpoint, extra))
        if one == data(name):
            continue
        with pytest.raises(Unverified):
            RowProof.read(one).verify_all([KEY], None, expected(name))
        forged.append(one)
    assert set(verdicts([(one.decode(), asked(name)) for one in forged])) == {"ProofError"}
