"""Change records: the bytes of a row change that the changes root covers, and their canonical order.

A record is 97 bytes: the op's letter (D, I or U), the key's digest, the digest of the row before, the digest of the row
after; 32 zeros where there is no row. Records are ordered by (key, op, before, after), keys by value: NULL first,
numbers and times by size, text and bytes by their bytes. In a table without a key, the row's digest is the key's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.changes.arrow_buffers import Binary, Mask
from catalog.changes.digest import key_digests, row_digests
from catalog.changes.hashing import PART, Hashes, as_column, parts, prefixed, sha256_all
from catalog.core.errors import Invalid, Unverified

INSERT: Final = "INSERT"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

RECORD_SIZE: Final = 97
_OPS: Final = pa.array([DELETE, INSERT, UPDATE])
_LETTERS: Final = np.frombuffer(b"DIU", dtype=np.uint8)
_KEY, _BEFORE, _AFTER = slice(1, 33), slice(33, 65), slice(65, 97)


def changes_schema(schema: pa.Schema) -> pa.Schema:
    """A feed's columns: `op`, and the row `before` and `after` as structs of the table's columns."""
    row = pa.struct(list(schema))
    return pa.schema([pa.field("op", pa.string(), nullable=False), pa.field("before", row), pa.field("after", row)])


def side(changes: pa.Table, name: str) -> pa.Table:
    """The rows of one side (`before` or `after`), without the changes that have none."""
    column = changes.column(name)
    rows = _combined(column.filter(column.is_valid()) if column.null_count else column)
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])


def records(changes: pa.Table, key: Sequence[str]) -> Hashes:
    """The record of each change, as an array of shape (n, 97). Unverified when op and rows contradict each other."""
    code = pc.index_in(changes.column("op"), value_set=_OPS)
    if code.null_count:
        raise Unverified("a change has an op other than INSERT, UPDATE and DELETE")
    ops = code.to_numpy().astype(np.int64)
    has = {name: changes.column(name).is_valid().to_numpy() for name in ("before", "after")}
    if not (np.array_equal(has["before"], ops != 1) and np.array_equal(has["after"], ops != 0)):
        raise Unverified(
            "a change has a row before or after that its op does not allow, or lacks one that its op requires"
        )
    out = np.zeros((len(ops), RECORD_SIZE), dtype=np.uint8)
    out[:, 0] = _LETTERS[ops]
    sides = {name: side(changes, name) for name in ("before", "after")}
    for name, columns in (("before", _BEFORE), ("after", _AFTER)):
        _put(out, has[name], columns, row_digests(sides[name]))
    deleted = ops == 0  # the key is the row after's; a DELETE has only the row before
    if key:
        _put(out, deleted, _KEY, key_digests(sides["before"].filter(pa.array(deleted[has["before"]])), key))
        _put(out, ~deleted, _KEY, key_digests(sides["after"], key))
    else:
        out[deleted, _KEY], out[~deleted, _KEY] = out[deleted, _BEFORE], out[~deleted, _AFTER]
    return out


def _put(out: Hashes, mask: Mask, columns: slice, hashes: Hashes) -> None:
    """Writes hashes into the masked records. A mask that selects all is not applied, which is faster."""
    if len(hashes) == len(out):
        out[:, columns] = hashes
    elif len(hashes):
        out[mask, columns] = hashes


def leaf_hashes(block: Hashes) -> Hashes:
    """The RFC 6962 leaf hash of each record."""
    return sha256_all((prefixed(0, part) for part in parts(block)), len(block))


def change_hashes(changes: pa.Table, key: Sequence[str]) -> Hashes:
    """The leaf hash of each change, for callers that do not need the records. Memory: the records of PART changes."""
    slices = (changes.slice(start, PART) for start in range(0, len(changes), PART))
    return sha256_all((prefixed(0, records(part, key)) for part in slices), len(changes))


def canonical_order(keys: pa.Table, block: Hashes) -> Any:
    """The positions of the changes in canonical order. `keys`: the key columns of each change, if any."""
    columns = {f"key{at}": _comparable(column) for at, column in enumerate(keys.columns)}
    if not columns:
        columns["key"] = as_binary(block[:, _KEY])
    columns |= {"op": pa.array(block[:, 0])}
    order = [(name, "ascending", "at_start") for name in columns]
    # These order changes with the same key and op, which a table with a unique key does not have.
    columns |= {"before": as_binary(block[:, _BEFORE]), "after": as_binary(block[:, _AFTER])}
    order += [(name, "ascending", "at_start") for name in ("before", "after")]
    sort: Any = pc.sort_indices
    return sort(pa.table(columns), sort_keys=order)


def key_columns(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Each change's key columns: those of the row after, or for a DELETE of the row before."""
    after, before = (_combined(changes.column(name)) for name in ("after", "before"))
    kind = changes.schema.field("after").type
    columns = [pc.if_else(after.is_valid(), _child(after, name), _child(before, name)) for name in key]
    return pa.Table.from_arrays(columns, schema=pa.schema([kind.field(name) for name in key]))


def as_binary(hashes: Hashes) -> Binary:
    return as_column(hashes).cast(pa.binary())


def _child(structs: Any, name: str) -> Any:
    return structs.flatten()[structs.type.get_field_index(name)]


def _combined(column: Any) -> Any:
    """A column as one array, also when it has no chunks, or chunks that combine_chunks keeps apart."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _comparable(column: Any) -> Any:
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
        raise Invalid(f"a column of type {column.type} cannot be a key")
    return column
