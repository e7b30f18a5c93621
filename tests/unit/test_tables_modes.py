"""How hybrid chooses, and when a table asks to be compacted."""

from __future__ import annotations

import pytest

from catalog.tables.modes import Write, choose, compaction_reason

BIG = 100 << 20


@pytest.mark.parametrize(
    ("write", "mode", "because"),
    [
        (Write(10, 1_000_000, BIG), "mor", "0.0%"),
        (Write(10, 100, 4000), "cow", "4000 bytes"),
        (Write(400_000, 1_000_000, BIG), "cow", "40%"),
        (Write(100_000, 1_000_000, BIG, pending_deletes=250_000), "cow", "35%"),
        (Write(100_000, 1_000_000, BIG), "mor", "10.0%"),
        (Write(100_000, 1_000_000, BIG, reads_per_write=50), "cow", "50 reads per write"),
        (Write(1_000, 1_000_000, BIG, reads_per_write=50), "mor", "0.1%"),
    ],
)
def test_hybrid_chooses_by_what_the_write_touches_and_says_why(write: Write, mode: str, because: str) -> None:
    choice = choose("hybrid", write)
    assert choice.mode == mode
    assert because in choice.reason


@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_the_other_modes_do_not_choose(mode: str) -> None:
    assert choose(mode, Write(1, 1, 1)).mode == mode  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "deletes", "files", "asks"),
    [(0, 0, 0, False), (1000, 99, 1, False), (1000, 100, 1, True), (10**6, 10, 49, False), (10**6, 10, 50, True)],
)
def test_pending_deletes_ask_for_a_compaction(rows: int, deletes: int, files: int, asks: bool) -> None:
    assert (compaction_reason(rows, deletes, files) is not None) == asks
