"""Removed and added rows as changes: equal rows cancel out, the others are paired by key.

Rows are compared as multisets of digests, so a file rewritten with the same rows is no change, and a row that occurs
twice before and once after is one DELETE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes.arrow_buffers import Mask
from catalog.changes.digest import key_digests, row_digests
from catalog.changes.hashing import Hashes, as_column
from catalog.changes.records import (
    DELETE,
    INSERT,
    UPDATE,
    canonical_order,
    changes_schema,
    key_columns,
    records,
)

Codes: TypeAlias = npt.NDArray[np.int64]


def survivors(left: Hashes, right: Hashes) -> tuple[Mask, Mask]:
    """Masks of the digests in each of two multisets that have no counterpart in the other."""
    codes = _codes(left, right)
    left_codes, right_codes = codes[: len(left)], codes[len(left) :]
    distinct = int(codes.max(initial=-1)) + 1
    common = np.minimum(np.bincount(left_codes, minlength=distinct), np.bincount(right_codes, minlength=distinct))
    return _ranks(left_codes) >= common[left_codes], _ranks(right_codes) >= common[right_codes]


def pair(removed: pa.Table, added: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The changes, in canonical order, that remove the rows `removed` and add the rows `added`; no row is in both.

    A removed and an added row with the same key are an UPDATE. Several rows with the same key (Iceberg does not forbid
    it) are paired in the order of their digests; rows without a pair are DELETEs or INSERTs. Without a key there are
    no UPDATEs.
    """
    deleted, inserted = np.arange(len(removed)), np.arange(len(added))
    updated = np.empty((0, 2), np.int64)
    if key and len(removed) and len(added):
        updated = _matches(removed, added, key)
        deleted, inserted = np.setdiff1d(deleted, updated[:, 0]), np.setdiff1d(inserted, updated[:, 1])
    ops = [DELETE] * len(deleted) + [INSERT] * len(inserted) + [UPDATE] * len(updated)
    before = _take(removed, [deleted, None, updated[:, 0]], len(inserted), schema)
    after = _take(added, [None, inserted, updated[:, 1]], len(deleted), schema)
    changes = pa.Table.from_arrays([pa.array(ops, pa.string()), before, after], schema=changes_schema(schema))
    return changes.take(canonical_order(key_columns(changes, key), records(changes, key)))


def _matches(removed: pa.Table, added: pa.Table, key: Sequence[str]) -> Codes:
    """Pairs (position in removed, position in added) of rows with the same key, each row in at most one."""
    codes = _codes(key_digests(removed, key), key_digests(added, key))
    sides = list[Codes]()
    for rows, row_codes in ((removed, codes[: len(removed)]), (added, codes[len(removed) :])):
        # The i-th removed row of a key, by digest, pairs with the i-th added one, whatever the order of the files.
        by_digest = np.argsort(row_digests(rows).view("S32").ravel(), kind="stable")
        ranks = np.empty(len(row_codes), np.int64)
        ranks[by_digest] = _ranks(row_codes[by_digest])
        sides.append(row_codes * (len(codes) + 1) + ranks)
    _, in_removed, in_added = np.intersect1d(sides[0], sides[1], assume_unique=True, return_indices=True)
    return np.column_stack([in_removed, in_added])


def _codes(left: Hashes, right: Hashes) -> Codes:
    """A small integer for each digest, equal for equal digests."""
    both = pa.concat_arrays([as_column(left), as_column(right)])
    encoded: Any = pc.dictionary_encode(both)
    codes: Codes = encoded.indices.to_numpy().astype(np.int64)
    return codes


def _ranks(codes: Codes) -> Codes:
    """For each value, the number of equal values before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - starts
    return ranks


def _take(rows: pa.Table, parts: Sequence[Any], nulls: int, schema: pa.Schema) -> pa.Array[Any]:
    """The rows at each part's positions as structs; for the part that is None, `nulls` NULLs."""
    kind = pa.struct(list(schema))
    arrays = []
    for positions in parts:
        if positions is None:
            arrays.append(pa.nulls(nulls, kind))
        else:
            selected = rows.take(pa.array(positions)).combine_chunks()
            columns = [_combined(column) for column in selected.columns]
            arrays.append(pa.StructArray.from_arrays(columns, fields=list(schema)) if columns else pa.nulls(0, kind))
    return pa.concat_arrays(arrays)


def _combined(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
