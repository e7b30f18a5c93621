"""How large the proof of a row among a million is, in a log of 1,001 leaves and ten tables.

The aim is 2 KB. The six digests in the leaf that ends the batch are what is beyond it: 256 bytes in base64.
"""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from hashlib import sha256
from statistics import mean
from uuid import uuid4

import pytest

from catalog.changes import proof_records
from catalog.changes.row_proof import RowProof
from catalog.changes.state_proof import Place, ShownRow
from catalog.changes.state_root import StateDescription
from catalog.timeline import Leaf, TableEntry

ROWS, LEAVES, TABLES = 1_000_000, 1_001, 10
NAME, ORIGIN = "silver.people", "strandline.example/lake"


def depths() -> list[int]:
    """The lengths of all paths in a state map of so many rows: a key's leaf is where no other key has its prefix."""
    keys = sorted(int.from_bytes(sha256(b"%d" % number).digest()[:8], "big") for number in range(ROWS))
    shared = [64 - (a ^ b).bit_length() for a, b in itertools.pairwise(keys)]
    return [max(pair) + 1 for pair in zip([-1, *shared], [*shared, -1], strict=True)]


def digest() -> str:
    return secrets.token_hex(32)


def leaf(table: str, uuid: str, state_root: str) -> Leaf:
    return Leaf(
        table=table, table_uuid=uuid, snapshot_id=secrets.randbits(62), parent_id=secrets.randbits(62), sequence=120,
        committed_ms=1_795_000_000_000, sequenced_ms=1_795_000_000_500, operation="append", ref="main",
        schema_sha256=digest(), metadata_sha256=digest(), manifest_list_sha256=digest(), content_root=digest(),
        content_count=3, changes_root=digest(), changes_count=1000, attested="lake", map_root=digest(),
        state_digest=digest(), state_root=state_root,
    )  # fmt: skip


def size(*, of_table: bool, depth: int, log_path: int) -> int:
    uuid = str(uuid4())
    entry = TableEntry(uuid, 120, LEAVES - 1, LEAVES - 1, secrets.randbits(62), digest())
    last = leaf(NAME, uuid, str(entry.state_root)) if of_table else leaf("bronze.readings", str(uuid4()), digest())
    hashes = [tuple(secrets.token_bytes(32) for _ in range(count)) for count in (log_path, 4, depth)]
    note = f"{ORIGIN}\n{LEAVES}\n{'A' * 43}=\n\n— {ORIGIN} {'A' * 91}=\n".encode()
    row = ShownRow(0, secrets.token_bytes(32), secrets.token_bytes(32), b"x" * 40)
    description = StateDescription(((1, "id"), (2, "name"), (3, "amount")), ((1, "long"),))
    short = proof_records.shorten_leaf(last, NAME, entry)
    place = Place(hashes[2], row)
    proof = RowProof(LEAVES - 1, hashes[0], note, short, replace(entry, state_root=""), hashes[1], description, place)
    return len(proof.write())


def test_a_path_among_a_million_rows_has_about_21_hashes() -> None:
    lengths = depths()
    assert 21 <= mean(lengths) <= 22 and max(lengths) < 64


@pytest.mark.parametrize(
    ("of_table", "log_path", "most"), [(True, 6, 2160), (False, 6, 2250), (True, 10, 2340), (False, 10, 2430)]
)
def test_a_proof_does_not_grow(of_table: bool, log_path: int, most: int) -> None:
    """`log_path`: 6 for the last leaf of 1,001, 10 for one in the middle. `of_table`: its commit was the last one."""
    assert size(of_table=of_table, depth=22, log_path=log_path) <= most
    assert size(of_table=of_table, depth=22, log_path=log_path) > most - 60  # say it here when it shrinks
