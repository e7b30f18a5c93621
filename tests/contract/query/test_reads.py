"""What is not read is never missed: files and row groups are left out, and columns unread, only where DuckDB agrees."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest

from catalog.query.scan import dictionary_columns, relations
from infra.local.server import ApiServer
from tests.worlds.lake import sequence
from tests.worlds.query_kinds import Kinds, kinds_on

(NEGATIVE_NAN,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))


@pytest.fixture(scope="module")
def kinds(server: ApiServer) -> Iterator[Kinds]:
    with kinds_on(server) as made:
        yield made


FILTERS = [
    "name ILIKE 'a%'",
    "name ILIKE 'APP%'",
    "name ILIKE 'apple'",
    "name NOT ILIKE 'a%'",
    "name LIKE 'a%'",
    "name NOT LIKE 'a%'",
    "name LIKE 'A%'",
    "name LIKE 'a\\%b' ESCAPE '\\'",
    "name LIKE 'a\\_b' ESCAPE '\\'",
    "name LIKE 'a\\_%' ESCAPE '\\'",
    "name LIKE 'a_b'",
    "name LIKE ''",
    "name LIKE '%'",
    "name LIKE 'é%'",
    "NOT (name LIKE 'a%' OR name ILIKE 'b%')",
    "name LIKE 'Z%' OR name ILIKE 'z%'",
    "name = 'APPLE' OR name ILIKE 'apple'",
    "starts_with(name, 'B')",
    "lower(name) = 'banana'",
    "name = ''",
    "name > 'a' AND name < 'b'",
    "name >= 'Z'",
    "name IN ('APPLE', 'ash')",
    "name NOT IN ('APPLE', 'ash')",
    "name NOT IN ('APPLE', NULL)",
    "name IN ('APPLE', NULL)",
    "id IN (3, NULL) OR id = 12",
    "NOT (id IN (3, NULL))",
    "id NOT IN (3, 4, 5, 13)",
    "id = 3.0",
    "id = 3.5",
    "id < 3.5 OR id > 27.25",
    "id <> 3",
    "NOT id <> 3",
    "id > 1e3",
    "id < 99999999999999999999",
    "id > -99999999999999999999",
    "g > 2147483647",
    "cast(id AS double) > 28.5",
    "cast(name AS varchar) = 'ash'",
    "cast(price AS double) > 2.25",
    "price > 1.555",
    "price = 1.5",
    "price < -2.999",
    "price IN (1.5, 2)",
    "price BETWEEN -0.001 AND 0.001",
    "price > 3",
    "x > 5",
    "x >= 1e300",
    "x < 1",
    "x <> 5",
    "NOT x > 2",
    "NOT x <= 2",
    "x = 'NaN'::double",
    "x <> 'NaN'::double",
    "x < 'NaN'::double",
    "x >= 'NaN'::double",
    "x IN ('NaN'::double, 5)",
    "x NOT IN ('NaN'::double, 5)",
    "x BETWEEN 3 AND 'NaN'::double",
    "x > 'Infinity'::double",
    "f > 3",
    "f = 2.5",
    "f < -2.25",
    "f = 'NaN'::real",
    "x IS NULL",
    "x IS NOT NULL AND NOT x > 0",
    "ts > TIMESTAMP '2024-02-05 12:30:00'",
    "ts >= DATE '2024-03-01'",
    "ts < '2024-01-03'",
    "ts::date = DATE '2024-02-05'",
    "date_trunc('month', ts) = TIMESTAMP '2024-02-01'",
    "tz > TIMESTAMPTZ '2024-02-05 23:30:00+00'",
    "tz > TIMESTAMPTZ '2024-02-06 01:30:00+02'",
    "tz = TIMESTAMPTZ '2024-02-05 18:30:00-05'",
    "tz < TIMESTAMPTZ '2024-01-02 00:00:00+01'",
    "day > TIMESTAMP '2024-02-05 12:00:00'",
    "day = TIMESTAMP '2024-02-05 00:00:00'",
    "day < DATE '2024-01-03' OR day = DATE '2024-03-28'",
    "day IN (DATE '2024-01-28', DATE '2024-02-28')",
    "day BETWEEN DATE '2024-01-31' AND DATE '2024-02-02'",
    "flag",
    "NOT flag",
    "flag IS TRUE",
    "flag IS NOT TRUE",
    "flag = false",
    "flag IS UNKNOWN OR id = 1",
    "flag <> true",
    "id IS DISTINCT FROM NULL",
    "g IS NOT DISTINCT FROM NULL",
    "g IS NOT DISTINCT FROM 2",
    "s.id = 95",
    "s.word ILIKE 'BANANA'",
    "s.id IS NULL AND g IS NOT NULL",
    "id = g",
    "id + 1 = 12",
    "id % 10 = 3",
    "-id < -28",
    "CASE WHEN id < 10 THEN name ILIKE 'a%' ELSE name = 'BANANA' END",
    "coalesce(g, 9) = 9",
    "nullif(g, 3) IS NULL",
    "id > (SELECT avg(id) FROM qa.k)",
    "id IN (SELECT g FROM qa.k WHERE name ILIKE 'a%')",
    "NOT EXISTS (SELECT 1 FROM qa.k b WHERE b.g = k.id)",
]


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("dropped", [False, True], ids=["kept", "dropped"])
def test_a_filter_keeps_duckdbs_rows(kinds: Kinds, where: str, dropped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if dropped:  # rows are dropped before the engine sees them only where there are many: here, everywhere
        monkeypatch.setattr(relations, "FILTERED_ROWS", 0)
        monkeypatch.setattr(dictionary_columns, "MAX_FILTERED_SHARE", 1.0)
        monkeypatch.setattr(dictionary_columns, "MAX_VALUE_BYTES", 1 << 20)
    mark = "k2" if dropped else "k1"  # a name of its own, so that the other's answer is not remembered
    kinds.same(f"SELECT id AS {mark} FROM qa.k WHERE {where}")
    kinds.same(f"SELECT id AS {mark}, name, x FROM qa.k WHERE ({where}) AND id >= 5")
    kinds.same(f"SELECT id AS {mark} FROM qa.k WHERE ({where}) OR id = 29")


def test_regular_expressions_keep_duckdbs_rows(kinds: Kinds) -> None:
    for ours, theirs in {
        "name ~ '^a'": "regexp_matches(name, '^a')",
        "name ~ '^A'": "regexp_matches(name, '^A')",
        "name ~* '^a'": "regexp_matches(name, '^a', 'i')",
        "name ~* '^APPLE$'": "regexp_matches(name, '^APPLE$', 'i')",
        "name ~* 'banana'": "regexp_matches(name, 'banana', 'i')",
        "name !~ '^a'": "NOT regexp_matches(name, '^a')",
        "name !~* '^a'": "NOT regexp_matches(name, '^a', 'i')",
        "name ~ '^(apple|Banana)$'": "regexp_matches(name, '^(apple|Banana)$')",
        "name ~ '.'": "regexp_matches(name, '.')",
        "name ~* '^b' OR id = 0": "regexp_matches(name, '^b', 'i') OR id = 0",
    }.items():
        kinds.same(f"SELECT id FROM qa.k WHERE {ours}", f"SELECT id FROM qa.k WHERE {theirs}")


STATEMENTS = [
    "WITH RECURSIVE r AS (SELECT id, g FROM qa.k WHERE id = 0 UNION ALL SELECT k.id, k.g FROM qa.k JOIN r "
    "ON k.id = r.id + 1 WHERE k.id < 5) SELECT * FROM r",
    "WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT k.id FROM r, qa.k WHERE k.id = n + 1) SELECT n FROM r",
    "WITH RECURSIVE r AS (SELECT name, id FROM qa.k WHERE name LIKE 'a%' UNION ALL SELECT k.name, k.id FROM r, qa.k "
    "WHERE k.id = r.id + 10) SELECT * FROM r",
    "WITH RECURSIVE r AS (SELECT min(id) AS id FROM qa.k UNION SELECT k.id FROM qa.k, r WHERE k.id = r.id + 2) "
    "SELECT count(*) AS n, max(id) AS m FROM r",
    "WITH RECURSIVE r AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM r WHERE n < (SELECT count(*) FROM qa.k)) "
    "SELECT count(*) AS n, (SELECT max(name) FROM qa.k) AS m FROM r",
    "SELECT (SELECT id FROM qa.k LIMIT 1) IS NULL AS missing",
    "SELECT (SELECT name FROM qa.k WHERE id = 4 LIMIT 1) AS v",
    "SELECT (SELECT name FROM qa.k ORDER BY id LIMIT 1) AS v",
    "SELECT (SELECT name FROM qa.k ORDER BY id LIMIT 1 OFFSET 12) AS v",
    "SELECT id, (SELECT name FROM (SELECT name FROM qa.k WHERE id = 3 LIMIT 1) d) AS v FROM qa.k WHERE id = 11",
    "SELECT id FROM qa.k WHERE name = (SELECT name FROM qa.k WHERE id = 11 LIMIT 1)",
    "SELECT (SELECT max(id) FROM qa.k) AS a, (SELECT min(name) FROM qa.k WHERE id > 12) AS b FROM qa.k WHERE id < 2",
    "SELECT id, (SELECT max(b.id) FROM qa.k b WHERE b.g = k.g) AS m FROM qa.k",
    # LIMIT lets the first files do only where each row of the table is one of the result.
    "SELECT count(*)::int AS n FROM qa.k LIMIT 1",
    "SELECT unnest(l)::int AS e FROM qa.k LIMIT 25",
    "SELECT max(id) + 1 AS n FROM qa.k LIMIT 2",
    "SELECT DISTINCT flag FROM qa.k LIMIT 3",
    "SELECT count(*) AS n FROM (SELECT id FROM qa.k LIMIT 29) d",
    "SELECT count(*) AS n FROM (SELECT id FROM qa.k LIMIT 100) d WHERE id > 25",
    "SELECT count(*) AS n FROM (SELECT id FROM qa.k WHERE id > 5 LIMIT 100) d WHERE id > 25",
    "SELECT a.id FROM qa.k a JOIN qa.k b ON a.id = b.id WHERE a.name ILIKE 'a%' AND b.id < 20",
    "SELECT a.id, b.name FROM qa.k a LEFT JOIN qa.k b ON a.id = b.id AND b.name ILIKE 'b%' WHERE a.id > 8",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_every_column_that_is_used_is_read(kinds: Kinds, text: str) -> None:
    kinds.same(text)


def test_a_name_with_a_comma_is_one_column(kinds: Kinds) -> None:
    kinds.lake.tables.create("qa.commas", {"a": "long", "b": "long", "a, b": "long", "c]": "long"})
    kinds.lake.tables.insert("qa.commas", [{"a": 1, "b": 2, "a, b": 3, "c]": 4}])
    for column, value in {'"a, b"': 3, "a": 1, "b": 2, '"c]"': 4}.items():
        for text in (f"SELECT (SELECT {column} FROM qa.commas LIMIT 1) AS v", f"SELECT {column} AS v FROM qa.commas"):
            assert kinds.lake.queries.run(text, fresh=True).table().to_pylist() == [{"v": value}], text


ZEROS_AND_NANS = [[0.0, 1.0], [-0.0, -0.0], [math.nan, NEGATIVE_NAN], [-5.0, -0.0], [NEGATIVE_NAN, None]]


@pytest.fixture(scope="module")
def signs(kinds: Kinds) -> Kinds:
    """Files of zeros and NaNs with either sign, which a sort by bits would tell apart."""
    kinds.lake.tables.create("qa.signs", {"id": "long", "x": "double", "f": "float"})
    kinds.duck.execute("CREATE TABLE qa.signs (id BIGINT, x DOUBLE, f REAL)")
    for number, pair in enumerate(ZEROS_AND_NANS):
        ids, values = pa.array([2 * number, 2 * number + 1]), pa.array(pair, pa.float64())
        rows = pa.table({"id": ids, "x": values, "f": values.cast(pa.float32())})
        kinds.lake.tables.insert("qa.signs", rows)
        kinds.duck.register("rows", rows)
        kinds.duck.execute("INSERT INTO qa.signs SELECT * FROM rows")
    sequence(kinds.lake, "qa.signs")
    return kinds


SIGNS = """x = 0; x < 0; x > 0; x >= 0; x <= 0; x <> 0; x IN (0, 7); x NOT IN (0, 7); x BETWEEN 0 AND 0; NOT x > 0;
x > 1; x < -1; f = 0; f > 1; f < -1; x = 'NaN'::double; x <> 'NaN'::double; x < 'NaN'::double; x IS DISTINCT FROM 0"""


@pytest.mark.parametrize("where", SIGNS.replace("\n", " ").split("; "))
def test_zeros_are_equal_and_nans_above_all_whatever_their_sign(signs: Kinds, where: str) -> None:
    signs.same(f"SELECT id FROM qa.signs WHERE {where}")
    signs.same(f"SELECT count(*) AS n, min(id) AS low FROM qa.signs WHERE {where}")


def test_zeros_and_nans_group_join_and_sort_as_one(signs: Kinds) -> None:
    signs.same("SELECT count(DISTINCT x) AS n, min(x) AS low, max(x) AS high FROM qa.signs")
    signs.same("SELECT x + 0.0 AS x, count(*) AS n FROM qa.signs GROUP BY 1")
    signs.same("SELECT a.id, b.id AS other FROM qa.signs a JOIN qa.signs b ON a.x = b.x")
    signs.same("SELECT id, rank() OVER (ORDER BY x NULLS FIRST) AS r FROM qa.signs")
    for value in (0.0, -0.0, NEGATIVE_NAN, math.nan, 1.0):
        signs.same("SELECT id FROM qa.signs WHERE x = $p", parameters={"p": value})
