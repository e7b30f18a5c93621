"""A signed watermark stays valid for ever: who knows a later one does not accept it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.core.errors import Unverified
from catalog.merkle import Ed25519Signer
from catalog.timeline.log.watermarks import Watermark, open_watermark

SIGNER = Ed25519Signer("strandline.example/lake", b"k" * 32)
FIRST = Watermark("gold", "sales.orders", "a-uuid", 3, 1, "run-1")
SECOND = replace(FIRST, sequence=7, moves=2, holder="run-2")
ANEW = replace(FIRST, table_uuid="b-uuid", sequence=0)


def opened(watermark: Watermark, **known: object) -> Watermark:
    note = watermark.sign(SIGNER)
    return open_watermark(note, [SIGNER.verifier_key], "gold", "sales.orders", **known)  # type: ignore[arg-type]


def test_a_watermark_is_the_one_that_was_seen_or_a_later_one() -> None:
    assert opened(FIRST) == opened(FIRST, seen=FIRST) == FIRST
    assert opened(SECOND, seen=FIRST) == SECOND
    old = (FIRST, replace(SECOND, sequence=6), replace(SECOND, holder="other"), replace(SECOND, moves=1))
    for replayed in (*old, replace(FIRST, moves=9), replace(SECOND, sequence=99), replace(SECOND, moves=99)):
        with pytest.raises(Unverified, match="shown again"):
            opened(replayed, seen=SECOND)


def test_a_watermark_on_another_table_of_the_name_is_not_a_later_one() -> None:
    for watermark, seen in ((ANEW, SECOND), (SECOND, ANEW)):
        with pytest.raises(Unverified, match="shown again"):
            opened(watermark, seen=seen)
    assert opened(ANEW, seen=SECOND, table_uuid="b-uuid") == ANEW
    with pytest.raises(Unverified, match="uuid"):
        opened(SECOND, seen=SECOND, table_uuid="b-uuid")
    with pytest.raises(Unverified, match="shown again"):
        opened(SECOND, seen=replace(SECOND, consumer="silver", moves=1, sequence=1))
