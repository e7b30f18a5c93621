"""What SQL asks of vector tables: which version stands for a snapshot, and its rows by distance or by words.

Gives keys, the columns asked for, and `_distance` or `_score`; knows nothing of SQL. A head that was read in the last
seconds is believed about the snapshots it has: what it says of one is true while the version is there, which is
longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.errors import Conflict, Invalid, NotFound
from catalog.vectors.embedding import Vectors as Array
from catalog.vectors.head import Head, Heads
from catalog.vectors.lance import VECTOR, Lance
from catalog.vectors.search import PROBES

BELIEVED_S = 5.0
DISTANCE, SCORE = "_distance", "_score"


@dataclass(frozen=True)
class Ranked:
    """One version of a vector table, to be searched. `columns`: all of the source's that it holds."""

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
    """`embed` turns words into the vector that a head's model gives them; `parents` a source's snapshots."""

    def __init__(
        self,
        heads: Heads,
        lance: Lance,
        embed: Callable[[str, str], Array],
        parents: Callable[[str], dict[int, int | None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._heads, self._lance, self._embed, self._parents, self._clock = heads, lance, embed, parents, clock
        self._known: dict[str, tuple[float, Head]] = {}
        self._listed: tuple[float, list[str]] = (-BELIEVED_S, [])

    def find(self, table: str, table_uuid: str, column: str | None, snapshot_id: int) -> Ranked:
        """The vector table of a column, or the only one of the table, as of a snapshot. Warm, no request.

        NotFound if there is none, or none that goes back so far; Invalid if it is not clear which.
        """
        id_ = f"{table}.{column}" if column is not None else self._only(table)
        head = self._head(id_)
        entry = next((one for one in head.entries if one.snapshot_id == snapshot_id), None)
        if entry is None:  # refreshed meanwhile, or its source has moved on
            head = self._head(id_, afresh=True)
            parents = {} if head.table_uuid != table_uuid else self._parents(table)
            entry = head.entry_for(snapshot_id, parents.get)
        if head.table_uuid != table_uuid:
            raise Conflict(f"{table} is another table than {id_} was made from: drop {id_} and create it anew")
        if entry is None:
            raise NotFound(f"{id_} was never refreshed to snapshot {snapshot_id} or before it", subject=id_)
        return Ranked(
            id_,
            head.column,
            head.key,
            head.kept,
            head.dimensions,
            head.embedder,
            entry.version,
            entry.snapshot_id,
            entry.rows,
            entry.manifest_sha256,
        )

    def nearest(
        self, at: Ranked, asked: str | Sequence[float], k: int | None, where: str | None, columns: Sequence[str]
    ) -> pa.Table:
        """The k rows nearest in meaning among those that meet `where`, with `_distance`; None: all, and exactly."""
        vector = self._embed(at.embedder, asked) if isinstance(asked, str) else np.asarray(asked, np.float32)
        if len(vector) != at.dimensions:
            raise Invalid(f"the vector has {len(vector)} dimensions, those of {at.id} have {at.dimensions}")
        table = self._lance.to_ask(at.id, at.version, at.manifest_sha256)
        query = table.query().nearest_to(vector).column(VECTOR).distance_type("cosine")
        query = query.bypass_vector_index() if k is None else query.maximum_nprobes(0).minimum_nprobes(PROBES)
        return self._found(at, query, min(k or at.rows, at.rows), where, [*columns, DISTANCE])

    def matching(self, at: Ranked, words: str, every: bool, where: str | None, columns: Sequence[str]) -> pa.Table:
        """All rows with the words (every one of them, or any), with `_score`. Words in double quotes are a phrase."""
        from lancedb.query import FullTextOperator, MatchQuery, PhraseQuery

        if not words.strip():
            raise Invalid("a search for words needs words to look for")
        asked: Any
        if len(words) > 2 and words.startswith('"') and words.endswith('"'):
            asked = PhraseQuery(words[1:-1], at.column)
        else:
            asked = MatchQuery(words, at.column, operator=FullTextOperator.AND if every else FullTextOperator.OR)
        query = self._lance.to_ask(at.id, at.version, at.manifest_sha256).query().nearest_to_text(asked)
        return self._found(at, query, at.rows, where, [*columns, SCORE])

    def _found(self, at: Ranked, query: Any, limit: int, where: str | None, columns: Sequence[str]) -> pa.Table:
        if where is not None:
            query = query.where(where)  # before the nearest are chosen, unless postfilter() says otherwise
        return self._lance.asked(at.id, query.select(list(columns)).limit(max(limit, 1)))

    def _head(self, id_: str, afresh: bool = False) -> Head:
        read, head = self._known.get(id_, (0.0, None))
        if head is None or afresh or self._clock() - read > BELIEVED_S:
            head = self._heads.read(id_)[0]
            self._known[id_] = (self._clock(), head)
        return head

    def _only(self, table: str) -> str:
        """The table's vector table, when it has one; which, has to be said when it has several."""
        found = [id_ for id_ in self._ids() if id_.rpartition(".")[0] == table]
        if not found:
            self._listed = (self._clock() - BELIEVED_S, [])
            found = [id_ for id_ in self._ids() if id_.rpartition(".")[0] == table]
        if not found:
            raise NotFound(
                f"no column of {table} is embedded: `strandline vectors create {table} COLUMN` makes a vector table",
                subject=table,
            )
        if len(found) > 1:
            columns = sorted(id_.rpartition(".")[2] for id_ in found)
            raise Invalid(f"several columns of {table} are embedded: write {' or '.join(columns)}", subject=table)
        return found[0]

    def _ids(self) -> list[str]:
        read, found = self._listed
        if self._clock() - read >= BELIEVED_S:
            found = self._heads.ids()
            self._listed = (self._clock(), found)
        return found
