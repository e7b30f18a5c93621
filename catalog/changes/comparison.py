"""The exact changes of a commit, computed from its files. The operation that the writer states is not used.

Exact for appends, copy-on-write, merge-on-read and compaction, and across schema evolution: both sides are read under
the schema of the commit, so adding, renaming or promoting a column changes no row by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import rfc8785
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.arrow_buffers import Mask
from catalog.changes.change_set import ChangeSet, CommitHeader
from catalog.changes.digest import row_digests
from catalog.changes.hashing import Hashes
from catalog.changes.limits import Limit, RowCounts
from catalog.changes.pairing import pair, survivors
from catalog.changes.row_reader import RowReader
from catalog.changes.touched_rows import TouchedFile, diff_snapshots
from catalog.core.errors import Invalid, NotFound
from catalog.iceberg import ManifestReader
from catalog.timeline import Miscounted

KEY_PROPERTY = "strandline.key"


def diff(table: Table, snapshot_id: int | None = None) -> ChangeSet:
    """What the snapshot (by default the current one) changed against its parent.

    Reads the data files that only one of the two has, and those in which rows were newly deleted. Memory: the
    changes themselves, 32 bytes for every row of a removed file, and one row group. Raises NotFound for a
    snapshot that expired, Invalid for a table that cannot be compared.
    """
    snapshot = find_snapshot(table, snapshot_id)
    return between_with_schema(table, parent_of(table, snapshot), snapshot)


def between_with_schema(table: Table, since: Snapshot | None, until: Snapshot) -> ChangeSet:
    """`between` under the schema of `until`, with that schema in the change set."""
    return with_schema(between(table, since, until), table, schema_of(table, until).schema_id)


def between(
    table: Table,
    since: Snapshot | None,
    until: Snapshot,
    *,
    schema: Schema | None = None,
    key: Sequence[str] | None = None,
    limit: Limit | None = None,
    manifests: ManifestReader | None = None,
    miscounted: list[Miscounted] | None = None,
) -> ChangeSet:
    """The net changes from one snapshot (None: the empty table) to another; neither need be the other's ancestor.

    Both are read under `schema`, by default the one `until` was committed with, and paired by `key`, by default the
    table's own under that schema. TooLarge when that would read more than the limit. Added files whose manifest
    states a wrong row count are appended to `miscounted`; their changes are those of the rows they really have.
    """
    schema = schema_of(table, until) if schema is None else schema
    reader = RowReader(table, schema, RowCounts(limit))
    key = key_of(table, schema) if key is None else tuple(key)
    difference = diff_snapshots(table, since, until, manifests)
    if limit is not None:
        limit.check([*difference.removed, *difference.added], reader.count)
    removed, added = _changed_rows(reader, difference.removed, difference.added)
    if miscounted is not None:
        miscounted += _miscounted(difference.added, reader.counts)
    commit = CommitHeader(
        ".".join(table.name()),
        str(table.metadata.table_uuid),
        until.snapshot_id,
        None if since is None else since.snapshot_id,
        until.timestamp_ms,
    )
    return ChangeSet.of(commit, reader.schema, key, pair(removed, added, key, reader.schema))


def _miscounted(sources: Sequence[TouchedFile], counts: RowCounts) -> list[Miscounted]:
    files = [source.file for source in sources if source.only is None]
    counted = [Miscounted(file.file_path, file.record_count, counts.by_path[file.file_path]) for file in files]
    return [file for file in counted if file.stated != file.rows]


def with_schema(changes: ChangeSet, table: Table, schema_id: int) -> ChangeSet:
    """The change set with its table's schema, whose digest is in the leaf. One GET, none if the file is cached."""
    return replace(changes, schema_json=_schema_json(table, schema_id))


def find_snapshot(table: Table, snapshot_id: int | None = None) -> Snapshot:
    snapshot = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        name = ".".join(table.name())
        missing = (
            "no snapshot yet" if snapshot_id is None else f"no snapshot {snapshot_id}: it expired or never existed"
        )
        raise NotFound(f"table {name} has {missing}", subject=name)
    return snapshot


def parent_of(table: Table, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot's parent, None for the first. NotFound when it expired: the commit's changes are then unknown."""
    parent_id = snapshot.parent_snapshot_id
    return None if parent_id is None else find_snapshot(table, parent_id)


def schema_of(table: Table, snapshot: Snapshot) -> Schema:
    """The schema the snapshot was committed with."""
    schemas = table.schemas()
    return table.schema() if snapshot.schema_id is None else schemas.get(snapshot.schema_id, table.schema())


def key_of(table: Table, schema: Schema) -> tuple[str, ...]:
    """The key columns, as the schema names them; () for a table without a key.

    Iceberg's identifier fields take precedence: they belong to the schema, so an old commit keeps the key it had.
    The property `strandline.key` is the current one, and names columns as the current schema does. Either way they are
    in the order of their field ids: changes are sorted by it, so a verifier must be able to tell it from the schema.
    """
    if schema.identifier_field_ids:
        return tuple(schema.find_field(field_id).name for field_id in sorted(schema.identifier_field_ids))
    current = table.schema()
    names = [name for name in table.properties.get(KEY_PROPERTY, "").split(",") if name]
    try:
        field_ids = [(current if name in current.column_names else schema).find_field(name).field_id for name in names]
        return tuple(schema.find_field(field_id).name for field_id in sorted(field_ids))
    except ValueError:
        raise Invalid(
            f"the key {', '.join(names)} of table {'.'.join(table.name())} is not in the schema of that commit",
            subject=".".join(table.name()),
        ) from None


def _changed_rows(
    reader: RowReader, removed: Sequence[TouchedFile], added: Sequence[TouchedFile]
) -> tuple[pa.Table, pa.Table]:
    """The removed and the added rows, without those that only moved from one file to another."""
    empty = reader.schema.empty_table()
    if not removed:
        return empty, pa.concat_tables([empty, *(rows for source in added for rows in reader.read(source))])
    digests = [_digests(reader, source) for source in removed]
    unmatched = np.concatenate(digests)
    added_rows = [empty]
    for source in added:
        for rows in reader.read(source):
            removed_only, added_only = survivors(unmatched, row_digests(rows))
            added_rows.append(rows.filter(pa.array(added_only)))
            unmatched = unmatched[removed_only]
    # Removed rows that no added row matched are read again; keeping all removed rows until here would cost memory.
    removed_rows = [empty, *_rows_with(reader, removed, digests, unmatched)]
    return pa.concat_tables(removed_rows), pa.concat_tables(added_rows)


def _digests(reader: RowReader, source: TouchedFile) -> Hashes:
    groups = [row_digests(rows) for rows in reader.read(source)]
    return np.concatenate(groups) if groups else np.empty((0, 32), np.uint8)


def _rows_with(
    reader: RowReader, sources: Sequence[TouchedFile], digests: Sequence[Hashes], selected: Hashes
) -> Iterator[pa.Table]:
    """The rows with the selected digests, each as often as it is selected. Files without any are not read again.

    `digests` are those of each source's rows, in order.
    """
    for source, in_file in zip(sources, digests, strict=True):
        selected, mask = _take_from(selected, in_file)
        if not mask.any():
            continue
        start = 0
        for rows in reader.read(source):
            yield rows.filter(pa.array(mask[start : start + len(rows)]))
            start += len(rows)


def _take_from(selected: Hashes, in_file: Hashes) -> tuple[Hashes, Mask]:
    """The selected digests that are not in the file, and a mask of the file's rows that are selected."""
    remaining, unselected = survivors(selected, in_file)
    return selected[remaining], ~unselected


def _schema_json(table: Table, schema_id: int) -> bytes:
    """The schema from the table's metadata file as canonical JSON: the bytes under the leaf's schema_sha256."""
    with table.io.new_input(table.metadata_location).open() as stream:
        metadata = json.loads(stream.read())
    schemas = metadata.get("schemas") or [metadata["schema"]]
    return rfc8785.dumps(next(schema for schema in schemas if schema.get("schema-id", 0) == schema_id))
