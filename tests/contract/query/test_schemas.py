"""An answer's schema is stated before its rows come, and each of its batches has it: values as DuckDB has them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.server import ApiServer
from tests.worlds.lake import sequence
from tests.worlds.query import rows_of
from tests.worlds.query_kinds import Kinds, kinds_on


@pytest.fixture(scope="module")
def kinds(server: ApiServer) -> Iterator[Kinds]:
    with kinds_on(server) as made:
        made.lake.tables.create("qa.money", {"id": "long", "k": "int", "price": "decimal(10, 2)", "name": "string"})
        rows = made.duck.sql("SELECT id, g AS k, price, name FROM qa.k").to_arrow_table()
        made.lake.tables.insert("qa.money", rows)
        sequence(made.lake, "qa.money")
        made.duck.execute("CREATE TABLE qa.money AS SELECT id, g AS k, price, name FROM qa.k")
        yield made


STATEMENTS = [
    "SELECT count(DISTINCT k) AS c, sum(price) AS s FROM qa.money",
    "SELECT k, count(DISTINCT id) AS c, sum(price) AS s, min(price) AS m FROM qa.money GROUP BY k",
    "SELECT sum(CASE WHEN k = 1 THEN price ELSE 0 END) AS s FROM qa.money",
    "SELECT CASE WHEN k = 1 THEN price ELSE 1 END AS s FROM qa.money",
    "SELECT CASE WHEN k = 1 THEN 1 ELSE 1.5 END AS s FROM qa.money",
    "SELECT CASE WHEN id > 15 THEN 1 ELSE 1.5 END AS s FROM qa.k",
    "SELECT avg(price) AS a, sum(price) AS s, max(price) AS m FROM qa.money",
    "SELECT count(DISTINCT g) AS c, sum(x) AS s FROM qa.k WHERE id < 10",
    "SELECT price FROM qa.money UNION ALL SELECT NULL",
    "SELECT NULL AS a UNION ALL SELECT price FROM qa.money",
    "SELECT NULL AS a, 1 AS b UNION ALL SELECT name, id FROM qa.k",
    "SELECT price FROM qa.money UNION ALL SELECT id FROM qa.money",
    "SELECT price FROM qa.money UNION SELECT 1.555",
    "SELECT 1 AS a UNION ALL SELECT 2.5",
    "SELECT k FROM qa.money UNION ALL SELECT 0.5",
    "SELECT 'a' AS a UNION ALL SELECT name FROM qa.k",
    "SELECT upper('x') AS u",
    "SELECT upper('x') AS u, id FROM qa.k",
    "SELECT upper('x') AS u, id FROM qa.k WHERE id < 0",
    "SELECT md5('a') AS m, left(name, 2) AS l, lpad(name, 5, ' ') AS p FROM qa.money WHERE name = 'apple'",
    "SELECT make_date(2024, 1, 1) AS d, CAST('2024-01-01' AS timestamp) AS t",
    "SELECT [1, NULL] AS a, [1, 2] AS b",
    "SELECT * FROM (VALUES (1, NULL), (2.5, 'x')) v(a, b)",
    "SELECT sum(price) OVER () AS s, avg(price) OVER () AS a FROM qa.money",
    "SELECT k, sum(price) AS s FROM qa.money GROUP BY GROUPING SETS ((k), ())",
    "SELECT s, l FROM qa.k",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_every_batch_has_the_schema_that_was_stated(kinds: Kinds, text: str) -> None:
    queries = kinds.lake.queries
    kinds.same(text)
    answer = queries.run(text, fresh=True)
    stated, batches = answer.schema, list(answer.batches())
    assert all(batch.schema.equals(stated, check_metadata=True) for batch in batches)
    again = queries.run(text, fresh=True)
    assert again.receipt.cached and again.schema.equals(stated, check_metadata=True)
    assert str(rows_of(again)) == str([row for batch in batches for row in rows_of(batch)])  # NaN is not NaN
