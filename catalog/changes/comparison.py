"""The exact changes of a commit, computed from its files: what the writer says it did is never asked.

Exact for appends, copy-on-write, merge-on-read and compaction alike, and across schema evolution: both sides
are read under the schema of the commit, so a column added, renamed or promoted changes no row by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import rfc8785
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.buffers import Mask
from catalog.changes.digest import row_digests
from catalog.changes.feed import ChangeSet, Commit
from catalog.changes.hashing import Hashes
from catalog.changes.pairing import pair, survivors
from catalog.changes.reading import Reader
from catalog.changes.sources import Difference, Source, difference
from catalog.errors import Invalid, NotFound
from catalog.tables.manifests import ManifestReader

KEY_PROPERTY = "strandline.key"


def diff(table: Table, snapshot_id: int | None = None) -> ChangeSet:
    """What the snapshot (the current one if not given) changed against its parent.

    Reads the data files that only one of the two has, and those in which rows were newly deleted. Memory: the
    changes themselves, 32 bytes for every row of a removed file, and one row group. Raises NotFound for a
    snapshot that expired, Invalid for a table that cannot be compared.
    """
    snapshot = find_snapshot(table, snapshot_id)
    return full(table, parent_of(table, snapshot), snapshot)


def full(table: Table, since: Snapshot | None, until: Snapshot) -> ChangeSet:
    """`between` under the schema of `until`, and that schema with it."""
    return with_schema(between(table, since, until), table, schema_of(table, until).schema_id)


class TooLarge(Invalid):
    """The comparison would read more than it may."""


@dataclass(frozen=True)
class Limit:
    """How much a comparison may read: rows and bytes of the data files that it has to look into."""

    rows: int
    bytes: int

    def check(self, found: Difference) -> None:
        sources = [*found.removed, *found.added]
        rows = sum(source.file.record_count if source.only is None else len(source.only) for source in sources)
        length = sum(source.file.file_size_in_bytes for source in sources)
        if rows > self.rows or length > self.bytes:
            raise TooLarge(f"{rows} rows in {length} bytes are over the limit of {self.rows} and {self.bytes}")


def between(
    table: Table,
    since: Snapshot | None,
    until: Snapshot,
    *,
    schema: Schema | None = None,
    key: Sequence[str] | None = None,
    limit: Limit | None = None,
    manifests: ManifestReader | None = None,
) -> ChangeSet:
    """The net changes from one snapshot (None: the empty table) to another, in whatever order they came to be.

    Both are read under `schema`, by default the one `until` was committed with, and paired by `key`, by default
    the table's own under it. TooLarge when that would read more than the limit.
    """
    under = schema_of(table, until) if schema is None else schema
    reader, paired = Reader(table, under), key_of(table, under) if key is None else tuple(key)
    found = difference(table, since, until, manifests)
    if limit is not None:
        limit.check(found)
    removed, added = _uncancelled(reader, found.removed, found.added)
    commit = Commit(
        ".".join(table.name()),
        str(table.metadata.table_uuid),
        until.snapshot_id,
        None if since is None else since.snapshot_id,
        until.timestamp_ms,
    )
    return ChangeSet.of(commit, reader.schema, paired, pair(removed, added, paired, reader.schema))


def with_schema(changes: ChangeSet, table: Table, schema_id: int) -> ChangeSet:
    """The change set with its table's schema, for which the timeline vouches. One GET, none if it was seen."""
    return replace(changes, schema_json=_schema_json(table, schema_id))


def find_snapshot(table: Table, snapshot_id: int | None = None) -> Snapshot:
    found = table.current_snapshot() if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    if found is None:
        name = ".".join(table.name())
        what = "no snapshot yet" if snapshot_id is None else f"no snapshot {snapshot_id}: it expired, or never was"
        raise NotFound(f"table {name} has {what}", subject=name)
    return found


def parent_of(table: Table, snapshot: Snapshot) -> Snapshot | None:
    """The snapshot's parent, None for the first. NotFound when it expired: what the commit changed is unknowable."""
    parent_id = snapshot.parent_snapshot_id
    return None if parent_id is None else find_snapshot(table, parent_id)


def schema_of(table: Table, snapshot: Snapshot) -> Schema:
    """The schema the snapshot was committed with."""
    schemas = table.schemas()
    return table.schema() if snapshot.schema_id is None else schemas.get(snapshot.schema_id, table.schema())


def key_of(table: Table, schema: Schema) -> tuple[str, ...]:
    """The key columns, as the schema names them; () for a table without a key.

    Iceberg's identifier fields come first: they belong to the schema, so an old commit has the key it had
    then. The property `strandline.key` is today's, and its names are today's too.
    """
    if schema.identifier_field_ids:
        return tuple(schema.find_field(number).name for number in sorted(schema.identifier_field_ids))
    today, names = (
        table.schema(),
        [name for name in table.properties.get(KEY_PROPERTY, "").split(",") if name],
    )
    try:
        numbers = [(today if name in today.column_names else schema).find_field(name).field_id for name in names]
        return tuple(schema.find_field(number).name for number in numbers)
    except ValueError:
        raise Invalid(
            f"the key {', '.join(names)} of table {'.'.join(table.name())} is not in the schema of that commit",
            subject=".".join(table.name()),
        ) from None


def _uncancelled(reader: Reader, removed: Sequence[Source], added: Sequence[Source]) -> tuple[pa.Table, pa.Table]:
    """The rows that left and the rows that came, without those that only moved from one file to another."""
    nothing = reader.schema.empty_table()
    if not removed:
        return nothing, pa.concat_tables([nothing, *(rows for source in added for rows in reader.read(source))])
    digests = [_digests(reader, source) for source in removed]
    left = np.concatenate(digests)
    come = [nothing]
    for source in added:
        for rows in reader.read(source):
            gone, fresh = survivors(left, row_digests(rows))
            come.append(rows.filter(pa.array(fresh)))
            left = left[gone]
    # What is left did not come back. Its rows are read again, rather than all rows held until here.
    return pa.concat_tables([nothing, *_rows_of(reader, removed, digests, left)]), pa.concat_tables(come)


def _digests(reader: Reader, source: Source) -> Hashes:
    parts = [row_digests(rows) for rows in reader.read(source)]
    return np.concatenate(parts) if parts else np.empty((0, 32), np.uint8)


def _rows_of(
    reader: Reader, sources: Sequence[Source], digests: Sequence[Hashes], wanted: Hashes
) -> Iterator[pa.Table]:
    """The rows with the wanted digests, each as often as it is wanted. Files without any are not read again."""
    for source, mine in zip(sources, digests, strict=True):
        wanted, keep = _split(wanted, mine)
        if not keep.any():
            continue
        start = 0
        for rows in reader.read(source):
            yield rows.filter(pa.array(keep[start : start + len(rows)]))
            start += len(rows)


def _split(wanted: Hashes, mine: Hashes) -> tuple[Hashes, Mask]:
    """What is wanted still, and which of `mine` are taken for it."""
    still, left_over = survivors(wanted, mine)
    return wanted[still], ~left_over


def _schema_json(table: Table, schema_id: int) -> bytes:
    """The schema as the table's metadata file spells it, in canonical form: what the timeline takes the digest of."""
    with table.io.new_input(table.metadata_location).open() as stream:
        metadata = json.loads(stream.read())
    schemas = metadata.get("schemas") or [metadata["schema"]]
    return rfc8785.dumps(next(one for one in schemas if one.get("schema-id", 0) == schema_id))
