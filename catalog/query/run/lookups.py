"""Looks up values by a row's key, a batch of rows at a time. Arrow in, Arrow out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Lookup:
    """`Lookup(keys, values, missing)(*columns)`: the value of each row's key, or `missing`."""

    def __init__(self, keys: Sequence[Any], values: Any, missing: Any) -> None:
        self._sets, self._codes = _encoded(keys)
        self._values, self._missing = values, missing

    def __call__(self, *columns: Any) -> Any:
        values = self._values.take(_positions(self._sets, self._codes, columns))
        return values.fill_null(self._missing) if self._missing.is_valid else values


def rows_with(keys: pa.Table, columns: Sequence[Any]) -> Any:
    """A mask of the rows whose key is in `keys`, whose first columns are the key's, in the same order."""
    parts = [keys.column(number).combine_chunks() for number in range(len(columns))]
    parts = [pc.cast(part, column.type) for part, column in zip(parts, columns, strict=True)]
    return pc.is_valid(_positions(*_encoded(parts), columns))


def _encoded(keys: Sequence[Any]) -> tuple[list[Any], Any]:
    """A key of one column is looked up as it is; one of several columns by one code made of its parts' positions."""
    if len(keys) == 1:
        return [], keys[0]
    sets = [pc.unique(key) for key in keys]
    return sets, _codes(sets, keys)


def _positions(sets: list[Any], codes: Any, columns: Sequence[Any]) -> Any:
    return pc.index_in(columns[0] if not sets else _codes(sets, columns), value_set=codes)


def _codes(sets: Sequence[Any], columns: Sequence[Any]) -> Any:
    """One code per key: below 2**63 for all keys that fit into memory, since each set has at most as many values."""
    codes: Any = None
    for values, column in zip(sets, columns, strict=True):
        code = pc.cast(pc.index_in(column, value_set=values), pa.int64())  # null: the value is in no key
        codes = code if codes is None else pc.add_checked(pc.multiply_checked(codes, len(values)), code)
    return codes
