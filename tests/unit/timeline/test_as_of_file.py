"""As-of files: those written from the specification alone (tests/golden/as_of) verify, and no mutation of them does."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import strandline
from catalog.core.errors import Unverified
from catalog.merkle.note import VerifierKey
from catalog.timeline import read_as_of, write_as_of
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.reader.evidence import AsOf

GOLDEN = Path(__file__).parents[2] / "golden" / "as_of"
KEY = (GOLDEN / "key").read_text().strip()
ORDERS = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d"
HEAVY = {"pyiceberg", "pyarrow", "numpy", "slatedb", "rfc8785", "boto3", "botocore", "pydantic"}
ASKED: dict[str, dict[str, Any]] = {
    "index.json": {"table": "sales.orders", "index": 2},
    "time.json": {"table": "sales.orders", "time_ms": 1_800_000_000_499},
    "absent.json": {"table": "sales.returns", "index": 2},
}
FOUND: dict[str, tuple[Any, ...]] = {
    "index.json": (ORDERS, 5551234567890123456, 2),
    "time.json": (ORDERS, 5551234567890123456, 1),
    "absent.json": (None, None, 2),
}


def verified(data: bytes, name: str) -> AsOf:
    claim = read_as_of(data)
    claim.verify([VerifierKey.parse(KEY)], **ASKED[name])
    return claim


@pytest.mark.parametrize("name", ASKED)
def test_a_file_by_the_specification_verifies_and_is_written_to_the_same_bytes(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    claim = verified(data, name)
    assert (claim.table_uuid, claim.snapshot_id, claim.index) == FOUND[name]
    assert write_as_of(claim) == data


def test_a_leaf_by_the_specification_is_ours() -> None:
    data = (GOLDEN / "leaf.json").read_bytes()
    leaf = Leaf.decode(data)
    assert leaf.encode() == data
    assert (leaf.table, leaf.attested, leaf.changes_count) == ("sales.orders", "lake", 2)


def test_the_package_verifies_it(tmp_path: Path) -> None:
    found = strandline.verify.as_of(GOLDEN / "index.json", table="sales.orders", at=2, key=KEY, uuid=ORDERS)
    assert (found.uuid, found.snapshot_id, found.index) == FOUND["index.json"]
    at = datetime(2027, 1, 15, 8, 0, 0, 499_000, tzinfo=UTC)
    assert strandline.verify.as_of((GOLDEN / "time.json").read_bytes(), table="sales.orders", at=at, key=KEY).index == 1
    assert strandline.verify.as_of(GOLDEN / "absent.json", table="sales.returns", at=2, key=KEY).uuid is None
    for wrong in ({"table": "sales.b"}, {"at": 1}, {"uuid": ORDERS.replace("6f", "7f")}, {"at": at}):
        with pytest.raises(strandline.Unverified):
            strandline.verify.as_of(GOLDEN / "index.json", **{"table": "sales.orders", "at": 2, "key": KEY} | wrong)
    with pytest.raises(strandline.Invalid, match="time zone"):
        strandline.verify.as_of(GOLDEN / "index.json", table="sales.orders", at=at.replace(tzinfo=None), key=KEY)


def test_it_is_verified_with_the_standard_library_and_cryptography() -> None:
    """What a person who trusts nobody must install and read."""
    code = f"""
import sys
class No:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(HEAVY)}:
            raise ImportError(name)
sys.meta_path.insert(0, No())
from catalog.merkle.note import VerifierKey
from catalog.timeline import read_as_of
claim = read_as_of(open({str(GOLDEN / "index.json")!r}, "rb").read())
claim.verify([VerifierKey.parse({KEY!r})], table="sales.orders", index=2)
print(claim.snapshot_id)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "5551234567890123456", done.stderr


def mutated(record: Any, chance: random.Random) -> Any:
    """The record with one value changed, somewhere."""
    if isinstance(record, dict) and record:
        name = chance.choice(sorted(record))
        if chance.random() < 0.05:
            return {key: value for key, value in record.items() if key != name}
        return {**record, name: mutated(record[name], chance)}
    if isinstance(record, list) and record:
        at = chance.randrange(len(record))
        kind = chance.random()
        if kind < 0.1:
            return record[:at] + record[at + 1 :]
        if kind < 0.2:
            return [*record, record[at]]
        return [*record[:at], mutated(record[at], chance), *record[at + 1 :]]
    if isinstance(record, str) and record:
        at = chance.randrange(len(record))
        other = chance.choice("0123456789abcdefAZ+/={} ")
        return chance.choice([record[:at] + other + record[at + 1 :], record[:at] + record[at + 1 :], None, ""])
    if isinstance(record, int):
        return chance.choice([record + 1, record - 1, 0, -1, None, str(record), 2**52])
    return chance.choice([0, "", "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d", "1", []])


@pytest.mark.parametrize("name", ASKED)
def test_no_mutation_verifies(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    record, chance = json.loads(data), random.Random(name)
    for _ in range(3000):
        other = json.dumps(mutated(record, chance), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        if other == data:
            continue
        with pytest.raises(Unverified):
            verified(other, name)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"null", b"[" * 200_000, b'{"format":"strandline/as-of@v1"}', b" " * (2 << 20), b"\xff\xfe"],
)
def test_what_is_no_such_file_is_refused(data: bytes) -> None:
    with pytest.raises(Unverified):
        read_as_of(data)
