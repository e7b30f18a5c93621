"""Brings a vector table to its source's newest snapshot: what changed is deleted, embedded and added.

    restore   the version the head points to becomes the newest: leftovers of a crash go out of sight
    delete    the keys that changed or went
    add       the rows that changed or came, embedded
    head      one compare-and-swap: from here on readers see it

A crash anywhere before the last step leaves versions that nobody reads, and the next refresh starts at `restore`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog.changes.digest import conform, key_digests
from catalog.changes.history import net_changes
from catalog.errors import NotFound
from catalog.vectors.embedding import Embedder
from catalog.vectors.head import Entry, Head, Heads
from catalog.vectors.lance import KEY, SNAPSHOT, VECTOR, Chain, Lance, lance_schema, vector_column

KEPT_ENTRIES = 1000
"""So many snapshots back can be searched as of."""


class Refresh:
    """One refresh of one vector table. Not for sharing."""

    def __init__(self, lance: Lance, heads: Heads, embedder: Embedder) -> None:
        self._lance, self._heads, self._embedder = lance, heads, embedder

    def run(self, head: Head, etag: str, table: Table, *, rebuild: bool = False) -> Head:
        """The head afterwards; the same one if there was nothing to do. Conflict if somebody else refreshes too.

        Costs the change set of the source since the last refresh and an embedding of every row that came or
        changed; a rebuild, or a source whose history has expired, costs a scan and an embedding of every row.
        """
        snapshot = table.current_snapshot()
        newest = head.newest
        if snapshot is None or (newest is not None and newest.snapshot_id == snapshot.snapshot_id and not rebuild):
            return head
        since = None if newest is None or rebuild else newest.snapshot_id
        try:
            if newest is None or since is None:
                chain = self._build(head, table, snapshot.snapshot_id)
            else:
                chain = self._follow(head, newest, table, snapshot.snapshot_id)
        except NotFound:
            if since is None:
                raise
            chain = self._build(head, table, snapshot.snapshot_id)
        return self.publish(head, etag, chain, snapshot.snapshot_id)

    def publish(
        self,
        head: Head,
        etag: str,
        chain: Chain,
        snapshot_id: int,
        kept: Callable[[Head], Sequence[Entry]] = lambda head: head.entries,
    ) -> Head:
        """Makes the chain's last version the one to read. `kept`: which of the entries to go on offering."""
        entry = Entry(
            snapshot_id=snapshot_id,
            version=chain.version,
            rows=self._lance.open(head.id, chain.version).count_rows(),
            manifest_sha256=self._lance.manifest_sha256(head.id, chain.version),
            refreshed_ms=time.time_ns() // 1_000_000,
        )
        earlier = [one for one in head.entries if one.snapshot_id != snapshot_id]
        moved = head.model_copy(update={"entries": tuple([*earlier, entry][-KEPT_ENTRIES:])})
        moved = moved.model_copy(update={"entries": tuple(kept(moved))})
        self._heads.write(moved, etag)
        return moved

    def _build(self, head: Head, table: Table, snapshot_id: int) -> Chain:
        """From the whole source, a batch at a time."""
        scan = table.scan(snapshot_id=snapshot_id, selected_fields=head.kept)
        source = schema_to_pyarrow(scan.projection())
        schema = lance_schema(source, head.kept, head.dimensions)
        version = self._lance.create(head.id, schema)
        chain = Chain(self._lance.open(head.id), head.id, version)
        with scan.to_arrow_batch_reader() as batches:
            for rows in _gathered(batches):
                chain.add(self._embedded(head, conform(rows, source), schema, snapshot_id))
        chain.index_words(head.column)
        return chain

    def _follow(self, head: Head, newest: Entry, table: Table, snapshot_id: int) -> Chain:
        """From what changed."""
        changed = net_changes(table, newest.snapshot_id, snapshot_id)
        source = pa.schema([changed.schema.field(name) for name in head.kept])
        lance_table = self._lance.open(head.id)
        chain = Chain(lance_table, head.id, int(lance_table.version))
        if chain.version != newest.version:
            chain.restore(newest.version)
        chain.delete(_keys(_side(changed.changes, "before", source), head.key))
        rows = self._embedded(
            head,
            _side(changed.changes, "after", source),
            lance_schema(source, head.kept, head.dimensions),
            snapshot_id,
        )
        chain.add(rows)
        return chain

    def _embedded(self, head: Head, rows: pa.Table, schema: pa.Schema, snapshot_id: int) -> pa.Table:
        """Rows with vectors, as Lance keeps them. Those without text cannot be searched for, and are left out."""
        texts: list[str | None] = rows.column(head.column).to_pylist()
        said = [text is not None and bool(text.strip()) for text in texts]
        rows = rows.filter(pa.array(said, pa.bool_()))
        vectors = self._embedder.embed([text for text in texts if text is not None and text.strip()])
        columns = {
            KEY: pa.array(_keys(rows, head.key), pa.string()),
            **{name: rows.column(name) for name in head.kept},
            VECTOR: vector_column(vectors.reshape(-1, head.dimensions)),
            SNAPSHOT: pa.array(np.full(len(rows), snapshot_id, np.int64)),
        }
        return pa.table(columns).cast(schema)


def _side(changes: pa.Table, side: str, schema: pa.Schema) -> pa.Table:
    """One side of a change set's rows, where it has one."""
    structs = changes.column(side).combine_chunks()
    present = structs.filter(structs.is_valid())
    return pa.table([pc.struct_field(present, field.name) for field in schema], schema=schema)


def _keys(rows: pa.Table, key: Sequence[str]) -> list[str]:
    return [digest.tobytes().hex() for digest in key_digests(rows, key)]


def _gathered(batches: pa.RecordBatchReader, rows: int = 8192) -> Iterator[pa.Table]:
    """Batches of about so many rows: a Lance version for each of the source's small files would be too many."""
    held, count = list[pa.RecordBatch](), 0
    for batch in batches:
        held.append(batch)
        count += len(batch)
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)
