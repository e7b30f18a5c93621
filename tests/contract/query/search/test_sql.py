"""Search within SQL: by meaning and by words, with filters, joins and time travel; and what the timeline says of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from catalog.core import s3_layout
from catalog.core.errors import Denied, Invalid, NotFound, Unverified
from catalog.core.point_in_time import SnapshotId
from catalog.lake import Lake
from catalog.query.run import search
from catalog.query.run.queries import AccessRules, Queries
from catalog.timeline.sequencer.vector_events import manifest_key, vector_table_name
from catalog.vectors.embedding import WordLlamaEmbedder
from catalog.vectors.manager import Vectors
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import rows_of

TABLE, AUTHORS = "silver.notes", "silver.authors"
ID = "silver.notes.text"
SEA, KITCHEN, CODE, GARDEN = (
    "the tide rises and waves break on the shore at high water",
    "boil the rice, chop an onion and season the soup with pepper",
    "the compiler checks types before the program runs on the machine",
    "plant the roses in spring and water the soil every evening",
)
TOPICS = (SEA, KITCHEN, CODE, GARDEN)


def note(number: int, text: str, stars: int = 3, author: int = 1, day: str = "2026-03-01") -> dict[str, Any]:
    return {"id": number, "text": f"{text} ({number})", "stars": stars, "author": author, "day": day}


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    """400 notes, a hundred of each topic; the note 1000 is the only one about cooking with five stars."""
    with lake_on(server) as made:
        schema = {"id": "long", "text": "string", "stars": "int", "author": "long", "day": "string"}
        made.tables.create(TABLE, schema, mode="mor", key=["id"])
        made.tables.create(AUTHORS, {"author": "long", "name": "string"}, key=["author"])
        made.tables.insert(AUTHORS, [{"author": number, "name": f"author {number}"} for number in range(10)])
        chance = random.Random(8)
        rows = [note(number, TOPICS[number % 4], chance.randint(1, 4), number % 7) for number in range(400)]
        made.tables.insert(TABLE, [*rows, note(1000, KITCHEN, 5, 9, "2026-04-01")])
        made.vectors.create(TABLE, "text", columns=["stars"])
        sequence(made, TABLE, AUTHORS, vector_table_name(ID))
        yield made


def ask(lake: Lake, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    return rows_of(lake.queries.run(sql, **options))


def topic(row: tuple[Any, ...]) -> str:
    return TOPICS[int(row[0]) % 4] if row[0] < 1000 else KITCHEN


@pytest.mark.parametrize("column", ["embedding", "text", "n.embedding"])
def test_the_nearest_in_meaning_come_first(lake: Lake, column: str) -> None:
    rows = ask(lake, f"SELECT id FROM silver.notes n ORDER BY {column} <-> $q LIMIT 20", parameters={"q": "ocean surf"})
    assert len(rows) == 20 and {topic(row) for row in rows} == {SEA}


def test_a_vector_asks_as_its_words_do_and_the_distance_can_be_seen(lake: Lake) -> None:
    words = "cooking rice for supper"
    vector = [float(number) for number in WordLlamaEmbedder().embed([words])[0]]
    sql = "SELECT id, embedding <-> $1 AS d FROM silver.notes ORDER BY d, id LIMIT 5"
    by_words, by_vector = ask(lake, sql, parameters=[words]), ask(lake, sql, parameters=[vector])
    assert [row[0] for row in by_words] == [row[0] for row in by_vector]
    assert [row[1] for row in by_words] == pytest.approx([row[1] for row in by_vector], abs=1e-5)
    assert [row[1] for row in by_words] == sorted(row[1] for row in by_words)
    literal = f"[{', '.join(f'{number:.6f}' for number in vector)}]"
    assert ask(lake, f"SELECT id FROM notes ORDER BY embedding <-> {literal} LIMIT 1") == [by_words[0][:1]]


@pytest.mark.parametrize(
    "condition",
    [
        "stars = 5",  # the vector table has it
        "stars = $stars",
        "day = '2026-04-01'",  # only the Iceberg table has it: the search is widened
        "stars + 0 = 5",  # only the engine understands it
        "author IN (SELECT author FROM silver.authors WHERE name = 'author 9')",
        "stars = 5 AND day > '2026-03-15'",
    ],
)
def test_a_filter_comes_before_the_top_k(lake: Lake, condition: str) -> None:
    sql = f"SELECT id FROM silver.notes WHERE {condition} ORDER BY embedding <-> 'high tide at the shore' LIMIT 3"
    assert ask(lake, sql, parameters={"stars": 5} if "$stars" in condition else None) == [(1000,)]


def test_joins_and_filters_go_with_a_search(lake: Lake) -> None:
    sql = """SELECT n.id, a.name FROM silver.notes n JOIN silver.authors a ON a.author = n.author
             WHERE a.name = 'author 3' AND n.stars <= 4 ORDER BY n.embedding <-> 'chopped onions' LIMIT 10"""
    rows = ask(lake, sql)
    assert len(rows) == 10 and {name for _, name in rows} == {"author 3"}
    assert {topic(row) for row in rows} == {KITCHEN} and all(row[0] % 7 == 3 for row in rows)
    outer = """SELECT n.id, a.name FROM silver.notes n LEFT JOIN silver.authors a
               ON a.author = n.author AND a.author > 5 ORDER BY n.embedding <-> 'chopped onions' LIMIT 15"""
    assert {topic(row) for row in ask(lake, outer)} == {KITCHEN}


def test_words_are_stemmed_all_are_wanted_and_a_phrase_is_a_phrase(lake: Lake) -> None:
    count = "SELECT count(*) FROM silver.notes WHERE "
    assert ask(lake, f"{count} text @@ 'rising tides'") == [(100,)]
    assert ask(lake, f"{count} text @@ 'tide onion'") == [(0,)]
    assert ask(lake, f"{count} NOT text @@ 'tide'") == [(301,)]
    assert ask(lake, f"{count} text @@ 'tide' OR text @@ 'onion'") == [(201,)]
    assert ask(lake, f"{count} text @@ '\"water the soil\"'") == [(100,)]
    assert ask(lake, f"{count} text @@ '\"soil the water\"'") == [(0,)]
    assert ask(lake, f"{count} text @@ $1 AND id < 40", parameters=["tide"]) == [(10,)]


def test_a_score_counts_any_of_the_words_and_is_zero_without(lake: Lake) -> None:
    sql = "SELECT id, text_score(text, 'water roses') AS s FROM silver.notes ORDER BY s DESC, id LIMIT 300"
    rows = ask(lake, sql)
    assert {topic(row) for row in rows[:100]} == {GARDEN} and {topic(row) for row in rows[100:200]} == {SEA}
    assert all(row[1] == 0 for row in rows[200:])
    positive = ask(lake, "SELECT id FROM silver.notes WHERE text_score(text, 'water roses') > 0")
    assert len(positive) == 200


def test_words_and_meaning_in_one_statement(lake: Lake) -> None:
    sql = "SELECT id FROM silver.notes WHERE text @@ 'water' ORDER BY embedding <-> 'flower beds' LIMIT 5"
    assert {topic(row) for row in ask(lake, sql)} == {GARDEN}


FUSED = """
WITH v AS (SELECT id, row_number() OVER (ORDER BY embedding <-> $q) AS place FROM silver.notes WHERE stars < 5
           ORDER BY embedding <-> $q LIMIT 50),
     w AS (SELECT id, row_number() OVER (ORDER BY text_score(text, $q) DESC) AS place FROM silver.notes
           WHERE text_score(text, $q) > 0 AND stars < 5 ORDER BY place LIMIT 50)
SELECT coalesce(v.id, w.id) AS id,
       coalesce(1.0 / (60 + v.place), 0) + coalesce(1.0 / (60 + w.place), 0) AS score
FROM v FULL JOIN w ON v.id = w.id ORDER BY score DESC, id LIMIT 10
"""


def test_ranks_are_fused_in_one_statement(lake: Lake) -> None:
    rows = ask(lake, FUSED, parameters={"q": "season the soup"})
    assert len(rows) == 10 and {topic(row) for row in rows} == {KITCHEN} and 1000 not in {row[0] for row in rows}
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)
    assert rows[0][1] <= 2 / 61


@pytest.mark.parametrize(("first", "wider"), [(search.FIRST_ROUND_ROWS, search.WIDENING_FACTOR), (2, 2)])
def test_a_search_is_what_an_exact_search_over_the_same_rows_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, first: int, wider: int
) -> None:
    """Limits, offsets and conditions at random, against the distances of all rows. With small steps it widens often."""
    monkeypatch.setattr(search, "FIRST_ROUND_ROWS", first)
    monkeypatch.setattr(search, "WIDENING_FACTOR", wider)
    chance = random.Random(first)
    for _ in range(12):
        words = chance.choice(["ocean", "soup", "programs", "flowers"])
        condition = chance.choice(["true", "stars > 2", "author < 3", "id % 3 = 0", "text @@ 'water'"])
        limit, offset = chance.randint(1, 30), chance.choice([0, 0, 7])
        quick = f"SELECT id FROM notes WHERE {condition} ORDER BY embedding <-> $q, id LIMIT {limit} OFFSET {offset}"
        exact = f"""SELECT id FROM (SELECT id, embedding <-> $q AS d FROM notes WHERE {condition}) AS e
                    ORDER BY d, id LIMIT {limit} OFFSET {offset}"""
        assert ask(lake, quick, parameters={"q": words}) == ask(lake, exact, parameters={"q": words}), quick


def test_a_search_is_of_the_cut_that_the_query_reads(lake: Lake) -> None:
    name, id_ = "silver.moving", "silver.moving.text"
    lake.tables.create(name, {"id": "long", "text": "string"}, mode="mor", key=["id"])
    lake.tables.insert(name, [{"id": 0, "text": SEA}, {"id": 1, "text": KITCHEN}])
    lake.vectors.create(name, "text")
    first = sequence(lake, name, vector_table_name(id_))
    lake.tables.upsert(name, [{"id": 0, "text": CODE}, {"id": 2, "text": SEA}])
    behind = sequence(lake, name)
    sql = f"SELECT id, text FROM {name} ORDER BY embedding <-> 'ocean surf' LIMIT 1"
    late = lake.queries.run(sql)
    assert rows_of(late) == [(0, CODE)]  # the vectors of the first snapshot, the rows of this one; and it says so
    assert late.receipt.searched[id_]["behind"] is True
    lake.vectors.refresh(id_)
    now = sequence(lake, name, vector_table_name(id_))
    answer = lake.queries.run(sql)
    assert rows_of(answer) == [(2, SEA)] and answer.receipt.searched[id_]["behind"] is False
    assert now > behind
    assert ask(lake, sql, as_of=first) == [(0, SEA)]
    own = f"SELECT o.id FROM {name} VERSION AS OF {first} o ORDER BY o.embedding <-> 'ocean surf' LIMIT 1"
    assert ask(lake, own) == [(0,)]
    lake.tables.alter(name, rename={"text": "words"})
    sequence(lake, name)
    with pytest.raises(NotFound, match="vectors create"):
        ask(lake, f"SELECT id FROM {name} ORDER BY words <-> 'ocean' LIMIT 1")


def test_what_a_search_needs_is_said(lake: Lake) -> None:
    for wrong, sql in [
        ("no vector table silver.notes.day", "SELECT id FROM silver.notes ORDER BY day <-> 'x' LIMIT 1"),
        (
            "no column of silver.authors is embedded",
            "SELECT 1 FROM silver.authors ORDER BY embedding <-> 'x' LIMIT 1",
        ),
        ("2 dimensions", "SELECT id FROM silver.notes ORDER BY embedding <-> [1, 2] LIMIT 1"),
        ("needs a LIMIT", "SELECT id FROM silver.notes ORDER BY embedding <-> 'x'"),
        ("has no column nope", "SELECT id FROM silver.notes WHERE nope @@ 'x'"),
        ("needs a value: write a text", "SELECT id FROM silver.notes WHERE text @@ 3"),
        ("parameter \\$q has no value", "SELECT id FROM silver.notes ORDER BY embedding <-> $q LIMIT 1"),
        ("is neither", "SELECT id FROM silver.notes ORDER BY embedding <-> $1 LIMIT 1"),
        ("column text of @@ is ambiguous", "SELECT 1 FROM silver.notes a, silver.notes b WHERE text @@ 'x'"),
        ("not a table of the lake", "WITH n AS (SELECT * FROM silver.notes) SELECT 1 FROM n WHERE text @@ 'x'"),
        ("takes a column", "SELECT text_score(text) FROM silver.notes"),
        ("words to look for", "SELECT id FROM silver.notes WHERE text @@ ' '"),
        ("searches an embedded column", "SELECT id FROM silver.notes ORDER BY (id + 1) <-> 'x' LIMIT 1"),
    ]:
        with pytest.raises((Invalid, NotFound), match=wrong):
            ask(lake, sql, parameters=[7] if "$1" in sql else None)
    with pytest.raises(Invalid, match="cannot be verified"):
        ask(lake, "SELECT id FROM silver.notes WHERE text @@ 'tide'", verify=True)


def test_a_search_runs_here_whatever_its_size_and_says_so(lake: Lake) -> None:
    sql = "SELECT id FROM silver.notes ORDER BY embedding <-> 'x' LIMIT 1"
    said = lake.queries.explain(sql, limit_bytes=1)
    assert said.route == "lambda" and f"searches {ID}" in said.reason and "never on Spark" in said.reason
    assert lake.queries.run(f"EXPLAIN ROUTE {sql}").table().column("plan")[0].as_py().startswith("route    lambda")


def test_rows_come_from_the_vector_table_when_it_has_all_that_is_asked(lake: Lake, server: ApiServer) -> None:
    def data_gets(sql: str) -> int:
        mark = server.log.mark()
        lake.queries.run(sql).table()
        return len(server.log.since(mark, lambda request: request.action == "GET" and request.touches("/data/")))

    data_gets("SELECT id, text, stars FROM silver.notes ORDER BY embedding <-> 'warm' LIMIT 3")
    mark = server.log.mark()
    lake.queries.run("SELECT id, text, stars FROM silver.notes ORDER BY embedding <-> 'cold' LIMIT 3").table()
    touched = server.log.since(mark, lambda request: request.action == "GET" and request.touches("/tables/"))
    assert not touched


def test_what_is_masked_is_not_searched_and_a_row_filter_holds(lake: Lake) -> None:
    def queries(rules: AccessRules) -> Queries:
        return Queries(
            lake.tables,
            lambda: lake.timeline,
            lake.attestations,
            rules=lambda caller, table: rules if table == TABLE else None,
            ranking=lambda: lake.vectors.ranking,
        )

    sql = "SELECT id FROM silver.notes ORDER BY embedding <-> 'high tide' LIMIT 2"
    assert rows_of(queries(AccessRules(row_filter="stars = 5")).run(sql)) == [(1000,)]
    with pytest.raises(Denied, match="masked"):
        queries(AccessRules(columns={"text": "'-'"})).run(sql)
    with pytest.raises(Denied, match="masked"):
        queries(AccessRules(columns={"id": None})).run("SELECT stars FROM silver.notes WHERE text @@ 'tide'")


@pytest.mark.parametrize("search", ["ORDER BY embedding <-> 'high tide' LIMIT 2", "WHERE text @@ 'tide'"])
def test_a_search_is_not_run_on_spark_and_nothing_is_started(lake: Lake, search: str) -> None:
    stored = lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=s3_layout.QUERIES)["KeyCount"]
    with pytest.raises(Invalid, match=r"a search cannot run on Spark, .* leave the engine out"):
        lake.queries.ask(f"SELECT id FROM silver.notes {search}", engine="spark")
    assert lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=s3_layout.QUERIES)["KeyCount"] == stored


def test_each_version_is_a_leaf_and_a_tampered_manifest_is_named(lake: Lake) -> None:
    name, id_ = "silver.proven", "silver.proven.text"
    lake.tables.create(name, {"id": "long", "text": "string"}, mode="mor", key=["id"])
    lake.tables.insert(name, [{"id": 0, "text": SEA}])
    lake.vectors.create(name, "text")
    sequence(lake, name, vector_table_name(id_))
    lake.tables.insert(name, [{"id": 1, "text": KITCHEN}])
    head = lake.vectors.refresh(id_)
    assert lake.vectors.verify(id_).sequenced == 1  # the second is not sequenced yet
    sequence(lake, name)
    lake.sequencer.sweep()
    sequence(lake)
    leaves = [leaf for _, leaf in lake.timeline.commits_since(vector_table_name(id_))]
    assert [leaf.operation for leaf in leaves] == ["create", "vectors", "vectors"]
    assert [leaf.snapshot_id for leaf in leaves[1:]] == [entry.snapshot_id for entry in head.entries]
    assert [leaf.manifest_list_sha256 for leaf in leaves[1:]] == [entry.manifest_sha256 for entry in head.entries]
    assert all(len(leaf.encode()) <= 1024 for leaf in leaves)
    assert lake.vectors.verify(id_).sequenced == 2
    assert not lake.verifier.verify(deep=True).faults

    old = head.entries[0]
    key = manifest_key(vector_table_name(id_), old.version)
    bucket = lake.settings.bucket
    body = lake.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    lake.s3.put_object(Bucket=bucket, Key=key, Body=body[:-1] + bytes([body[-1] ^ 1]))
    faults = lake.verifier.verify(deep=True).faults
    assert [(fault.object, fault.table, fault.snapshot_id) for fault in faults] == [
        (f"s3://{bucket}/{key}", vector_table_name(id_), old.snapshot_id)
    ]
    with pytest.raises(Unverified, match=f"version {old.version}"):
        lake.vectors.verify(id_)

    # Whoever changes the head along with the manifest is caught by the leaf.
    head_key = f"{vector_table_name(id_)}.json"
    honest = lake.s3.get_object(Bucket=bucket, Key=head_key)["Body"].read()
    forged = json.loads(honest)
    forged["entries"][0]["manifest_sha256"] = "0" * 64
    lake.s3.put_object(Bucket=bucket, Key=key, Body=body)
    lake.s3.put_object(Bucket=bucket, Key=head_key, Body=json.dumps(forged).encode())
    assert [fault.object for fault in lake.verifier.verify(deep=True).faults] == [f"s3://{bucket}/{head_key}"]
    forged = json.loads(honest) | {"embedder": "another"}
    lake.s3.put_object(Bucket=bucket, Key=head_key, Body=json.dumps(forged).encode())
    assert [fault.object for fault in lake.verifier.verify(deep=True).faults] == [f"s3://{bucket}/{head_key}"]
    lake.s3.put_object(Bucket=bucket, Key=head_key, Body=honest)
    assert not lake.verifier.verify(deep=True).faults

    lake.vectors.drop(id_)
    assert not lake.verifier.verify(deep=True).faults
    lake.sequencer.sweep()
    assert lake.sequencer.catch_up([vector_table_name(id_)]).leaves == []
    sequence(lake)
    assert [leaf.operation for _, leaf in lake.timeline.commits_since(vector_table_name(id_))][-1] == "drop"
    lake.vectors.create(name, "text")
    sequence(lake, vector_table_name(id_))
    assert [leaf.operation for _, leaf in lake.timeline.commits_since(vector_table_name(id_))] == ["create", "vectors"]
    assert not lake.verifier.verify(deep=True).faults


def test_old_versions_go_but_never_one_that_a_kept_snapshot_needs(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name, id_ = "silver.aging", "silver.aging.text"
    monkeypatch.setattr(Vectors, "grace", timedelta(0))
    lake.tables.create(name, {"id": "long", "text": "string"}, mode="mor", key=["id"])
    lake.tables.insert(name, [{"id": 0, "text": SEA}])
    lake.vectors.create(name, "text")
    snapshots = [lake.tables.describe(name).snapshot_id]
    for number, words in enumerate((KITCHEN, CODE, GARDEN), 1):
        lake.tables.insert(name, [{"id": number, "text": words}])
        snapshots.append(lake.tables.describe(name).snapshot_id)
        lake.vectors.refresh(id_)
    lake.tables.snapshot(name, "kept", as_of=SnapshotId(snapshots[1]))
    sequence(lake, name, vector_table_name(id_))

    def offered() -> list[int]:
        return [entry.snapshot_id for entry in lake.vectors.describe(id_).entries]

    def manifests() -> set[int]:
        listed = lake.s3.list_objects_v2(
            Bucket=lake.settings.bucket, Prefix=f"{vector_table_name(id_)}.lance/_versions/"
        )
        names = [one["Key"].rpartition("/")[2].removesuffix(".manifest") for one in listed["Contents"]]
        return {2**64 - 1 - int(version) for version in names if version.isdecimal()}

    lake.vectors.maintain(id_)
    assert offered() == snapshots  # the source has them all
    lake.tables.expire(name, retain_last=1, older_than=2**60)
    before = {entry.snapshot_id: entry.version for entry in lake.vectors.describe(id_).entries}
    lake.vectors.maintain(id_)
    assert offered() == [snapshots[1], snapshots[3]]
    there = manifests()
    assert before[snapshots[1]] in there and before[snapshots[0]] not in there and before[snapshots[2]] not in there
    assert [row["id"] for row in lake.vectors.search(id_, "soup", k=5, as_of=SnapshotId(snapshots[1])).to_pylist()] == [
        1,
        0,
    ]
    assert len(lake.vectors.search(id_, "soup", k=9)) == 4
    sequence(lake, name, vector_table_name(id_))
    assert not lake.verifier.verify(deep=True).faults
    again = lake.vectors.describe(id_)
    assert lake.vectors.maintain(id_) == again  # nothing to do: nothing new
