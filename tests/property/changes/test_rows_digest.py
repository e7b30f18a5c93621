"""The rows digest is LtHash-32/1024 over BLAKE3: equal to a plain reference, additive, and no help to a forger."""

from __future__ import annotations

import struct
from functools import reduce
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.changes.multiset import LANES, MAX_ROWS, RowsDigest
from catalog.core.errors import Invalid
from tests.property.changes.reference_encoding import reference_row
from tests.property.changes.typed_tables import tables


def reference(digests: list[bytes]) -> tuple[int, bytes]:
    """Lane by lane, in Python's integers."""
    sums = [0] * LANES
    for digest in digests:
        lanes = struct.unpack(f"<{LANES}I", blake3(digest).digest(4096))
        sums = [(total + lane) % 2**32 for total, lane in zip(sums, lanes, strict=True)]
    return len(digests), struct.pack(f"<{LANES}I", *sums)


@settings(max_examples=60, deadline=None)
@given(tables(), st.data())
def test_the_digest_is_the_reference_s_whatever_the_order(made: tuple[pa.Schema, list, pa.Table], data) -> None:
    schema, rows, table = made
    expected = RowsDigest(*reference([sha256(reference_row(schema, row)).digest() for row in rows]))
    whole = RowsDigest.of(table)
    assert whole == expected
    cut = data.draw(st.integers(0, len(rows)))
    first, last = RowsDigest.of(table.slice(0, cut)), RowsDigest.of(table.slice(cut))
    assert last + first == RowsDigest.sum([first, last]) == whole
    assert whole - first == last
    assert RowsDigest.parse(whole.columns) == whole


@given(st.integers(0, 200))
def test_many_rows_are_added_in_groups_with_the_same_result(count: int) -> None:
    digests = [sha256(b"%d" % row).digest() for row in range(count)]
    array = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
    assert RowsDigest.of_digests(array) == RowsDigest(*reference(digests))


def test_blake3_and_the_digest_give_the_bytes_that_others_must() -> None:
    assert (
        blake3(b"").hexdigest() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    )  # its own vector
    one = RowsDigest.of_digests(np.frombuffer(sha256(b"row").digest(), np.uint8).reshape(1, 32))
    assert one.state == blake3(sha256(b"row").digest()).digest(4096)
    preimage = b"strandline/rows-digest@v2\n" + (1).to_bytes(8, "big") + one.state
    assert one.hex == sha256(preimage).hexdigest()
    assert RowsDigest().hex == sha256(b"strandline/rows-digest@v2\n" + bytes(8 + 4096)).hexdigest()


def copies(row: bytes, doublings: int) -> RowsDigest:
    one = RowsDigest.of_digests(np.frombuffer(sha256(row).digest(), np.uint8).reshape(1, 32))
    return reduce(lambda total, _: total + total, range(doublings), one)


@pytest.mark.parametrize("doublings", [1, 8, 16, 24, 31])
def test_copies_of_one_row_never_pass_for_copies_of_another(doublings: int) -> None:
    """With lanes of 16 bits, 65,536 copies of any row add nothing: such a table could be replaced whole."""
    assert copies(b"a", doublings) != copies(b"b", doublings)
    assert copies(b"a", doublings).hex != copies(b"b", doublings).hex


def test_a_table_so_large_that_copies_could_cancel_has_no_digest() -> None:
    too_many = copies(b"a", 32)
    assert too_many.rows == MAX_ROWS
    with pytest.raises(Invalid, match="at most 4294967295 rows"):
        _ = too_many.hex
    with pytest.raises(Invalid, match="4096 bytes"):
        RowsDigest.parse({"rows": 1, "state": b"short"})
