"""Aggregates are answered from Iceberg's statistics only where those hold the answer: DuckDB says what it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from catalog.query.plan.routing import Route
from infra.local.server import ApiServer
from tests.worlds.query_kinds import Kinds, kinds_on


@pytest.fixture(scope="module")
def kinds(server: ApiServer) -> Iterator[Kinds]:
    with kinds_on(server) as made:
        yield made


FILTERS = [
    "1 = 0",
    "false",
    "NULL",
    "id = NULL",
    "id <> NULL",
    "id IN (NULL)",
    "id NOT IN (1, NULL)",
    "id > 5 AND id < 3",
    "id IS NULL AND id > 0",
    "upper(name) = 'APPLE' OR upper(name) = 'BANANA'",
    "length(name) > 3 AND length(name) < 6",
    "id >= 2.5 AND id <= 7.5",
    "id >= -0.5 AND id <= 29.5",
    "g + 1 > 0 AND g + 1 < 3",
    "cast(ts AS date) BETWEEN DATE '2024-01-03' AND DATE '2024-01-06'",
    "cast(id AS varchar) = '5' OR cast(id AS varchar) = '6'",
    "CASE WHEN id > 12 THEN true ELSE false END",
    "CASE WHEN id > 12 THEN g > 1 WHEN id > 5 THEN g < 1 END",
    "coalesce(flag, false)",
    "coalesce(g, 0) = 0",
    "nullif(g, 1) IS NULL",
    "s.id < -3",
    "s.id > 90 AND s.word = 'apple'",
    "s.id IS NULL",
    "s IS NULL",
    "x > 2 AND x = x",
    "flag IS NOT TRUE",
    "flag IS NOT NULL AND flag",
    "id IS DISTINCT FROM 3",
    "NOT (id < 10 AND g IS NOT NULL)",
    "(id < 10) = (g > 1)",
    "id < 10 OR name LIKE 'B%'",
    "id > (SELECT min(id) FROM qa.k) AND id < 20",
    "EXISTS (SELECT 1 FROM qa.k b WHERE b.id = k.id + 1)",
    "id IN (SELECT g FROM qa.k)",
    # Decided file by file:
    "id < 10",
    "id < 10 OR id >= 20",
    "id >= 0 AND ts >= TIMESTAMP '2024-02-01 00:00:00'",
    "day < DATE '2024-02-01'",
    "flag IS NULL",
    "price < 2",
]
AGGREGATES = "count(*) AS n, count(id) AS ids, min(id) AS low, max(day) AS high"


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("verify", [False, True])
def test_a_filter_is_never_left_out_of_an_aggregate(kinds: Kinds, where: str, verify: bool) -> None:
    kinds.same(f"SELECT count(*) AS n FROM qa.k WHERE {where}", verify=verify)
    kinds.same(f"SELECT {AGGREGATES} FROM qa.k WHERE {where}", verify=verify)
    kinds.same(f"SELECT count(*) AS n FROM qa.k AS s WHERE {where.replace('k.id', 's.id')}", verify=verify)


@pytest.mark.parametrize("value", [None, 3, 300])
def test_a_parameter_is_part_of_the_filter(kinds: Kinds, value: Any) -> None:
    kinds.same("SELECT count(*) AS n FROM qa.k WHERE id = $p", parameters={"p": value})
    kinds.same("SELECT count(*) AS n FROM qa.k WHERE id < $p OR id >= 20", parameters={"p": value})


FROM = [
    "count(*) AS n FROM (SELECT DISTINCT g FROM qa.k) d",
    "count(*) AS n FROM (SELECT g FROM qa.k GROUP BY g) d",
    "count(*) AS n FROM (SELECT g, count(*) FROM qa.k GROUP BY g HAVING count(*) > 6) d",
    "count(*) AS n FROM (SELECT g FROM qa.k LIMIT 3) d",
    "count(*) AS n FROM (SELECT g FROM qa.k OFFSET 3) d",
    "count(*) AS n FROM (SELECT g FROM qa.k ORDER BY id LIMIT 3) d",
    "count(*) AS n FROM (SELECT g FROM qa.k EXCEPT SELECT 1) d",
    "count(*) AS n FROM (SELECT g FROM qa.k INTERSECT SELECT 1) d",
    "count(*) AS n FROM (SELECT g FROM qa.k UNION ALL SELECT 1) d",
    "count(*) AS n FROM (SELECT g FROM qa.k UNION SELECT g FROM qa.k) d",
    "count(*) AS n FROM (SELECT unnest(l) AS e FROM qa.k) d",
    "count(*) AS n FROM (SELECT row_number() OVER (ORDER BY id) AS r FROM qa.k) d WHERE r < 5",
    "count(*) AS n FROM (SELECT 1 AS one) d",
    "count(*) AS n FROM (SELECT id FROM qa.k WHERE id < 5) d",
    "count(*) AS n FROM (SELECT id FROM qa.k WHERE id < 5) d WHERE id > 2",
    "max(x) AS m FROM (SELECT -id AS x FROM qa.k) d",
    "max(id) AS m FROM (SELECT g AS id FROM qa.k) d",
    "max(id) AS m FROM (SELECT id FROM (SELECT price AS id FROM qa.k) e) d",
    "max(g) AS m FROM (SELECT id AS g, g AS id FROM qa.k) d",
    "max(id) AS m FROM qa.k AS d(g, id, x, f, name, ts, tz, day, price, flag, s, l)",
    "count(id) AS m FROM qa.k AS d(g, id, x, f, name, ts, tz, day, price, flag, s, l)",
    "max(s.id) AS m FROM qa.k",
    "max(k.s.id) AS m FROM qa.k",
    "count(s.id) AS m FROM qa.k",
    "max(s.id) AS m FROM qa.k AS s",
    "max(k.id) AS m, max(qa.k.id) AS o FROM qa.k",
    "count(s) AS m, count(l) AS o FROM qa.k",
    "count(DISTINCT g) AS m FROM qa.k",
    "count(*) FILTER (WHERE id > 3) AS m FROM qa.k",
    "count(*) AS n FROM qa.k, qa.k b",
    "count(*) AS n FROM qa.k JOIN qa.k b ON k.id = b.id + 3",
    "count(*) AS n FROM qa.k HAVING count(*) > 99",
    "count(*) AS n FROM qa.k GROUP BY g",
    "count(*) AS n FROM qa.k LIMIT 0",
    "count(*) AS n FROM qa.k OFFSET 1",
    "count(*) OVER () AS n FROM qa.k",
    "max(name) AS m, min(name) AS o FROM qa.k",
    "max(id), count(*) AS n, max(day), min(price), max(flag), max(tz), min(ts) FROM qa.k",
    "count(NULL) AS n, count(1) AS o, count(0.5) AS p FROM qa.k",
]


@pytest.mark.parametrize("rest", FROM)
@pytest.mark.parametrize("verify", [False, True])
def test_an_aggregate_is_of_what_from_says(kinds: Kinds, rest: str, verify: bool) -> None:
    kinds.same(f"SELECT {rest}", verify=verify)


def test_common_tables_are_not_taken_for_tables(kinds: Kinds) -> None:
    kinds.same("WITH k AS (SELECT id FROM qa.k WHERE id < 4) SELECT count(*) AS n FROM k")
    kinds.same("SELECT count(*) AS n FROM (WITH k AS (SELECT id FROM qa.k WHERE id < 4) SELECT * FROM k) d")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM qa.k",
        "SELECT count(*), min(id), max(k.day), count(g) FROM qa.k",
        "SELECT count(*) AS n, max(y.id) FROM qa.k AS y WHERE y.id < 10",
        "SELECT min(id) FROM qa.k WHERE id < 10 OR tz >= TIMESTAMPTZ '2024-03-01 00:00:00+00'",
    ],
)
def test_what_the_statistics_hold_is_still_answered_from_them(kinds: Kinds, text: str) -> None:
    assert kinds.lake.queries.explain(text).route is Route.METADATA
    kinds.same(text)
    kinds.same(text, verify=True)
