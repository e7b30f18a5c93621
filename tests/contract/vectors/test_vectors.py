"""Vector tables follow their source, are seen whole or not at all, and find what they should."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from catalog.core.errors import Conflict, Invalid, NotFound, Unverified
from catalog.core.point_in_time import SnapshotId
from catalog.lake import Lake
from catalog.vectors.lance import Chain
from catalog.vectors.manager import Vectors
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on

TABLE, ID = "silver.notes", "silver.notes.text"
TOPICS = {
    "sea": "the tide rises and waves break on the shore at high water",
    "kitchen": "boil the rice, chop an onion and season the soup with pepper",
    "code": "the compiler checks types before the program runs on the machine",
    "garden": "plant the roses in spring and water the soil every evening",
}


@pytest.fixture
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as lake:
        lake.tables.create(TABLE, {"id": "long", "text": "string", "stars": "int"}, mode="mor", key=["id"])
        yield lake
        lake.tables.drop(TABLE)


@pytest.fixture
def vectors(lake: Lake) -> Vectors:
    lake.tables.insert(TABLE, [row(number, topic) for number, topic in enumerate(TOPICS)])
    vectors = Vectors(lake.settings, lake.s3, lake.tables)
    vectors.create(TABLE, "text", columns=["stars"])
    return vectors


def row(number: int, topic: str, stars: int = 3) -> dict[str, Any]:
    return {"id": number, "text": f"{TOPICS[topic]} ({number})", "stars": stars}


def ids(rows: Any) -> list[int]:
    return [int(value) for value in rows.column("id").to_pylist()]


@pytest.mark.parametrize("mode", ["vector", "text", "hybrid"])
def test_a_note_is_found_by_what_it_is_about(vectors: Vectors, mode: Any) -> None:
    matches = vectors.search(ID, "cooking rice soup", mode=mode, k=2)
    assert ids(matches)[0] == list(TOPICS).index("kitchen")
    assert matches.column("score").to_pylist() == sorted(matches.column("score").to_pylist(), reverse=True)


def test_words_are_stemmed_and_meaning_needs_no_shared_word(vectors: Vectors) -> None:
    assert ids(vectors.search(ID, "rising tides", mode="text", k=1)) == [0]
    assert ids(vectors.search(ID, "ocean beach surf", mode="vector", k=1)) == [0]


def test_inserts_updates_and_deletes_arrive_and_the_past_stays(lake: Lake, vectors: Vectors) -> None:
    before = lake.tables.describe(TABLE).snapshot_id
    lake.tables.upsert(TABLE, [row(0, "code"), row(9, "sea", stars=5)])
    lake.tables.delete(TABLE, "id = 1")
    head = vectors.refresh(ID)
    assert head.newest is not None and head.newest.rows == 4
    assert ids(vectors.search(ID, "tide and waves", k=1)) == [9]
    assert 1 not in ids(vectors.search(ID, "boil rice", k=10))
    assert ids(vectors.search(ID, "tide and waves", k=1, as_of=SnapshotId(before))) == [0]
    assert 1 in ids(vectors.search(ID, "boil rice", k=10, as_of=SnapshotId(before)))


def test_a_filter_is_applied_before_the_top_k(lake: Lake, vectors: Vectors) -> None:
    lake.tables.upsert(TABLE, [row(number, "sea", stars=1) for number in range(100, 160)] + [row(7, "garden", 5)])
    vectors.refresh(ID)
    for mode in ("vector", "hybrid"):
        assert ids(vectors.search(ID, "high tide at the shore", mode=mode, k=3, where="stars = 5")) == [7]  # type: ignore[arg-type]
    assert len(vectors.search(ID, "water", mode="text", k=40, where="stars = 1 AND id >= 120")) == 40


def test_following_changes_gives_what_a_rebuild_gives(lake: Lake, vectors: Vectors) -> None:
    chance = random.Random(4)
    for _ in range(6):
        rows = [row(n, chance.choice(list(TOPICS)), chance.randint(1, 5)) for n in chance.sample(range(20), 5)]
        lake.tables.upsert(TABLE, rows)
        lake.tables.delete(TABLE, f"id = {chance.randrange(20)}")
        vectors.refresh(ID)
    followed = content(vectors)
    vectors.refresh(ID, rebuild=True)
    assert content(vectors) == followed == sorted(
        (note["id"], note["text"], note["stars"]) for note in lake.tables.scan(TABLE).to_pylist()
    )  # fmt: skip


def test_a_refresh_that_stops_half_way_is_not_seen_and_the_next_mends_it(
    lake: Lake, vectors: Vectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = content(vectors)
    lake.tables.upsert(TABLE, [row(0, "code"), row(50, "garden")])
    with monkeypatch.context() as patch:
        patch.setattr(Chain, "add", stopped)
        with pytest.raises(KeyboardInterrupt):
            vectors.refresh(ID)
    assert content(vectors) == old  # the deletes are in Lance already, and nobody sees them
    vectors.refresh(ID)
    assert [note[0] for note in content(vectors)] == [0, 1, 2, 3, 50]


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


def test_two_refreshes_at_once_do_not_mix(
    lake: Lake, vectors: Vectors, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second runs as a whole between the first one's delete and add; the first sees that, and tries again."""
    other = Vectors(lake.settings, lake.s3, lake.tables)
    lake.tables.upsert(TABLE, [row(0, "code"), row(50, "garden")])
    real, raced = Chain.add, list[bool]()

    def add(self: Chain, rows: Any) -> None:
        if not raced:
            raced.append(True)
            other.refresh(ID)
        real(self, rows)

    monkeypatch.setattr(Chain, "add", add)
    vectors.refresh(ID)
    assert raced and [note[0] for note in content(vectors)] == [0, 1, 2, 3, 50]


def test_a_row_without_text_is_kept_out_and_comes_when_it_has_some(lake: Lake, vectors: Vectors) -> None:
    lake.tables.upsert(TABLE, [{"id": 70, "text": None, "stars": 1}, {"id": 71, "text": "  ", "stars": 1}])
    head = vectors.refresh(ID)
    assert head.newest is not None and head.newest.rows == 4
    lake.tables.upsert(TABLE, [row(70, "garden")])
    assert 70 in [note[0] for note in (vectors.refresh(ID), content(vectors))[1]]


def test_indexes_are_kept_up_and_keep_the_answers(lake: Lake, vectors: Vectors) -> None:
    lake.tables.upsert(TABLE, [row(number, "sea") for number in range(200, 230)])
    vectors.refresh(ID)
    before = content(vectors)
    vectors.maintain(ID)
    assert content(vectors) == before
    assert ids(vectors.search(ID, "chopped onions", mode="text", k=1)) == [1]


def test_a_changed_manifest_shows(lake: Lake, vectors: Vectors) -> None:
    vectors.verify(ID)
    newest = vectors.describe(ID).newest
    assert newest is not None
    key = f"vectors/{ID}.lance/_versions/{2**64 - 1 - newest.version}.manifest"
    lake.s3.put_object(Bucket=lake.settings.bucket, Key=key, Body=b"other")
    with pytest.raises(Unverified, match=f"version {newest.version}"):
        vectors.verify(ID)


def test_a_bad_question_is_refused_with_its_reason(vectors: Vectors) -> None:
    for wrong, words, arguments in [
        ("k is 0", "x", {"k": 0}),
        ("words", " ", {}),
        ("1 dimensions", None, {"vector": [1.0], "mode": "vector"}),
        ("nope", "x", {"where": "nope = 1"}),
        ("not a condition", "x", {"where": "stars ="}),
        ("does something else", "x", {"where": "stars + 1"}),
        ("does something else", "x", {"where": "stars = (SELECT 1)"}),
        ("does something else", "x", {"where": "stars = 1; DROP TABLE t"}),
        ("not a condition", "x", {"where": "stars"}),
        ("4001 characters", "x", {"where": "x" * 4001}),
    ]:
        with pytest.raises(Invalid, match=wrong):
            vectors.search(ID, words, **arguments)  # type: ignore[arg-type]


def test_what_cannot_be_embedded_is_refused(lake: Lake, vectors: Vectors) -> None:
    with pytest.raises(Invalid, match="only text"):
        vectors.create(TABLE, "stars")
    with pytest.raises(Invalid, match="no column 'nope'"):
        vectors.create(TABLE, "nope")
    with pytest.raises(Conflict, match="exists already: drop it first"):
        vectors.create(TABLE, "text")
    with pytest.raises(NotFound, match="vectors create"):
        vectors.search("silver.other.text", "x")
    vectors.drop(ID)
    assert vectors.list() == []


def content(vectors: Vectors) -> list[tuple[int, str, int]]:
    rows = vectors.search(ID, vector=np.ones(256).tolist(), mode="vector", k=1000).to_pylist()
    return sorted((row["id"], row["text"], row["stars"]) for row in rows)
