"""Rows from the timeline: a table's leaves, all leaves that the caller may see, and the changes of a table's rows.

Every leaf is proven against the signed checkpoint, or found through the proven index of its table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog.changes import ChangeSet, timeline_changes
from catalog.core.errors import Invalid, NotFound
from catalog.core.point_in_time import FEED_GRAMMAR, TimelineIndex, feed_position
from catalog.query.sql.system_refs import SystemRef
from catalog.query.system.catalog_rows import Types, as_table
from catalog.tables import TableVersion
from catalog.timeline import Leaf, Timeline, cut_at

MAX_LEAVES = 10_000
_MS = pa.timestamp("ms", "UTC")
LEAVES: Types = {
    "index": pa.int64(),
    "table_name": pa.string(),
    "table_uuid": pa.string(),
    "sequence": pa.int64(),
    "operation": pa.string(),
    "ref": pa.string(),
    "snapshot_id": pa.int64(),
    "parent_id": pa.int64(),
    "committed": _MS,
    "sequenced": _MS,
    "changes": pa.int64(),
}


def history(timeline: Timeline, version: TableVersion, last: int | None, *, shows_counts: bool) -> pa.Table:
    """The table's leaves up to an index, oldest first; none for a table that is not sequenced yet."""
    rows = []
    try:
        for index, leaf in timeline.commits_since(version.name) if last is not None else ():
            if leaf.table_uuid != version.uuid or (last is not None and index > last):
                break
            rows.append(_row(index, leaf, shows_counts))
            if len(rows) > MAX_LEAVES:
                raise Invalid(f"{version.name} has more than {MAX_LEAVES} leaves: read timeline(since, until) instead")
    except NotFound:
        pass  # the timeline has no leaf of it
    return as_table(rows, LEAVES)


def leaves(
    timeline: Timeline,
    ref: SystemRef,
    last: int | None,
    readable: Callable[[list[str]], Iterable[str]],
    is_filtered: Callable[[str], bool],
) -> pa.Table:
    """The leaves of the tables that the caller may read, after `since` up to `until`. One proof for each leaf."""
    first = -1 if ref.point(0) is None else _index(timeline, ref, 0)
    until = last if ref.point(1) is None else min(_index(timeline, ref, 1), -1 if last is None else last)
    rows: list[dict[str, Any]] = []
    if until is None:
        return as_table(rows, LEAVES)
    if until - first > MAX_LEAVES:
        raise Invalid(
            f"timeline() has {until - first} leaves, more than {MAX_LEAVES}: name a range of them, for example "
            f"timeline({until - MAX_LEAVES}, {until})"
        )
    may_read: dict[str, tuple[bool, bool]] = {}
    for index in range(first + 1, until + 1):
        leaf = timeline.commit(index)
        if leaf.table not in may_read:
            may_read[leaf.table] = (bool(list(readable([leaf.table]))), is_filtered(leaf.table))
        shown, filtered = may_read[leaf.table]
        if shown:
            rows.append(_row(index, leaf, not filtered))
    return as_table(rows, LEAVES)


def changes(timeline: Timeline, table: Table, since: Any, until: Any, most_bytes: int) -> pa.Table:
    """The rows that each commit inserted, deleted or updated, under the table's newest schema, columns by field id."""
    schema = table.metadata.schema()
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    row = pa.struct([pa.field(field.name, field.type) for field in arrow])
    columns = {name: LEAVES[name] for name in ("index", "sequence", "snapshot_id", "committed")}
    out = pa.schema([*columns.items(), ("op", pa.string()), ("before", row), ("after", row)])
    ids = [field.field_id for field in schema.fields]
    batches, size = [], 0
    for change_set in timeline_changes(timeline, table, _position(since), _position(until)):
        part = _change_rows(change_set, out, row, ids)
        batches.append(part)
        size += part.nbytes
        if size > most_bytes:
            raise Invalid(
                f"the changes of {'.'.join(table.name())} have more than {most_bytes >> 20} MiB: name a shorter range, "
                f"changes('…', since, until) with {FEED_GRAMMAR}"
            )
    return pa.concat_tables(batches) if batches else out.empty_table()


def _change_rows(changes: ChangeSet, out: pa.Schema, row: pa.StructType, ids: list[int]) -> pa.Table:
    header, count = changes.commit, len(changes)
    names = {field["id"]: field["name"] for field in json.loads(changes.schema_json or b"{}").get("fields", ())}
    constant = {
        "index": header.index,
        "sequence": header.sequence,
        "snapshot_id": header.snapshot_id,
        "committed": header.committed_ms,
    }
    arrays = [pa.array([constant[name]] * count, out.field(name).type) for name in constant]
    arrays.append(changes.changes.column("op").cast(pa.string()).combine_chunks())
    for side in ("before", "after"):
        arrays.append(_conformed(changes.changes.column(side).combine_chunks(), row, [names.get(id_) for id_ in ids]))
    return pa.Table.from_arrays([_one(array) for array in arrays], schema=out)


def _conformed(values: Any, row: pa.StructType, names: list[str | None]) -> Any:
    """The structs with the newest schema's fields: renamed ones under their new name, missing ones NULL."""
    values = _one(values)
    children = []
    for number, name in enumerate(names):
        field = row.field(number)
        missing = name is None or values.type.get_field_index(name) < 0
        try:
            children.append(pa.nulls(len(values), field.type) if missing else values.field(name).cast(field.type))
        except pa.ArrowException as error:
            raise Invalid(
                f"the changes have {field.name} as {values.field(name).type}, which does not become {field.type} "
                f"({error}): read a shorter range"
            ) from None
    return pa.StructArray.from_arrays(children, fields=list(row), mask=values.is_null())


def _one(values: Any) -> Any:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _position(value: Any) -> Any:
    return None if value is None else feed_position(value)


def _index(timeline: Timeline, ref: SystemRef, number: int) -> int:
    point = ref.point(number)
    assert point is not None
    return point.index if isinstance(point, TimelineIndex) else cut_at(timeline, [], point).index


def _row(index: int, leaf: Leaf, shows_counts: bool) -> dict[str, Any]:
    return {
        "index": index,
        "table_name": leaf.table,
        "table_uuid": leaf.table_uuid,
        "sequence": leaf.sequence,
        "operation": leaf.operation,
        "ref": leaf.ref,
        "snapshot_id": leaf.snapshot_id,
        "parent_id": leaf.parent_id,
        "committed": leaf.committed_ms,
        "sequenced": leaf.sequenced_ms,
        "changes": leaf.changes_count if shows_counts else None,
    }
