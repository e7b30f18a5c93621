"""Brings a vector table to its source's newest snapshot by applying the changes in between.

    restore   makes the head's version the newest again, which hides the versions of a crashed refresh
    delete    the rows whose keys were updated or deleted
    add       the rows that were updated or inserted, embedded
    head      one compare-and-swap, after which readers see the new version

A crash before the last step leaves versions that nobody reads; the next refresh begins again with `restore`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog.changes import conform, key_digests, net_changes
from catalog.core.errors import NotFound
from catalog.core.vector_head import Head, VectorVersion
from catalog.vectors.embedding import Embedder
from catalog.vectors.head import Heads
from catalog.vectors.lance import KEY, SNAPSHOT, VECTOR, Chain, Lance, lance_schema, vector_column

KEPT_ENTRIES = 1000
"""How many of the newest refreshed snapshots can be searched as of."""


class Refresh:
    """One refresh of one vector table. Not thread-safe."""

    def __init__(self, lance: Lance, heads: Heads, embedder: Embedder) -> None:
        self._lance, self._heads, self._embedder = lance, heads, embedder

    def run(self, head: Head, etag: str, table: Table, *, rebuild: bool = False) -> Head:
        """Returns the new head, or the same one if there was nothing to do. Conflict with a concurrent refresh.

        Costs the net changes of the source since the last refresh and an embedding of every inserted or updated row;
        a rebuild, or a source whose last refreshed snapshot has expired, costs a scan and an embedding of every row.
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
                chain = self._apply_changes(head, newest, table, snapshot.snapshot_id)
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
        kept: Callable[[Head], Sequence[VectorVersion]] = lambda head: head.entries,
    ) -> Head:
        """Makes the chain's last version the newest in the head. `kept` selects the entries that the head keeps."""
        entry = VectorVersion(
            snapshot_id=snapshot_id,
            version=chain.version,
            rows=self._lance.open(head.id, chain.version).count_rows(),
            manifest_sha256=self._lance.manifest_sha256(head.id, chain.version),
            refreshed_ms=time.time_ns() // 1_000_000,
        )
        earlier = [version for version in head.entries if version.snapshot_id != snapshot_id]
        updated = head.model_copy(update={"entries": tuple([*earlier, entry][-KEPT_ENTRIES:])})
        updated = updated.model_copy(update={"entries": tuple(kept(updated))})
        self._heads.write(updated, etag)
        return updated

    def _build(self, head: Head, table: Table, snapshot_id: int) -> Chain:
        """Builds the table again from all rows of the source, a batch at a time."""
        scan = table.scan(snapshot_id=snapshot_id, selected_fields=head.stored_columns)
        source = schema_to_pyarrow(scan.projection())
        schema = lance_schema(source, head.stored_columns, head.dimensions)
        version = self._lance.create(head.id, schema)
        chain = Chain(self._lance.open(head.id), head.id, version)
        with scan.to_arrow_batch_reader() as batches:
            for rows in _combined(batches):
                chain.add(self._embedded(head, conform(rows, source), schema, snapshot_id))
        chain.index_words(head.column)
        return chain

    def _apply_changes(self, head: Head, newest: VectorVersion, table: Table, snapshot_id: int) -> Chain:
        """Applies the net changes since the newest entry."""
        changes = net_changes(table, newest.snapshot_id, snapshot_id)
        source = pa.schema([changes.schema.field(name) for name in head.stored_columns])
        lance_table = self._lance.open(head.id)
        chain = Chain(lance_table, head.id, int(lance_table.version))
        if chain.version != newest.version:
            chain.restore(newest.version)
        chain.delete(_keys(_side(changes.changes, "before", source), head.key))
        rows = self._embedded(
            head,
            _side(changes.changes, "after", source),
            lance_schema(source, head.stored_columns, head.dimensions),
            snapshot_id,
        )
        chain.add(rows)
        return chain

    def _embedded(self, head: Head, rows: pa.Table, schema: pa.Schema, snapshot_id: int) -> pa.Table:
        """The rows with their vectors, as Lance stores them. Rows without text are left out."""
        texts: list[str | None] = rows.column(head.column).to_pylist()
        has_text = [text is not None and bool(text.strip()) for text in texts]
        rows = rows.filter(pa.array(has_text, pa.bool_()))
        vectors = self._embedder.embed([text for text in texts if text is not None and text.strip()])
        columns = {
            KEY: pa.array(_keys(rows, head.key), pa.string()),
            **{name: rows.column(name) for name in head.stored_columns},
            VECTOR: vector_column(vectors.reshape(-1, head.dimensions)),
            SNAPSHOT: pa.array(np.full(len(rows), snapshot_id, np.int64)),
        }
        return pa.table(columns).cast(schema)


def _side(changes: pa.Table, side: str, schema: pa.Schema) -> pa.Table:
    """The rows of one side (`before` or `after`), without the changes that have none."""
    structs = changes.column(side).combine_chunks()
    present = structs.filter(structs.is_valid())
    return pa.table([pc.struct_field(present, field.name) for field in schema], schema=schema)


def _keys(rows: pa.Table, key: Sequence[str]) -> list[str]:
    return [digest.tobytes().hex() for digest in key_digests(rows, key)]


def _combined(batches: pa.RecordBatchReader, rows: int = 8192) -> Iterator[pa.Table]:
    """Combines batches to at least `rows` rows each, since each becomes a Lance version."""
    pending, count = list[pa.RecordBatch](), 0
    for batch in batches:
        pending.append(batch)
        count += len(batch)
        if count >= rows:
            yield pa.Table.from_batches(pending)
            pending, count = [], 0
    if pending:
        yield pa.Table.from_batches(pending)
