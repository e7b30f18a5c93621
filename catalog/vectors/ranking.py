"""Search in vector tables for SQL queries: the version that holds a snapshot, and its rows by distance or by words.

Returns the requested columns and `_distance` or `_score`; knows nothing of SQL. A head is cached for HEAD_CACHE_S.
That is safe for the snapshots in it: a version is removed only long after it left the head.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.vector_head import Head
from catalog.vectors.embedding import Vectors as Array
from catalog.vectors.head import Heads
from catalog.vectors.lance import VECTOR, Lance
from catalog.vectors.search import PROBES

HEAD_CACHE_S = 5.0
DISTANCE, SCORE = "_distance", "_score"


@dataclass(frozen=True)
class RankedVersion:
    """One version of a vector table, to search in. `columns`: all of the source's columns that it holds."""

    id: str
    column: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    dimensions: int
    embedder: str
    version: int
    snapshot_id: int
    rows: int
    manifest_sha256: str


class Ranking:
    """`embed` returns the vector of words, given a model's name; `parents` maps a table's snapshots to parents."""

    def __init__(
        self,
        heads: Heads,
        lance: Lance,
        embed: Callable[[str, str], Array],
        parents: Callable[[str], dict[int, int | None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._heads, self._lance, self._embed, self._parents, self._clock = heads, lance, embed, parents, clock
        self._cached_heads: dict[str, tuple[float, Head]] = {}
        self._cached_ids: tuple[float, list[str]] = (-HEAD_CACHE_S, [])

    def find(self, table: str, table_uuid: str, column: str | None, snapshot_id: int) -> RankedVersion:
        """The vector table of a column, or the table's only one, as of a snapshot. No request when the head is cached.

        NotFound if there is none, or none that goes back so far; Invalid if the table has several.
        """
        id_ = f"{table}.{column}" if column is not None else self._only(table)
        head = self._head(id_)
        entry = next((entry for entry in head.entries if entry.snapshot_id == snapshot_id), None)
        if entry is None:  # refreshed since the head was cached, or its source has newer snapshots
            head = self._head(id_, fresh=True)
            parents = {} if head.table_uuid != table_uuid else self._parents(table)
            entry = head.entry_for(snapshot_id, parents.get)
        if head.table_uuid != table_uuid:
            raise Conflict(f"{id_} was built from an earlier table named {table}: drop {id_} and create it again")
        if entry is None:
            raise NotFound(f"{id_} has no version for snapshot {snapshot_id} or its ancestors", subject=id_)
        return RankedVersion(
            id_,
            head.column,
            head.key,
            head.stored_columns,
            head.dimensions,
            head.embedder,
            entry.version,
            entry.snapshot_id,
            entry.rows,
            entry.manifest_sha256,
        )

    def nearest(
        self, at: RankedVersion, target: str | Sequence[float], k: int | None, where: str | None, columns: Sequence[str]
    ) -> pa.Table:
        """The k rows nearest to the target among those that meet `where`, with `_distance`; k None: all, exactly."""
        vector = self._embed(at.embedder, target) if isinstance(target, str) else np.asarray(target, np.float32)
        if len(vector) != at.dimensions:
            raise Invalid(f"the vector has {len(vector)} dimensions, those of {at.id} have {at.dimensions}")
        table = self._lance.at_async(at.id, at.version, at.manifest_sha256)
        query = table.query().nearest_to(vector).column(VECTOR).distance_type("cosine")
        query = query.bypass_vector_index() if k is None else query.maximum_nprobes(0).minimum_nprobes(PROBES)
        return self._run(at, query, min(k or at.rows, at.rows), where, [*columns, DISTANCE])

    def matching(
        self, at: RankedVersion, words: str, every: bool, where: str | None, columns: Sequence[str]
    ) -> pa.Table:
        """All rows with every word, or with any of them, and their `_score`. Words in double quotes are a phrase."""
        from lancedb.query import FullTextOperator, MatchQuery, PhraseQuery

        if not words.strip():
            raise Invalid("a search for words needs words to look for")
        text_query: Any
        if len(words) > 2 and words.startswith('"') and words.endswith('"'):
            text_query = PhraseQuery(words[1:-1], at.column)
        else:
            text_query = MatchQuery(words, at.column, operator=FullTextOperator.AND if every else FullTextOperator.OR)
        query = self._lance.at_async(at.id, at.version, at.manifest_sha256).query().nearest_to_text(text_query)
        return self._run(at, query, at.rows, where, [*columns, SCORE])

    def _run(self, at: RankedVersion, query: Any, limit: int, where: str | None, columns: Sequence[str]) -> pa.Table:
        if where is not None:
            query = query.where(where)  # a prefilter, unless postfilter() is called
        return self._lance.run_query(at.id, query.select(list(columns)).limit(max(limit, 1)))

    def _head(self, id_: str, fresh: bool = False) -> Head:
        read_at, head = self._cached_heads.get(id_, (0.0, None))
        if head is None or fresh or self._clock() - read_at > HEAD_CACHE_S:
            head = self._heads.read(id_)[0]
            self._cached_heads[id_] = (self._clock(), head)
        return head

    def _only(self, table: str) -> str:
        """The table's only vector table. NotFound if it has none, Invalid if it has several."""
        ids = [id_ for id_ in self._ids() if id_.rpartition(".")[0] == table]
        if not ids:
            self._cached_ids = (self._clock() - HEAD_CACHE_S, [])
            ids = [id_ for id_ in self._ids() if id_.rpartition(".")[0] == table]
        if not ids:
            raise NotFound(
                f"no column of {table} is embedded: embed one with `strandline vectors create {table} COLUMN`",
                subject=table,
            )
        if len(ids) > 1:
            columns = sorted(id_.rpartition(".")[2] for id_ in ids)
            raise Invalid(f"several columns of {table} are embedded: write {' or '.join(columns)}", subject=table)
        return ids[0]

    def _ids(self) -> list[str]:
        listed_at, ids = self._cached_ids
        if self._clock() - listed_at >= HEAD_CACHE_S:
            ids = self._heads.ids()
            self._cached_ids = (self._clock(), ids)
        return ids
