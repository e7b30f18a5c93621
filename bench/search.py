"""Search in SQL against LanceDB, on the same version of the same table at the same endpoint, in turn; and the quality
of hybrid search on a labelled set against vector and full-text search alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness import Figure, p50, suite
from bench.labelled import LabelledQuery, labelled, ndcg
from bench.query_world import Warehouse, warehouse
from catalog import Settings
from catalog.core.events import NoEventBus
from catalog.merkle.note import Ed25519Signer
from catalog.query import EngineLimits, Queries
from catalog.timeline import Attestations, Publisher, Sequencer, StoredSource, StoreLocation, StoreReader, Timeline
from catalog.vectors import Vectors
from catalog.vectors.embedding import WordLlamaEmbedder
from catalog.vectors.lance import Lance
from catalog.vectors.search import PROBES

TABLE, LABELLED = "bench.notes", "bench.labelled"
K, TURNS = 10, 120
ORIGIN = "bench.test/search"
_SIGNER = Ed25519Signer.generate(ORIGIN)
NEAREST = f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q LIMIT {K}"

BY_MEANING = f"SELECT id FROM {LABELLED} ORDER BY embedding <-> $q LIMIT {K}"
BY_WORDS = f"""SELECT id FROM {LABELLED} WHERE text_score(text, $q) > 0
               ORDER BY text_score(text, $q) DESC, id LIMIT {K}"""
HYBRID = f"""
WITH v AS (SELECT id, row_number() OVER (ORDER BY embedding <-> $q) AS place FROM {LABELLED}
           ORDER BY embedding <-> $q LIMIT 50),
     w AS (SELECT id, row_number() OVER (ORDER BY text_score(text, $q) DESC, id) AS place FROM {LABELLED}
           WHERE text_score(text, $q) > 0 ORDER BY place LIMIT 50)
SELECT coalesce(v.id, w.id) AS id FROM v FULL JOIN w ON v.id = w.id
ORDER BY coalesce(1.0 / (60 + v.place), 0) + coalesce(1.0 / (60 + w.place), 0) DESC, id LIMIT {K}
"""


@suite("search")
def run(quick: bool) -> Iterator[Figure]:
    with warehouse() as house:
        yield from _nearest(house, 10_000 if quick else 100_000)
        yield from _hybrid(house)


def _nearest(house: Warehouse, rows: int) -> Iterator[Figure]:
    texts = _texts(rows)
    writer = _vectors(house)
    house.tables().create(TABLE, {"id": "long", "text": "string"}, key=["id"])
    house.tables().insert(TABLE, pa.table({"id": np.arange(rows), "text": texts}))
    began = time.perf_counter()
    writer.create(TABLE, "text")
    embedded = time.perf_counter()
    head = writer.maintain(f"{TABLE}.text")
    indexed = time.perf_counter()
    assert head.newest is not None
    vectors, queries = _reader(house)
    model = WordLlamaEmbedder()
    query_vectors = model.embed([" ".join(_sentence(random.Random(-number - 1))) for number in range(TURNS)])
    exact = _exact(model.embed(texts), query_vectors)
    peer = Lance(_settings(house), None).open(head.id, head.newest.version)
    ours, theirs, our_hits, their_hits = list[float](), list[float](), 0, 0
    for number, vector in enumerate(query_vectors):
        parameter = [float(value) for value in vector]
        began_query = time.perf_counter()
        our_ids = queries.run(NEAREST, parameters={"q": parameter}).table().column("id").to_pylist()
        ours.append(time.perf_counter() - began_query)
        began_query = time.perf_counter()
        search = peer.search(vector, vector_column_name="embedding").distance_type("cosine").nprobes(PROBES)
        their_ids = search.select(["id", "_distance"]).limit(K).to_arrow().column("id").to_pylist()
        theirs.append(time.perf_counter() - began_query)
        our_hits += len(exact[number] & set(our_ids))
        their_hits += len(exact[number] & set(their_ids))
    warm = slice(len(ours) // 4, None)
    detail: dict[str, object] = {
        "rows": rows,
        "dimensions": head.dimensions,
        "ours_ms": round(p50(ours[warm]) * 1000, 2),
        "lancedb_ms": round(p50(theirs[warm]) * 1000, 2),
        "embedding_s": round(embedded - began, 1),
        "indexing_s": round(indexed - embedded, 1),
        "peer": f"LanceDB, the same version, IVF_SQ, {PROBES} probes, opened once; turn by turn with ours",
    }
    recall, peer_recall = our_hits / (K * TURNS), their_hits / (K * TURNS)
    yield Figure("vector search in SQL, recall@10", recall, "", 0.95, "higher", {"lancedb": round(peer_recall, 4)})
    yield Figure("vector search in SQL, warm p50", p50(ours[warm]) / p50(theirs[warm]), "x LanceDB", 1.3, detail=detail)
    assert vectors.describe(head.id).newest == head.newest


def _hybrid(house: Warehouse) -> Iterator[Figure]:
    texts, questions = labelled()
    house.tables().create(LABELLED, {"id": "long", "text": "string"}, key=["id"])
    house.tables().insert(LABELLED, pa.table({"id": np.arange(len(texts)), "text": texts}))
    _vectors(house).create(LABELLED, "text")
    _, queries = _reader(house)
    scores = {
        name: [_score(queries, sql, question) for question in questions]
        for name, sql in {"hybrid": HYBRID, "meaning": BY_MEANING, "words": BY_WORDS}.items()
    }
    mean = {name: float(np.mean(values)) for name, values in scores.items()}
    kinds = {
        f"{name}, questions by {kind}": round(
            float(np.mean([s for s, question in zip(values, questions, strict=True) if question.kind == kind])), 3
        )
        for name, values in scores.items()
        for kind in ("meaning", "name", "both")
    }
    detail: dict[str, object] = {
        "documents": len(texts),
        "questions": len(questions),
        **{f"ndcg@10 {name}": round(value, 4) for name, value in mean.items()},
        **kinds,
        "set": "made up and seeded: bench/labelled.py says how",
    }
    better = max(mean["meaning"], mean["words"])
    yield Figure("hybrid statement, nDCG@10", mean["hybrid"] / better, "x its better half", 1.0, "higher", detail)


def _score(queries: Queries, sql: str, question: LabelledQuery) -> float:
    ranking = queries.run(sql, parameters={"q": question.text}).table().column("id").to_pylist()
    return ndcg(ranking, question.grades)


def _texts(count: int) -> list[str]:
    return [" ".join(_sentence(random.Random(number))) for number in range(count)]


def _sentence(rng: random.Random) -> list[str]:
    """A dozen words of one or two topics, as in notes: the vectors form loose clusters."""
    words = _WORDS[rng.randrange(len(_WORDS))] + _WORDS[rng.randrange(len(_WORDS))]
    return rng.choices(words, k=12)


def _vocabulary() -> list[list[str]]:
    words = sorted({word for text in labelled(4000)[0] for word in text.lower().split()})
    rng = random.Random(5)
    return [rng.sample(words, 14) for _ in range(300)]


_WORDS = _vocabulary()


def _exact(rows: Any, query_vectors: Any) -> list[set[int]]:
    nearest = np.argsort(-(query_vectors @ rows.T), axis=1)[:, :K]
    return [set(map(int, row)) for row in nearest]


def _settings(house: Warehouse) -> Settings:
    return Settings(stage="dev", region="us-east-1", endpoint_url=house.url, bucket=house.bucket, origin=ORIGIN)


def _vectors(house: Warehouse) -> Vectors:
    return Vectors(_settings(house), house.s3(), house.tables())


def _reader(house: Warehouse) -> tuple[Vectors, Queries]:
    vectors, attestations = _vectors(house), Attestations(house.s3(), house.bucket)
    tables, timeline = house.tables(), _timeline(house, attestations)
    queries = Queries(
        tables, lambda: timeline, attestations, limits=EngineLimits(6 << 30, 300.0), ranking=lambda: vectors.ranking
    )
    return vectors, queries


def _timeline(house: Warehouse, attestations: Attestations) -> Timeline:
    """A timeline reader after a sweep of all tables: a warm query makes no request to learn the current snapshot."""
    settings = _settings(house)
    location = StoreLocation.from_settings(settings)
    sequencer = Sequencer(
        location,
        house.tables().table_store.catalog,
        Publisher(attestations.s3, house.bucket),
        attestations,
        _SIGNER,
        NoEventBus(),
    )
    sequencer.sweep()
    sequencer.close()
    return Timeline(StoredSource(StoreReader.open(location)), settings.origin)
