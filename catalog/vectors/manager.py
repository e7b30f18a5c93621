"""`Vectors`: every operation on vector tables. One is named `<database>.<table>.<column>`, after what it embeds."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog.errors import Conflict, Invalid, NotFound, Unverified
from catalog.settings import Settings
from catalog.tables.manager import Tables
from catalog.timeline.proofs import Timeline
from catalog.timeline.vector_moves import name_of
from catalog.vectors.embedding import BUNDLED, Embedder, embedder_named
from catalog.vectors.filters import checked_filter
from catalog.vectors.head import Entry, Head, Heads
from catalog.vectors.lance import Chain, Lance
from catalog.vectors.proven import Verified, check_head
from catalog.vectors.ranking import Ranking
from catalog.vectors.refresh import Refresh
from catalog.vectors.retention import GRACE, kept_entries
from catalog.vectors.search import Mode, Question, answer

ATTEMPTS = 5
# Below this many rows a search that looks at every vector is as quick, and exact.
INDEX_FROM_ROWS = 20_000


class Vectors:
    """The lake's vector tables. `bedrock` makes a client for Bedrock when a table asks for its models.

    `moved` is told the name under which the timeline knows a vector table whose head was written; `timeline` gives the
    timeline's reader, or None while there is no timeline.
    """

    grace = GRACE

    def __init__(
        self,
        settings: Settings,
        s3: Any,
        tables: Tables,
        bedrock: Callable[[], Any] | None = None,
        *,
        moved: Callable[[str], None] = lambda name: None,
        timeline: Callable[[], Timeline | None] = lambda: None,
    ) -> None:
        self._tables, self._moved, self._timeline = tables, moved, timeline
        self._heads = Heads(s3, settings.bucket)
        self._lance = Lance(settings, s3)
        self._embedder = cache(lambda name: embedder_named(name, bedrock))

    @cached_property
    def ranking(self) -> Ranking:
        """What queries in SQL ask of vector tables."""
        return Ranking(
            self._heads,
            self._lance,
            lambda model, words: self._embedder(model).embed([words])[0],
            lambda table: _parents(self._tables.load(table)),
        )

    def create(self, table: str, column: str, *, columns: Sequence[str] = (), embedder: str = BUNDLED) -> Head:
        """Embeds a text column. `columns` are kept beside it, to filter by and to show. Conflict if it exists.

        Costs an embedding of every row. The table needs a key: by it, changes find their rows.
        """
        source = self._tables.load(table)
        schema = schema_to_pyarrow(source.schema())
        key = self._tables.describe(table).key
        if not key:
            raise Invalid(f"{table} has no key, so its changes could not be followed: create it with one")
        for name in (column, *columns):
            if name not in schema.names:
                raise Invalid(f"{table} has no column {name!r}; it has {', '.join(schema.names)}", subject=table)
        if not (pa.types.is_string(schema.field(column).type) or pa.types.is_large_string(schema.field(column).type)):
            raise Invalid(f"{table}.{column} is {schema.field(column).type}: only text can be embedded", subject=table)
        model = self._embedder(embedder)
        head = Head(
            table=table,
            table_uuid=str(source.metadata.table_uuid),
            column=column,
            key=key,
            columns=tuple(dict.fromkeys(columns)),
            embedder=embedder,
            dimensions=model.dimensions,
        )
        self._heads.write(head, None)
        self._moved(name_of(head.id))
        return self.refresh(head.id)

    def refresh(self, id_: str, *, rebuild: bool = False) -> Head:
        """Brings it to its source's newest snapshot, from what changed since the last time. Safe to run twice."""

        def attempt(head: Head, etag: str) -> Head:
            source = self._tables.load(head.table)
            if str(source.metadata.table_uuid) != head.table_uuid:
                raise Conflict(f"{head.table} is another table than {id_} was made from: drop {id_} and create it anew")
            return Refresh(self._lance, self._heads, self._model(head)).run(head, etag, source, rebuild=rebuild)

        return self._retried(id_, attempt)

    def maintain(self, id_: str) -> Head:
        """Compacts it, brings its indexes up to date, and builds the vector index once it pays. For jobs.

        Versions that no snapshot of the source needs any more are withdrawn from the head, and removed an hour later.
        """

        def attempt(head: Head, etag: str) -> Head:
            newest = _readable(head)
            table = self._lance.open(id_)
            chain = Chain(table, id_, int(table.version))
            if chain.version != newest.version:
                chain.restore(newest.version)
            indexed = any("embedding" in found.columns for found in table.list_indices())
            if newest.rows >= INDEX_FROM_ROWS and not indexed:
                chain.index_vectors(max(1, round(math.sqrt(newest.rows))))
            chain.optimize()
            parents = _parents(self._tables.load(head.table))
            if chain.version == newest.version and len(kept_entries(head, parents)) == len(head.entries):
                return head
            return Refresh(self._lance, self._heads, self._model(head)).publish(
                head, etag, chain, newest.snapshot_id, lambda moved: kept_entries(moved, parents)
            )

        head = self._retried(id_, attempt)
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
        as_of: int | None = None,
    ) -> pa.Table:
        """The k best rows for words or a vector, best first, with `score` and the snapshot each came from.

        `as_of` an Iceberg snapshot id of the source searches what was there then. One GET for the head, the
        rest is Lance's.
        """
        head, _ = self._heads.read(id_)
        entry = self._entry(head, as_of)
        meaning = None
        if mode != "text":
            meaning = self._meaning(head, words, vector)
        question = Question(
            mode=mode,
            k=k,
            words=words,
            vector=meaning,
            where=None if where is None else checked_filter(where, head.kept),
        )
        return answer(self._lance.at(id_, entry.version, entry.manifest_sha256), question)

    def describe(self, id_: str) -> Head:
        return self._heads.read(id_)[0]

    def list(self) -> list[str]:
        return self._heads.ids()

    def drop(self, id_: str) -> None:
        """Removes it; its source is not touched. The head goes first: from then on nobody looks for the rest."""
        self._heads.read(id_)
        self._heads.remove(id_)
        self._moved(name_of(id_))
        self._lance.drop(id_)

    def verify(self, id_: str) -> Verified:
        """Compares Lance's manifests with the head, and the head with the timeline, as far as it is sequenced.

        Unverified names the version that differs. One GET for each version, and a proof for each leaf.
        """
        head = self.describe(id_)
        for entry in head.entries:
            if self._lance.manifest_sha256(id_, entry.version) != entry.manifest_sha256:
                raise Unverified(f"the manifest of version {entry.version} of {id_} has been changed", subject=id_)
        return check_head(head, self._timeline())

    def _meaning(self, head: Head, words: str | None, vector: Sequence[float] | None) -> Any:
        if vector is None:
            if not (words or "").strip():
                raise Invalid("a search by meaning needs words or a vector")
            return self._model(head).embed([words or ""])[0]
        if len(vector) != head.dimensions:
            raise Invalid(f"the vector has {len(vector)} dimensions, those of {head.id} have {head.dimensions}")
        return np.asarray(vector, np.float32)

    def _model(self, head: Head) -> Embedder:
        return self._embedder(head.embedder)

    def _entry(self, head: Head, as_of: int | None) -> Entry:
        """The version for a snapshot: its own, or that of the nearest ancestor that was refreshed to."""
        if as_of is None:
            return _readable(head)
        found = head.entry_for(as_of, _parents(self._tables.load(head.table)).get)
        if found is None:
            raise NotFound(f"{head.id} was never refreshed to snapshot {as_of} or before it", subject=head.id)
        return found

    def _retried(self, id_: str, attempt: Callable[[Head, str], Head]) -> Head:
        for tries_left in reversed(range(ATTEMPTS)):
            head, etag = self._heads.read(id_)
            try:
                moved = attempt(head, etag)
                if moved is not head:
                    self._moved(name_of(id_))
                return moved
            except Conflict:
                if not tries_left:
                    raise
                time.sleep(random.uniform(0.1, 0.5) * (ATTEMPTS - tries_left))  # noqa: S311 - jitter, not a secret
        raise AssertionError


def _readable(head: Head) -> Entry:
    if head.newest is None:
        raise NotFound(f"{head.id} holds nothing yet: its source is empty, or was never refreshed", subject=head.id)
    return head.newest


def _parents(source: Table) -> dict[int, int | None]:
    return {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in source.metadata.snapshots}
