"""How hybrid chooses, and when a table asks to be compacted."""

from __future__ import annotations

import pytest

from catalog.tables.write_modes import WriteProfile, choose, compaction_reason

BIG = 100 << 20


@pytest.mark.parametrize(
    ("write", "mode", "because"),
    [
        (WriteProfile(10, 1_000_000, BIG), "mor", "0.0%"),
        (WriteProfile(10, 100, 4000), "cow", "4000 bytes"),
        (WriteProfile(400_000, 1_000_000, BIG), "cow", "40%"),
        (WriteProfile(100_000, 1_000_000, BIG, pending_deletes=250_000), "cow", "35%"),
        (WriteProfile(100_000, 1_000_000, BIG), "mor", "10.0%"),
        (WriteProfile(100_000, 1_000_000, BIG, reads_per_write=50), "cow", "50 reads per write"),
        (WriteProfile(1_000, 1_000_000, BIG, reads_per_write=50), "mor", "0.1%"),
    ],
)
def test_hybrid_chooses_by_what_the_write_touches_and_says_why(write: WriteProfile, mode: str, because: str) -> None:
    choice = choose("hybrid", write)
    assert choice.mode == mode
    assert because in choice.reason


@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_the_other_modes_do_not_choose(mode: str) -> None:
    assert choose(mode, WriteProfile(1, 1, 1)).mode == mode  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "deletes", "files", "asks"),
    [(0, 0, 0, False), (1000, 99, 1, False), (1000, 100, 1, True), (10**6, 10, 49, False), (10**6, 10, 50, True)],
)
def test_pending_deletes_ask_for_a_compaction(rows: int, deletes: int, files: int, asks: bool) -> None:
    assert (compaction_reason(rows, deletes, files) is not None) == asks
