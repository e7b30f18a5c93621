"""From rows that left and rows that came to changes: equal rows cancel out, the rest pair up by key.

Rows are compared as multisets of digests, so that a file rewritten with the same rows is no change, and a row
that stands twice and then once is one DELETE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes.buffers import Mask
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
    """Which of two multisets of digests have no counterpart in the other."""
    codes = _codes(left, right)
    here, there = codes[: len(left)], codes[len(left) :]
    kinds = int(codes.max(initial=-1)) + 1
    common = np.minimum(np.bincount(here, minlength=kinds), np.bincount(there, minlength=kinds))
    return _ranks(here) >= common[here], _ranks(there) >= common[there]


def pair(removed: pa.Table, added: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """The changes, in canonical order, that take `removed` away and bring `added`; no row is in both.

    One row of a key before and one after are an UPDATE. Where a key has several rows (nothing in Iceberg
    forbids it), they pair up in the order of their digests, and what is left over are DELETEs or INSERTs.
    Without a key there are no UPDATEs.
    """
    gone, come = np.arange(len(removed)), np.arange(len(added))
    updated = np.empty((0, 2), np.int64)
    if key and len(removed) and len(added):
        updated = _matches(removed, added, key)
        gone, come = np.setdiff1d(gone, updated[:, 0]), np.setdiff1d(come, updated[:, 1])
    ops = [DELETE] * len(gone) + [INSERT] * len(come) + [UPDATE] * len(updated)
    before = _take(removed, [gone, None, updated[:, 0]], len(come), schema)
    after = _take(added, [None, come, updated[:, 1]], len(gone), schema)
    changes = pa.Table.from_arrays([pa.array(ops, pa.string()), before, after], schema=changes_schema(schema))
    return changes.take(canonical_order(key_columns(changes, key), records(changes, key)))


def _matches(removed: pa.Table, added: pa.Table, key: Sequence[str]) -> Codes:
    """Pairs (position in removed, position in added) of rows with the same key, each row in at most one."""
    codes = _codes(key_digests(removed, key), key_digests(added, key))
    sides = list[Codes]()
    for rows, mine in ((removed, codes[: len(removed)]), (added, codes[len(removed) :])):
        # The i-th row of a key, by digest, goes with the i-th of the other side: the order of files has no
        # say.
        by_digest = np.argsort(row_digests(rows).view("S32").ravel(), kind="stable")
        ranks = np.empty(len(mine), np.int64)
        ranks[by_digest] = _ranks(mine[by_digest])
        sides.append(mine * (len(codes) + 1) + ranks)
    _, here, there = np.intersect1d(sides[0], sides[1], assume_unique=True, return_indices=True)
    return np.column_stack([here, there])


def _codes(left: Hashes, right: Hashes) -> Codes:
    """A small number for each digest, equal for equal ones."""
    both = pa.concat_arrays([as_column(left), as_column(right)])
    encoded: Any = pc.dictionary_encode(both)
    codes: Codes = encoded.indices.to_numpy().astype(np.int64)
    return codes


def _ranks(codes: Codes) -> Codes:
    """Of each value, how many equal ones stand before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - starts
    return ranks


def _take(rows: pa.Table, parts: Sequence[Any], nulls: int, schema: pa.Schema) -> pa.Array[Any]:
    """The rows of each part as structs; NULLs, as many as said, for the part that is None."""
    kind = pa.struct(list(schema))
    arrays = []
    for positions in parts:
        if positions is None:
            arrays.append(pa.nulls(nulls, kind))
        else:
            taken = rows.take(pa.array(positions)).combine_chunks()
            columns = [_whole(column) for column in taken.columns]
            arrays.append(pa.StructArray.from_arrays(columns, fields=list(schema)) if columns else pa.nulls(0, kind))
    return pa.concat_arrays(arrays)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
