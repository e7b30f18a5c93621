"""The multiset digest: one value for all rows of a table, whatever their order and files. Equal digests, equal rows.

Each row's digest (docs/row-digest.md) is read as eight 32-bit numbers, and each of the eight is summed over all rows;
the sums and the count are what is compared. Sums can be taken apart over machines, and while rows flow to a writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from catalog.changes.digest import row_digests
from catalog.changes.encoding import Rows

LANES = 8


@dataclass(frozen=True)
class RowsDigest:
    """The count and the sums: exact, however many rows there are."""

    rows: int = 0
    sums: tuple[int, ...] = (0,) * LANES

    @classmethod
    def of(cls, rows: Rows) -> RowsDigest:
        """Of rows that carry field ids. Cost and failure: those of `row_digests`."""
        lanes = row_digests(rows).view(">u4").astype(np.uint64)
        return cls(rows.num_rows, tuple(int(total) for total in lanes.sum(axis=0)) if rows.num_rows else (0,) * LANES)

    @classmethod
    def sum(cls, parts: Iterable[RowsDigest]) -> RowsDigest:
        return sum(parts, start=cls())

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> RowsDigest:
        """From named numbers, as `named` gives them; what is NULL counts nothing."""
        return cls(int(values["rows"] or 0), tuple(int(values[f"lane{lane}"] or 0) for lane in range(LANES)))

    @property
    def named(self) -> dict[str, int]:
        return {"rows": self.rows} | {f"lane{lane}": total for lane, total in enumerate(self.sums)}

    def __add__(self, other: RowsDigest) -> RowsDigest:
        return RowsDigest(self.rows + other.rows, tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)))

    @property
    def hex(self) -> str:
        """As it stands in summaries, leaves and reports."""
        return sha256(f"{self.rows}:{','.join(map(str, self.sums))}".encode()).hexdigest()
