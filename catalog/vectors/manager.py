"""`Vectors`: every operation on vector tables. A vector table is named `<database>.<table>.<column>`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog.core.errors import Conflict, Invalid, NotFound, Unverified
from catalog.core.events import TableMoved
from catalog.core.point_in_time import PointLike
from catalog.core.retries import Retry
from catalog.core.sequencer_queue import SequencerQueue
from catalog.core.settings import Settings
from catalog.core.vector_head import Head, VectorVersion
from catalog.tables import Tables
from catalog.timeline import Timeline, vector_table_name
from catalog.vectors.embedding import BUNDLED, Embedder, embedder_named
from catalog.vectors.filters import checked_filter
from catalog.vectors.head import Heads
from catalog.vectors.head_verification import VerifiedHead, check_head
from catalog.vectors.lance import Chain, Lance
from catalog.vectors.ranking import Ranking
from catalog.vectors.refresh import Refresh
from catalog.vectors.retention import GRACE, kept_entries
from catalog.vectors.search import Mode, SearchRequest, search_table

RETRY = Retry(attempts=5, base_s=0.4, cap_s=2.0)
# Below this many rows, a search over every vector is as fast as the index, and exact.
INDEX_FROM_ROWS = 20_000


class Vectors:
    """The lake's vector tables. `bedrock` makes a Bedrock client when a table uses one of its models.

    `queue` tells the sequencer which vector table has a new head; `timeline` returns the timeline's reader, or None
    while there is no timeline.
    """

    grace = GRACE

    def __init__(
        self,
        settings: Settings,
        s3: Any,
        tables: Tables,
        bedrock: Callable[[], Any] | None = None,
        *,
        queue: SequencerQueue | None = None,
        timeline: Callable[[], Timeline | None] = lambda: None,
    ) -> None:
        self._tables, self._queue, self._timeline = tables, queue, timeline
        self._heads = Heads(s3, settings.bucket)
        self._lance = Lance(settings, s3)
        self._embedder = cache(lambda name: embedder_named(name, bedrock))

    @cached_property
    def ranking(self) -> Ranking:
        """Search for SQL queries."""
        return Ranking(
            self._heads,
            self._lance,
            lambda model, words: self._embedder(model).embed([words])[0],
            lambda table: _parents(self._tables.load(table)),
        )

    def create(self, table: str, column: str, *, columns: Sequence[str] = (), embedder: str = BUNDLED) -> Head:
        """Creates a vector table of a text column. `columns` are stored with it, to filter by and to return.

        Costs an embedding of every row. The source needs a key, which identifies the rows that a change affects.
        Conflict if the vector table exists.
        """
        source = self._tables.load(table)
        schema = schema_to_pyarrow(source.schema())
        key = self._tables.describe(table).key
        if not key:
            raise Invalid(f"{table} has no key, so its changes cannot be applied to vectors: create it with a key")
        for name in (column, *columns):
            if name not in schema.names:
                raise Invalid(f"{table} has no column {name!r}; it has {', '.join(schema.names)}", subject=table)
        if not (pa.types.is_string(schema.field(column).type) or pa.types.is_large_string(schema.field(column).type)):
            raise Invalid(f"{table}.{column} is {schema.field(column).type}: only text can be embedded", subject=table)
        model = self._embedder(embedder)
        head = Head(
            uuid=str(uuid4()),
            table=table,
            table_uuid=str(source.metadata.table_uuid),
            column=column,
            key=key,
            columns=tuple(dict.fromkeys(columns)),
            embedder=embedder,
            dimensions=model.dimensions,
        )
        self._heads.write(head, None)
        self._announce(head.id)
        return self.refresh(head.id)

    def refresh(self, id_: str, *, rebuild: bool = False) -> Head:
        """Brings it to its source's newest snapshot by applying the changes since the last refresh. Idempotent."""

        def attempt(head: Head, etag: str) -> Head:
            source = self._tables.load(head.table)
            if str(source.metadata.table_uuid) != head.table_uuid:
                raise Conflict(
                    f"{id_} was built from an earlier table named {head.table}: drop {id_} and create it again"
                )
            return Refresh(self._lance, self._heads, self._model(head)).run(head, etag, source, rebuild=rebuild)

        return self._retry(id_, attempt)

    def maintain(self, id_: str) -> Head:
        """Compacts it, updates its indexes, and builds the vector index from INDEX_FROM_ROWS rows on. For jobs.

        Versions that no snapshot of the source needs are removed from the head, and an hour later from S3.
        """

        def attempt(head: Head, etag: str) -> Head:
            newest = _readable(head)
            table = self._lance.open(id_)
            chain = Chain(table, id_, int(table.version))
            if chain.version != newest.version:
                chain.restore(newest.version)
            indexed = any("embedding" in index.columns for index in table.list_indices())
            if newest.rows >= INDEX_FROM_ROWS and not indexed:
                chain.index_vectors(max(1, round(math.sqrt(newest.rows))))
            chain.optimize()
            parents = _parents(self._tables.load(head.table))
            if chain.version == newest.version and len(kept_entries(head, parents)) == len(head.entries):
                return head
            return Refresh(self._lance, self._heads, self._model(head)).publish(
                head, etag, chain, newest.snapshot_id, lambda updated: kept_entries(updated, parents)
            )

        head = self._retry(id_, attempt)
        self._lance.remove_versions(id_, {entry.version for entry in head.entries}, self.grace)
        return head

    def search(
        self,
        id_: str,
        words: str | None = None,
        *,
        vector: Sequence[float] | None = None,
        mode: Mode = "hybrid",
        k: int = 10,
        where: str | None = None,
        as_of: PointLike | None = None,
    ) -> pa.Table:
        """The k best rows for words or a vector, best first, with `score` and each row's source snapshot.

        `as_of` searches the source's rows at a point in time. One GET for the head, plus Lance's requests.
        """
        head, _ = self._heads.read(id_)
        entry = self._entry(head, as_of)
        query_vector = None
        if mode != "text":
            query_vector = self._query_vector(head, words, vector)
        request = SearchRequest(
            mode=mode,
            k=k,
            words=words,
            vector=query_vector,
            where=None if where is None else checked_filter(where, head.stored_columns),
        )
        return search_table(self._lance.at(id_, entry.version, entry.manifest_sha256), request)

    def describe(self, id_: str) -> Head:
        return self._heads.read(id_)[0]

    def list(self) -> list[str]:
        return self._heads.ids()

    def drop(self, id_: str) -> None:
        """Drops it; its source is not touched. The head is removed first, so no reader finds a half-removed table."""
        self._heads.read(id_)
        self._heads.remove(id_)
        self._announce(id_)
        self._lance.drop(id_)

    def verify(self, id_: str) -> VerifiedHead:
        """Verifies Lance's manifests against the head, and the head's sequenced versions against the timeline.

        Unverified names the version that differs. One GET for each version, and a proof for each leaf.
        """
        head = self.describe(id_)
        for entry in head.entries:
            if self._lance.manifest_sha256(id_, entry.version) != entry.manifest_sha256:
                raise Unverified(f"the manifest of version {entry.version} of {id_} has been changed", subject=id_)
        return check_head(head, self._timeline())

    def _query_vector(self, head: Head, words: str | None, vector: Sequence[float] | None) -> Any:
        if vector is None:
            if not (words or "").strip():
                raise Invalid("a vector search needs words or a vector")
            return self._model(head).embed([words or ""])[0]
        if len(vector) != head.dimensions:
            raise Invalid(f"the vector has {len(vector)} dimensions, those of {head.id} have {head.dimensions}")
        return np.asarray(vector, np.float32)

    def _model(self, head: Head) -> Embedder:
        return self._embedder(head.embedder)

    def _entry(self, head: Head, as_of: PointLike | None) -> VectorVersion:
        """The version that holds a snapshot, or its nearest ancestor that has a version."""
        if as_of is None:
            return _readable(head)
        snapshot_id = self._tables.find_snapshot(head.table, as_of).snapshot_id
        entry = head.entry_for(snapshot_id, _parents(self._tables.load(head.table)).get)
        if entry is None:
            raise NotFound(f"{head.id} has no version for snapshot {snapshot_id} or its ancestors", subject=head.id)
        return entry

    def _announce(self, id_: str) -> None:
        """Tells the sequencer about a new head. If the message is lost, the sweep finds the head."""
        if self._queue is not None and self._queue.exists:
            self._queue.send(TableMoved(table=vector_table_name(id_)))

    def _retry(self, id_: str, attempt: Callable[[Head, str], Head]) -> Head:
        def read_and_attempt() -> Head:
            head, etag = self._heads.read(id_)
            updated = attempt(head, etag)
            if updated is not head:
                self._announce(id_)
            return updated

        return RETRY.run(read_and_attempt)


def _readable(head: Head) -> VectorVersion:
    if head.newest is None:
        raise NotFound(f"{head.id} has no rows yet: its source is empty, or it was never refreshed", subject=head.id)
    return head.newest


def _parents(source: Table) -> dict[int, int | None]:
    return {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in source.metadata.snapshots}
