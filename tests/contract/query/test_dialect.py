"""The dialect is DuckDB's: what DuckDB answers over the same rows, the lake answers, names and order included."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from catalog.core.errors import Invalid
from infra.local.server import ApiServer
from tests.worlds.query import assert_same, rows_of
from tests.worlds.query_kinds import Kinds, kinds_on


@pytest.fixture(scope="module")
def kinds(server: ApiServer) -> Iterator[Kinds]:
    with kinds_on(server) as made:
        yield made


STATEMENTS = [
    # Clauses
    "FROM qa.k",
    "FROM qa.k SELECT id, g WHERE id > 20",
    "VALUES (1, 'a'), (2, NULL)",
    "SELECT g, count(*) FROM qa.k GROUP BY ALL",
    "SELECT * EXCLUDE (s, l, x, f) REPLACE (id + 1 AS id) FROM qa.k",
    "SELECT COLUMNS('^(id|g)$') FROM qa.k",
    "SELECT id FROM qa.k QUALIFY row_number() OVER (PARTITION BY g ORDER BY id) = 1",
    "SELECT id FROM qa.k ORDER BY id LIMIT 3 OFFSET 2",
    "SELECT DISTINCT ON (g) g, id FROM qa.k ORDER BY g, id",
    "SELECT g FROM qa.k EXCEPT ALL SELECT 1",
    "SELECT g FROM qa.k INTERSECT ALL SELECT g FROM qa.k WHERE id > 9",
    "SELECT id, name FROM qa.k UNION ALL BY NAME SELECT 'z' AS name, -1 AS id",
    "SELECT g, flag, count(*), grouping(g) FROM qa.k GROUP BY ROLLUP (g, flag)",
    "SELECT * FROM (PIVOT (SELECT g, flag, id FROM qa.k) ON g IN (0, 1, 2) USING count(id))",
    "SELECT * FROM (SELECT g, id FROM qa.k) PIVOT (sum(id) FOR g IN (0, 1))",
    "SELECT * FROM (UNPIVOT (SELECT id, g FROM qa.k WHERE g IS NOT NULL) ON id, g)",
    "SELECT count(*) FROM (SELECT * FROM qa.k TABLESAMPLE reservoir(5 ROWS) REPEATABLE (3))",
    "SELECT column_name, count FROM (SUMMARIZE SELECT id, g FROM qa.k)",
    "SELECT column_name, min, max, count FROM (SUMMARIZE qa.k)",
    "WITH RECURSIVE c(n, m) AS (SELECT 1, 2 UNION ALL SELECT n + 1, m * 2 FROM c WHERE n < 5) SELECT * FROM c",
    # Joins
    "SELECT a.id, b.id FROM qa.k a ASOF JOIN (SELECT * FROM qa.k WHERE id % 5 = 0) b ON a.id >= b.id",
    "SELECT a.id, b.g FROM qa.k a ASOF JOIN qa.k b ON a.g = b.g AND a.id >= b.id WHERE b.name = 'ash'",
    "SELECT k.id, u.e FROM qa.k, unnest(k.l) AS u(e)",
    "SELECT k.id, z.m FROM qa.k, LATERAL (SELECT max(b.id) AS m FROM qa.k b WHERE b.g = k.g AND b.id < k.id) z",
    "SELECT a.id FROM qa.k a SEMI JOIN qa.k b ON a.id = b.g",
    "SELECT a.id FROM qa.k a ANTI JOIN qa.k b ON a.id = b.g AND b.name = 'ash'",
    "SELECT a.id, b.id FROM qa.k a LEFT JOIN qa.k b ON a.id = b.id + 20 WHERE b.id IS NULL",
    "SELECT a.id, b.id FROM qa.k a LEFT JOIN qa.k b ON a.id = b.id + 20 WHERE b.name IS NULL OR b.id < 3",
    "SELECT a.id, b.id FROM qa.k a FULL JOIN qa.k b ON a.id = b.id + 20 WHERE a.id > 25 OR b.id < 3",
    "SELECT a.id, b.id FROM qa.k a RIGHT JOIN qa.k b ON a.id = b.id + 20 AND a.id > 22 WHERE b.id > 5",
    # Subqueries
    "SELECT id, (SELECT count(*) FROM qa.k b WHERE b.g = k.g AND b.id < k.id) FROM qa.k",
    "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM qa.k b WHERE b.id = k.id + 25) THEN 'y' ELSE 'n' END FROM qa.k",
    "SELECT id FROM qa.k WHERE (g, flag) IN (SELECT g, flag FROM qa.k WHERE id < 5)",
    "SELECT id FROM qa.k WHERE (id, g) IN ((1, 1), (2, 2))",
    "SELECT id FROM qa.k WHERE g = ANY (SELECT g FROM qa.k WHERE id > 25)",
    "SELECT id FROM qa.k WHERE g > ALL (SELECT g FROM qa.k WHERE id = 1)",
    # Names
    "SELECT id, id, g AS id FROM qa.k WHERE id < 3",
    "SELECT ID, Name FROM QA.K WHERE K.Id < 3",
    'SELECT "ID" FROM qa.k WHERE id < 2',
    "SELECT qa.k.id, k.s.word, s.id, k.s.id FROM qa.k",
    "SELECT k FROM qa.k WHERE id = 1",
    "SELECT id + 1 AS id FROM qa.k WHERE id < 3",
    "SELECT -id AS z FROM qa.k WHERE z < -27",
    "SELECT g AS name, count(*) FROM qa.k GROUP BY g HAVING count(*) > 2",
    # Values
    "SELECT 2 ^ 3, 7 / 2, 7 // 2, -7 // 2, -7 % 3, 1 / 0, 0 / 0, 0.1 + 0.2 = 0.3",
    "SELECT price + 0.1 = 1.6, price * 0.1, price / 3 FROM qa.k",
    "SELECT sum(v) FROM (VALUES (9223372036854775807), (9223372036854775807)) t(v)",
    "SELECT sum(id), avg(price), sum(price), avg(id), sum(x) FROM qa.k",
    "SELECT min(x), max(x), min(f), max(f) FROM qa.k",
    "SELECT g, min(x), max(x) FROM qa.k GROUP BY g",
    "SELECT cast(2.5 AS int), cast(-2.5 AS int), cast(2.5::double AS int), cast(3.5::double AS int)",
    "SELECT arg_max(name, id), arg_min(id, price), mode(g), median(id), list(id ORDER BY id DESC) FROM qa.k",
    "SELECT strftime(ts, '%Y-%m'), ts AT TIME ZONE 'Asia/Tokyo', tz AT TIME ZONE 'UTC' FROM qa.k WHERE id < 6",
    "SELECT {'a': id, 'b': [1, 2]}, MAP {'x': id}['x'], l[1], l[-1], list_transform(l, lambda e: e + 1) FROM qa.k",
    "SELECT json_extract_string('{\"a\": [1, 2]}', '$.a[1]'), '{\"a\": 5}'::JSON ->> 'a', to_json(s) FROM qa.k",
    "SELECT regexp_replace(name, 'a', 'b'), regexp_extract(name, '[a-z]+'), name ~ '^a' FROM qa.k",
    "SELECT 1 UNION ALL SELECT NULL",
    "SELECT make_date(2024, 1, 1), upper('x'), DATE '2024-01-31' + INTERVAL 1 MONTH",
    "SELECT * FROM range(3) r(i), generate_series(1, 2) g(j), json_each('[1, 2]') e",
]


@pytest.mark.parametrize("text", STATEMENTS)
@pytest.mark.parametrize("verify", [False, True], ids=["plain", "verified"])
def test_the_answer_is_duckdbs(kinds: Kinds, text: str, verify: bool) -> None:
    expected = kinds.duck.sql(text).to_arrow_table()
    actual = kinds.lake.queries.run(text, verify=verify).table()
    assert [name.lower() for name in actual.column_names] == [name.lower() for name in kinds.duck.sql(text).columns]
    assert_same(rows_of(actual), rows_of(expected), ordered="ORDER BY id LIMIT" in text, note=text)


def test_a_positional_join_is_refused(kinds: Kinds) -> None:
    """Over Parquet files DuckDB 2.0 pairs wrong rows; over its own tables it does not."""
    with pytest.raises(Invalid, match="row_number"):
        kinds.lake.queries.run("SELECT 1 FROM (SELECT id FROM qa.k) a POSITIONAL JOIN qa.k b")


def test_a_table_with_names_that_differ_only_in_case_is_refused(kinds: Kinds) -> None:
    kinds.lake.tables.create("qa.cases", pa.schema([pa.field("a", pa.int64()), pa.field("A", pa.int64())]))
    with pytest.raises(Invalid, match="differ only in case: rename"):
        kinds.lake.queries.run("SELECT 1 FROM qa.cases", fresh=True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM qa.k WITH (NOLOCK)",
        "SELECT id FROM qa.k START WITH id = 1 CONNECT BY PRIOR id = g",
        "SELECT g, count(*) FROM qa.k GROUP BY g WITH ROLLUP",
        "SELECT id FROM qa.k DISTRIBUTE BY id",
        "SELECT id FROM qa.k PARTITION (p0)",
    ],
)
def test_a_clause_that_duckdb_does_not_have_is_refused(kinds: Kinds, text: str) -> None:
    with pytest.raises(Invalid, match=r"cannot be (parsed|run)"):
        kinds.lake.queries.run(text).table()
