"""Values found by a row's key: what a search said, asked for a batch of rows at a time. Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Lookup:
    """`Lookup(keys, values, missing)(*columns)`: for each row the value of its key, or `missing`."""

    def __init__(self, keys: Sequence[Any], values: Any, missing: Any) -> None:
        self._sets, self._codes = _encoded(keys)
        self._values, self._missing = values, missing

    def __call__(self, *columns: Any) -> Any:
        found = self._values.take(_places(self._sets, self._codes, columns))
        return found.fill_null(self._missing) if self._missing.is_valid else found


def rows_with(keys: pa.Table, columns: Sequence[Any]) -> Any:
    """Which rows have one of the keys; `keys` has its columns first, in the same order."""
    wanted = [keys.column(at).combine_chunks() for at in range(len(columns))]
    wanted = [pc.cast(found, column.type) for found, column in zip(wanted, columns, strict=True)]
    return pc.is_valid(_places(*_encoded(wanted), columns))


def _encoded(keys: Sequence[Any]) -> tuple[list[Any], Any]:
    """A key of one column is found as it is; of several, by the number of each part among its own values."""
    if len(keys) == 1:
        return [], keys[0]
    sets = [pc.unique(key) for key in keys]
    return sets, _numbered(sets, keys)


def _places(sets: list[Any], codes: Any, columns: Sequence[Any]) -> Any:
    return pc.index_in(columns[0] if not sets else _numbered(sets, columns), value_set=codes)


def _numbered(sets: Sequence[Any], columns: Sequence[Any]) -> Any:
    """One number per key: below 2**63 for all keys that fit into memory, since each set has at most as many values."""
    total: Any = None
    for known, column in zip(sets, columns, strict=True):
        code = pc.cast(pc.index_in(column, value_set=known), pa.int64())  # null: no such value, so no such key
        total = code if total is None else pc.add_checked(pc.multiply_checked(total, len(known)), code)
    return total
