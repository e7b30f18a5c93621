"""Row proofs written from the specification alone (tests/golden/rows) verify, and say what was put into them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from catalog.changes import ExpectedRows, RowProof
from catalog.core.errors import Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle.note import VerifierKey
from tests.property.changes.forged_rows import mutated

GOLDEN = Path(__file__).parents[2] / "golden" / "rows"
KEY = VerifierKey.parse((GOLDEN / "key").read_text().strip())
ORDERS = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d"


def keys(*numbers: int, region: str = "DE") -> list[dict[str, Any]]:
    return [{"region": region, "id": number} for number in numbers]


def row(number: int) -> dict[str, Any]:
    return {"region": "DE", "id": number, "note": f"note {number}"}


ASKED: dict[str, dict[str, Any]] = {
    "row": {"keys": keys(7), "index": 2},
    "digest": {"keys": keys(7), "index": 3},
    "absent": {"keys": keys(7, region="FR"), "index": 3},
    "answer": {"keys": keys(0, 7, 11, 39, 40, 4711), "index": 3},
    "time": {"keys": keys(3), "time_ms": 1_800_000_000_499},
}
SHOWN: dict[str, list[dict[str, Any] | None]] = {
    "row": [row(7)],
    "digest": [None],
    "absent": [None],
    "answer": [row(0), row(7), row(11), row(39), None, None],
    "time": [row(3)],
}
EXISTS = {"row": [True], "digest": [True], "absent": [False], "answer": [True] * 4 + [False] * 2, "time": [True]}


def data(name: str) -> bytes:
    return (GOLDEN / f"{name}.tlog-proof").read_bytes()


def expected(name: str, **other: Any) -> ExpectedRows:
    return ExpectedRows(**({"table": "sales.orders"} | ASKED[name] | other))


@pytest.mark.parametrize("name", ASKED)
def test_a_file_from_the_specification_verifies(name: str) -> None:
    proof = RowProof.read(data(name))
    assert proof.write() == data(name)
    found = proof.verify_all([KEY], None, expected(name, table_uuid=ORDERS))
    assert [one.exists for one in found.rows] == EXISTS[name]
    assert [one.values for one in found.rows] == SHOWN[name]
    assert found.snapshot_id == (5551234567890123456 if name == "time" else 7)


@pytest.mark.parametrize("name", ASKED)
def test_it_is_refused_for_another_question(name: str) -> None:
    proof = RowProof.read(data(name))
    asked = list(expected(name).keys)
    others: list[dict[str, Any]] = [
        {"table": "silver.notes"},
        {"table_uuid": "another"},
        {"index": 0, "time_ms": None},
        {"time_ms": 1_800_000_000_500, "index": None},
        {"keys": [*asked, *keys(1)]},
        {"keys": keys(1)},
        *([{"keys": asked[:at] + asked[at + 1 :]} for at in range(len(asked))] if len(asked) > 1 else []),
    ]
    for other in others:
        with pytest.raises(Unverified):
            proof.verify_all([KEY], None, expected(name, **other))


@pytest.mark.parametrize("name", ASKED)
def test_no_mutation_of_it_verifies(name: str) -> None:
    chance, honest = random.Random(name), data(name)
    for number in range(1500):
        other = data(chance.choice(list(ASKED)))
        file = proof_file.read(honest)
        if number % 2:
            forged = mutated(chance, honest, other)
        else:
            extra = mutated(chance, file.extra, proof_file.read(other).extra)
            forged = proof_file.write(proof_file.ProofFile(file.index, file.hashes, file.checkpoint, extra))
        if forged == honest:
            continue
        with pytest.raises(Unverified):
            RowProof.read(forged).verify_all([KEY], None, expected(name))


def test_the_version_before_is_refused_with_what_to_do() -> None:
    file = proof_file.read(data("row"))
    old = proof_file.ProofFile(file.index, file.hashes, file.checkpoint, b"strandline/row@v1\nxyz")
    with pytest.raises(
        Unverified, match=r"strandline/row@v1, and this version reads strandline/rows@v1: make it again"
    ):
        RowProof.read(proof_file.write(old))
