"""Searches that are answered without the engine, against the same with it: rows, order, types, receipts, refusals."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.queries import Queries
from catalog.timeline.sequencer.vector_events import vector_table_name
from tests.worlds.lake import sequence
from tests.worlds.query import rows_of
from tests.worlds.search import TABLE, WORDS, World, parts_of

PROJECTIONS = [
    "id",
    "text",
    "id, text",
    "t.id, T.TEXT",
    "stars, weight, flag, word",
    "day, at, price",
    'id AS number, word AS Word, word AS "Word"',
    "price, id, price AS again",
    '"Odd Name"',
    'id AS stars, stars AS id, "Odd Name" AS "a ""b"""',
    "id, embedding <-> $q AS d",
    "embedding <-> $q AS d",
    "t.embedding <-> $q AS far, text",
]
CONDITIONS = [
    "true",
    "stars > 2", "stars >= 2.5", "stars < 2.5", "stars = 2.5", "stars <> 3", "stars != -3", "NOT stars = 3",
    "stars IN (1, 2, -3)", "stars NOT IN (1, 2)", "stars BETWEEN 1 AND 3", "stars IS NULL", "stars IS NOT NULL",
    "stars = NULL", "stars < 99999999999",
    "stars = id", "id < stars", "3 > stars", "stars > -1 OR stars IS NULL", "(stars > 1 AND id < 200) OR id > 220",
    "stars IN (1, NULL)", "stars NOT IN (1, NULL)", "stars > $n", "stars = $n AND id > $m", "stars BETWEEN $n AND 4",
    "weight > 0", "weight >= 0.1", "weight < 1e300", "weight = 0", "weight <> 0.1", "weight IS NULL", "weight > stars",
    "NOT weight > 0", "weight = -7.25", "weight IN (0.1, 2.5)", "weight > 1 AND stars > 1", "weight BETWEEN -1 AND 3",
    "flag", "NOT flag", "flag = true", "flag IS TRUE", "flag IS NOT TRUE", "flag IS NULL",
    "flag = false OR flag IS NULL",
    "word = ''", "word = 'a'", "word > 'a'", "word <> 'a'", "word LIKE 'a%'", "word LIKE 'a_b'", "word NOT LIKE '%b'",
    "word LIKE '%\\%'", "word = 'it''s'", "word = 'größe'", "word = 'back\\slash'",
    "word IN ('a', 'A')", "word = $w", "word LIKE $w", "word IS NULL", "word = text",
    "word < 'B'", '"Odd Name" = \'x\'', "word ILIKE 'A%'",
    "day = '2026-03-05'", "day > DATE '2026-03-10'", "price = 12.34", "price > 0", '"at" IS NOT NULL', "day IS NULL",
    "id % 2 = 0", "author = 3", "stars + 0 = 3", "length(word) = 1", "stars > 1 AND author > 2",
    "embedding <-> $q < 0.9", "id IN (SELECT 7)", "text @@ 'tide'",
]  # fmt: skip
ORDERS = [
    "embedding <-> $q",
    "t.embedding <-> $q",
    "text <-> $q",
    "embedding <-> $q ASC",
    "embedding <-> $q NULLS LAST",
]
LIMITS = ["1", "5", "5", "17", "0", "1000", "$n", "5 OFFSET 3", "4 OFFSET $n", "3 OFFSET 500", "0 OFFSET 0"]
QUESTIONS = ["tide at the harbour", "pepper soup", "compiler types", ""]


def test_both_ways_say_the_same_of_statements_at_random(world: World) -> None:
    """Every condition under a few projections, orders, limits and values, odd ones among them."""
    chance, alone = random.Random(5), 0
    for condition in [*CONDITIONS, *CONDITIONS]:
        shown, order, limit = chance.choice(PROJECTIONS), chance.choice(ORDERS), chance.choice(LIMITS)
        sql = f"SELECT {shown} FROM {TABLE} t WHERE {condition} ORDER BY {order} LIMIT {limit}"
        if condition == "true":
            sql = sql.replace("WHERE true ", "")
        alone += world.same(sql, parameters=given_to(sql, chance))[1]
    assert alone > 60


@pytest.mark.parametrize("condition", CONDITIONS)
def test_no_row_that_meets_a_condition_is_left_out_for_one_that_does_not(world: World, condition: str) -> None:
    """Against the distances of all rows: the vector table must not count rows that the engine would drop."""
    quick = f"SELECT id FROM {TABLE} t WHERE {condition} ORDER BY embedding <-> $q LIMIT 12"
    exact = f"""SELECT id FROM (SELECT id, embedding <-> $q AS d FROM {TABLE} t WHERE {condition}) AS e
                ORDER BY d LIMIT 12"""
    parameters = given_to(quick, random.Random(1), n=2)
    rows = rows_of(world.direct.run(quick, parameters=parameters))
    assert rows == rows_of(world.engine.run(exact, parameters=parameters))


def given_to(sql: str, chance: random.Random, **more: Any) -> dict[str, Any]:
    """Values for the parameters that the text names."""
    odd = chance.choice([0, 2, 3, 3, 2.5, -1, True, None, "3"])
    given = {"q": chance.choice(QUESTIONS), "n": odd, "m": 40, "w": "a%b", **more}
    return {name: value for name, value in given.items() if f"${name}" in sql}


NEAREST = f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5"


@pytest.mark.parametrize(
    ("sql", "alone"),
    [
        (NEAREST, True),
        (f"SELECT id, text <-> $q AS d, stars FROM {TABLE} WHERE stars > 1 ORDER BY d LIMIT 5 OFFSET 2", True),
        (f"SELECT id, embedding <-> $q AS stars FROM {TABLE} ORDER BY stars LIMIT 5", True),
        (f"SELECT id, author FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),  # is not in the vector table
        (f"SELECT id FROM {TABLE} WHERE author > 2 ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT * FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT id + 1 AS id FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT upper(text) FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT embedding <-> $q FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT 1 - (embedding <-> $q) AS near FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT id, embedding <-> 'x' AS d FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT id, text_score(text, 'tide') AS s FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT id FROM {TABLE} WHERE text @@ 'tide' ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q, id DESC LIMIT 5", False),
        (f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q DESC LIMIT 5", False),
        (f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q NULLS FIRST LIMIT 5", False),
        (f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q LIMIT 2 + 3", False),
        (f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q LIMIT 20000", False),
        (f"SELECT DISTINCT stars FROM {TABLE} ORDER BY stars, embedding <-> $q LIMIT 5", False),
        (f"SELECT count(*) AS c FROM {TABLE} WHERE embedding <-> $q < 0.5", False),
        (f"SELECT row_number() OVER (ORDER BY embedding <-> $q) FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT x.stars FROM {TABLE} AS x(id, text, weight, stars, flag, word, day, at, price, odd, author) "
         "ORDER BY x.embedding <-> $q LIMIT 5", False),
        (f"SELECT t.id FROM {TABLE} t, {TABLE} u WHERE t.id = u.id ORDER BY t.embedding <-> $q LIMIT 5", False),
        (f"SELECT t.id FROM {TABLE} t LEFT JOIN {TABLE} u ON t.id = u.id ORDER BY t.embedding <-> $q LIMIT 5", False),
        (f"SELECT id FROM ({NEAREST}) AS n", False),
        (f"WITH n AS ({NEAREST}) SELECT id FROM n", False),
        (f"({NEAREST})", False),
        (f"({NEAREST}) UNION ALL ({NEAREST})", False),
        (f"SELECT id, $q AS asked FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT nope FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT u.id FROM {TABLE} t ORDER BY t.embedding <-> $q LIMIT 5", False),
        (f"SELECT id, id FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", True),
        (f"SELECT embedding FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT _distance FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT source_snapshot FROM {TABLE} ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT id FROM {TABLE} USING SAMPLE 10 (reservoir, 3) ORDER BY embedding <-> $q LIMIT 5", False),
        (f"SELECT id FROM {TABLE} ORDER BY embedding <-> $q FETCH FIRST 5 ROWS ONLY", False),
        (f"EXPLAIN ROUTE {NEAREST}", True),
    ],
)  # fmt: skip
def test_only_the_plain_shape_goes_around_the_engine(world: World, sql: str, alone: bool) -> None:
    outcome, without = world.same(sql, parameters={"q": "storm over the harbour"})
    assert without == alone, outcome


@pytest.mark.parametrize("vector", [[0.0] * 256, [float("nan")] * 256, [1.0, 2.0]])
def test_an_odd_vector_is_answered_alike(world: World, vector: list[float]) -> None:
    for sql in (NEAREST, f"SELECT id, embedding <-> $q AS d FROM {TABLE} WHERE stars > 1 ORDER BY d LIMIT 7"):
        world.same(sql, parameters={"q": vector})


def test_rows_that_do_not_come_nearest_first_are_left_to_the_engine(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = f"SELECT id, embedding <-> $q AS d FROM {TABLE} ORDER BY d LIMIT 9"
    expected = rows_of(world.direct.run(sql, parameters={"q": "the harbour"}))
    ranking = world.lake.vectors.ranking
    real = ranking.nearest
    monkeypatch.setattr(ranking, "nearest", lambda *asked: real(*asked).sort_by([("_distance", "descending")]))
    other = Queries(**parts_of(world.lake))
    assert rows_of(other.run(sql, parameters={"q": "the harbour"})) == expected


def test_the_limit_of_memory_holds_on_both_ways(world: World) -> None:
    assert "needs more than 0 MiB" in str(world.same(NEAREST, limits=EngineLimits(8), parameters={"q": "soil"})[0])


def test_a_part_of_a_column_is_not_the_column_of_its_name(world: World) -> None:
    lake, name = world.lake, "silver.parts"
    home = pa.struct([pa.field("stars", pa.int32())])
    schema = pa.schema([("id", pa.int64()), ("text", pa.string()), ("stars", pa.int32()), ("home", home)])
    lake.tables.create(name, schema, mode="mor", key=["id"])
    rows = [{"id": n, "text": word, "stars": n, "home": {"stars": -n}} for n, word in enumerate(WORDS)]
    lake.tables.insert(name, pa.Table.from_pylist(rows, schema))
    lake.vectors.create(name, "text", columns=["stars"])
    sequence(lake, name, vector_table_name(f"{name}.text"))
    found, alone = world.same(f"SELECT home.stars FROM {name} ORDER BY embedding <-> 'soup' LIMIT 1")
    assert not alone and rows_of(found) == [(-WORDS.index("soup"),)]
    assert world.same(f"SELECT parts.stars FROM {name} ORDER BY embedding <-> 'soup' LIMIT 1")[1]


def test_what_a_search_will_say_is_not_planned_with(world: World) -> None:
    """The planner sees that only the row 7 is meant, and would ask for its distance before there is one."""
    inner = f"SELECT id, embedding <-> 'soup' AS d FROM {TABLE} WHERE id IN (SELECT 7)"
    assert rows_of(world.direct.run(f"SELECT id FROM ({inner}) AS e WHERE d IS NOT NULL")) == [(7,)]


def test_rows_that_are_equally_far_all_come(world: World) -> None:
    lake, name = world.lake, "silver.twins"
    lake.tables.create(name, {"id": "long", "text": "string"}, mode="mor", key=["id"])
    lake.tables.insert(name, [{"id": n, "text": "the same tide"} for n in range(6)] + [{"id": 9, "text": "soup"}])
    lake.vectors.create(name, "text")
    sequence(lake, name, vector_table_name(f"{name}.text"))
    sql = f"SELECT id, embedding <-> 'tide' AS d FROM {name} ORDER BY d LIMIT 7"
    rows = rows_of(world.direct.run(sql))
    assert {row[0] for row in rows[:6]} == set(range(6)) and len({row[1] for row in rows[:6]}) == 1
    assert sorted(rows) == sorted(rows_of(world.engine.run(sql)))
