"""The rows digest: one value for all rows of a table, whatever their order and files. Two tables with the same digest
have the same rows, also against somebody who chooses the rows.

It is LtHash-32/1024 (docs/row-digest.md has the analysis): BLAKE3 stretches each row digest to 1,024 numbers of 32
bits (lanes), and each lane is summed over all rows modulo 2^32. Sums of parts add up, so a digest can be computed on
many machines, while rows stream to a writer, and from the previous digest and a change set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from blake3 import blake3

from catalog.changes.digest import row_digests
from catalog.changes.encoding import Rows
from catalog.core.errors import Invalid

LANES = 1024
_LANE = np.dtype("<u4")
STATE_BYTES = LANES * _LANE.itemsize
_CONTEXT = b"strandline/rows-digest@v2\n"
_ROWS_AT_ONCE = 64
"""As many stretched digests as the processor's second-level cache holds: 256 KiB."""
MAX_ROWS = 2**32
"""Copies of one row that leave every lane as it was: a table with as many rows has no digest."""


@dataclass(frozen=True)
class RowsDigest:
    """The number of rows, and the sum of each lane as 4,096 bytes, little-endian."""

    rows: int = 0
    state: bytes = bytes(STATE_BYTES)

    @classmethod
    def of(cls, rows: Rows) -> RowsDigest:
        """The digest of rows that carry field ids. Costs 4,096 bytes of BLAKE3 a row beside `row_digests`."""
        return cls.of_digests(row_digests(rows))

    @classmethod
    def of_digests(cls, digests: np.ndarray[Any, Any]) -> RowsDigest:
        """The digest of rows given by their row digests: an array of 32 bytes for each row."""
        data, count = digests.tobytes(), len(digests)
        total = np.zeros(LANES, _LANE)
        for first in range(0, count, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, count)
            stretched = [blake3(data[at * 32 : at * 32 + 32]).digest(STATE_BYTES) for at in range(first, last)]
            total += np.frombuffer(b"".join(stretched), _LANE).reshape(-1, LANES).sum(axis=0, dtype=_LANE)
        return cls(count, total.tobytes())

    @classmethod
    def sum(cls, parts: Iterable[RowsDigest]) -> RowsDigest:
        return sum(parts, start=cls())

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> RowsDigest:
        """The inverse of `columns`."""
        state = bytes(values["state"])
        if len(state) != STATE_BYTES:
            raise Invalid(f"the state of a rows digest has {STATE_BYTES} bytes, not {len(state)}")
        return cls(int(values["rows"]), state)

    @property
    def columns(self) -> dict[str, Any]:
        """The count and the state by name."""
        return {"rows": self.rows, "state": self.state}

    def __add__(self, other: RowsDigest) -> RowsDigest:
        return RowsDigest(self.rows + other.rows, (self._lanes() + other._lanes()).tobytes())

    def __sub__(self, other: RowsDigest) -> RowsDigest:
        """The digest without the rows of another one, all of which must be among these."""
        return RowsDigest(self.rows - other.rows, (self._lanes() - other._lanes()).tobytes())

    @property
    def hex(self) -> str:
        """The form in snapshot summaries, leaves and reports: SHA-256 of the count and the state."""
        if not 0 <= self.rows < MAX_ROWS:
            raise Invalid(f"a rows digest holds for at most {MAX_ROWS - 1} rows, and this is of {self.rows}")
        return sha256(_CONTEXT + self.rows.to_bytes(8, "big") + self.state).hexdigest()

    def _lanes(self) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.state, _LANE)
