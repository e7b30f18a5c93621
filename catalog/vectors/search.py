"""Search in one version of a vector table: by vector, by words, or both.

Filters apply before the top k, so a search returns k rows when k match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from catalog.core.errors import Invalid
from catalog.vectors.embedding import Vectors
from catalog.vectors.lance import VECTOR

Mode: TypeAlias = Literal["vector", "text", "hybrid"]

MAX_K = 1000
# Each half of a hybrid search returns POOL * k rows: a row that is mediocre in both may be the best in total.
POOL = 5
PROBES = 64
"""How many of the index's lists are searched at least; more, while fewer than k rows meet the filter."""
SCORE = "score"


@dataclass(frozen=True)
class SearchRequest:
    """`words` are for the text and hybrid modes, `vector` for vector and hybrid."""

    mode: Mode
    k: int
    words: str | None = None
    vector: Vectors | None = None
    where: str | None = None
    probes: int = PROBES

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MAX_K:
            raise Invalid(f"k is {self.k}: it must be 1 to {MAX_K}")
        if self.mode != "vector" and not (self.words or "").strip():
            raise Invalid(f"a {self.mode} search needs words to look for")


def search_table(table: Any, request: SearchRequest) -> pa.Table:
    """The k best rows, best first, with `score`: higher is better; comparable only within one result."""
    pool = request.k * POOL if request.mode == "hybrid" else request.k
    match request.mode:
        case "vector":
            query = _by_vector(table.search(request.vector, vector_column_name=VECTOR), request)
        case "text":
            query = table.search(request.words, query_type="fts")
        case "hybrid":
            hybrid = table.search(query_type="hybrid", vector_column_name=VECTOR)
            query = _by_vector(hybrid.vector(request.vector).text(request.words), request)
    if request.where is not None:
        query = query.where(request.where, prefilter=True)
    rows: pa.Table = query.limit(pool).to_arrow()
    return _scored(rows).slice(0, request.k)


def _by_vector(query: Any, request: SearchRequest) -> Any:
    return query.distance_type("cosine").minimum_nprobes(request.probes).maximum_nprobes(0)


def _scored(rows: pa.Table) -> pa.Table:
    """The rows sorted by one `score` column, without Lance's own columns and the vector."""
    if "_distance" in rows.column_names:
        scores = 1 - np.asarray(rows.column("_distance"))
    else:
        name = "_relevance_score" if "_relevance_score" in rows.column_names else "_score"
        scores = np.asarray(rows.column(name))
    order = np.argsort(-scores, kind="stable")
    names = [name for name in rows.column_names if not name.startswith("_") and name != VECTOR]
    scored = rows.select(names).append_column(SCORE, pa.array(scores, pa.float32()))
    return scored.take(order)
