"""Search in one version of a vector table: by meaning, by words, or both.

Filters are applied before the top k, so k rows come back when k exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from catalog.errors import Invalid
from catalog.vectors.embedding import Vectors
from catalog.vectors.lance import VECTOR

Mode: TypeAlias = Literal["vector", "text", "hybrid"]

MAX_K = 1000
# Each half of a hybrid search looks this much further than k: what is middling in both may be best overall.
POOL = 5
PROBES = 64
"""How many of the index's lists are looked through at least; more, while fewer than k rows meet the filter."""
SCORE = "score"


@dataclass(frozen=True)
class Question:
    """What is asked of a vector table. `words` for the text and hybrid modes, `vector` for vector and hybrid."""

    mode: Mode
    k: int
    words: str | None = None
    vector: Vectors | None = None
    where: str | None = None
    probes: int = PROBES

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MAX_K:
            raise Invalid(f"k is {self.k}: it may be 1 to {MAX_K}")
        if self.mode != "vector" and not (self.words or "").strip():
            raise Invalid(f"a {self.mode} search needs words to look for")


def answer(table: Any, question: Question) -> pa.Table:
    """The k best rows, best first, with `score`: higher is better, and comparable within one answer only."""
    pool = question.k * POOL if question.mode == "hybrid" else question.k
    match question.mode:
        case "vector":
            query = _by_meaning(table.search(question.vector, vector_column_name=VECTOR), question)
        case "text":
            query = table.search(question.words, query_type="fts")
        case "hybrid":
            both = table.search(query_type="hybrid", vector_column_name=VECTOR)
            query = _by_meaning(both.vector(question.vector).text(question.words), question)
    if question.where is not None:
        query = query.where(question.where, prefilter=True)
    found: pa.Table = query.limit(pool).to_arrow()
    return _scored(found).slice(0, question.k)


def _by_meaning(query: Any, question: Question) -> Any:
    return query.distance_type("cosine").minimum_nprobes(question.probes).maximum_nprobes(0)


def _scored(found: pa.Table) -> pa.Table:
    """Lance's own columns become one `score`; what is only for finding rows stays behind."""
    if "_distance" in found.column_names:
        scores = 1 - np.asarray(found.column("_distance"))
    else:
        name = "_relevance_score" if "_relevance_score" in found.column_names else "_score"
        scores = np.asarray(found.column(name))
    order = np.argsort(-scores, kind="stable")
    shown = [name for name in found.column_names if not name.startswith("_") and name != VECTOR]
    kept = found.select(shown).append_column(SCORE, pa.array(scores, pa.float32()))
    return kept.take(order)
