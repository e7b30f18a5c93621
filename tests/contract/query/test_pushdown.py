"""A condition outside a subquery or a common table expression leaves out files, and never a row of the result."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from catalog.lake import Lake
from catalog.query.scan import dictionary_columns, relations
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import assert_same, rows_of

FILES, ROWS = 6, 10
Peers = tuple[Lake, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def peers(server: ApiServer) -> Iterator[Peers]:
    """`p.t`: files by `k`, of ten rows each; `p.u` beside it."""
    duck = duckdb.connect()
    duck.execute("CREATE SCHEMA p")
    with lake_on(server) as lake:
        for name in ("p.t", "p.u"):
            lake.tables.create(name, {"k": "long", "g": "long", "v": "double", "s": "string", "n": "long"})
            files = []
            for file in range(FILES):
                numbers = range(file * ROWS, file * ROWS + ROWS)
                rows = {"k": list(numbers), "g": [n % 4 for n in numbers], "v": [n * 0.5 for n in numbers]}
                rows |= {"s": [f"s{n % 7}" for n in numbers], "n": [None if n % 5 == 0 else n // 2 for n in numbers]}
                files.append(pa.table(rows))
                lake.tables.insert(name, files[-1])
            duck.register("rows", pa.concat_tables(files))
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
        sequence(lake, "p.t", "p.u")
        yield lake, duck


# The statement, and how many of the six files it reads.
PRUNED = {
    "WITH c AS (SELECT * FROM p.t) SELECT * FROM c WHERE k < 10": 1,
    "WITH c AS MATERIALIZED (SELECT k, v FROM p.t) SELECT * FROM c WHERE k BETWEEN 10 AND 25": 2,
    "WITH c(a, b) AS (SELECT k, v FROM p.t) SELECT b FROM c x WHERE x.a >= 50": 1,
    "WITH c(a, b) AS (SELECT k, v FROM p.t) SELECT y FROM c AS x(z, y) WHERE z >= 50": 1,
    "WITH a AS (SELECT k AS i, v FROM p.t), b AS (SELECT i AS j FROM a WHERE v > 1) SELECT * FROM b WHERE j < 10": 1,
    "SELECT * FROM (SELECT k + 0 AS x, k AS y FROM p.t WHERE v >= 0) WHERE y < 10 AND x > 3": 1,
    "SELECT * FROM (SELECT DISTINCT k, g FROM p.t ORDER BY k) q WHERE q.k = 7": 1,
    "SELECT * FROM (SELECT k, count(*) AS c FROM p.t GROUP BY k) WHERE k > 54": 1,
    "SELECT * FROM (SELECT k AS x, sum(v) FROM p.t GROUP BY ALL HAVING count(*) > 0) WHERE x > 54": 1,
    "SELECT * FROM (SELECT k, rank() OVER (PARTITION BY g, k ORDER BY v) AS r FROM p.t) WHERE k > 54 AND r = 1": 1,
    "SELECT * FROM (SELECT a.k, b.v FROM p.t a JOIN (SELECT 1 AS one, 0.5 AS v) b ON a.v >= b.v) WHERE k < 10": 1,
    "SELECT a.k FROM (SELECT k, s FROM p.t) a JOIN (VALUES (3), (4)) b(m) ON a.k = b.m WHERE a.k < 9": 1,
    "SELECT a.k FROM (SELECT k FROM p.t) a LEFT JOIN (SELECT 3 AS x) b ON a.k = b.x WHERE a.k < 9": 1,
    "SELECT sum(c) FROM (SELECT count(*) AS c, k FROM p.t GROUP BY 2) WHERE k IN (1, 55)": 2,
}
WHOLE = (
    "SELECT * FROM (SELECT * FROM p.t ORDER BY v DESC LIMIT 15) WHERE k < 50",
    "SELECT * FROM (SELECT k, g FROM p.t ORDER BY k OFFSET 12) WHERE k < 20",
    "SELECT * FROM (SELECT k, row_number() OVER (ORDER BY v DESC) AS r FROM p.t) WHERE k < 10",
    "SELECT * FROM (SELECT k, sum(v) OVER (PARTITION BY g) AS r FROM p.t) WHERE k < 10",
    "SELECT * FROM (SELECT k, g FROM p.t QUALIFY rank() OVER (PARTITION BY g ORDER BY k DESC) < 5) WHERE k < 50",
    "SELECT * FROM (SELECT DISTINCT ON (g) g, k FROM p.t ORDER BY g, k DESC) WHERE k < 58",
    "SELECT * FROM (SELECT g, max(k) AS k FROM p.t GROUP BY g) WHERE k < 58",
    "SELECT * FROM (SELECT k, count(*) AS c FROM p.t GROUP BY ROLLUP (k)) WHERE k < 10 OR k IS NULL",
    "WITH c AS (SELECT k, v FROM p.t) SELECT k FROM c WHERE k < 10 UNION ALL SELECT max(k) FROM c",
    "WITH c AS (SELECT k, v FROM p.t) SELECT * FROM c WHERE k < 10 AND v < (SELECT avg(v) FROM c)",
    "SELECT x.m, y.k FROM (VALUES (1), (70)) x(m) LEFT JOIN (SELECT k FROM p.t) y ON x.m = y.k WHERE y.k IS NULL",
    "SELECT x.m FROM (SELECT k AS m FROM p.t) x FULL JOIN (VALUES (1)) y(z) ON x.m = y.z WHERE y.z = 1 OR x.m < 3",
    "SELECT * FROM (SELECT v AS k, k AS v FROM p.t) WHERE k < 5",
    "SELECT * FROM (SELECT *, -k AS k FROM p.t) q WHERE v < 100 AND k < 100",
    "SELECT * FROM (SELECT k * -1 AS k FROM p.t) WHERE k > -10",
    "SELECT * FROM (SELECT * REPLACE (-k AS k) FROM p.t) WHERE k < -49",
    "SELECT * FROM (SELECT v AS k, t.k FROM p.t) q WHERE q.k < 5",
    "SELECT * FROM (SELECT * EXCLUDE (v) RENAME (n AS k2) FROM p.t) WHERE k2 < 3 OR k2 IS NULL",
    "WITH RECURSIVE c AS (SELECT k FROM p.t WHERE k < 3 UNION ALL SELECT c.k + 20 FROM c WHERE c.k < 40)"
    " SELECT * FROM c WHERE k > 25",
    "SELECT * FROM (SELECT k FROM p.t UNION ALL SELECT -k FROM p.t) WHERE k < 5",
    "SELECT (SELECT max(x.k) FROM (SELECT k FROM p.t) x WHERE x.k < y.k) FROM (SELECT 30 AS k) y WHERE k > 10",
)


@pytest.fixture(params=[False, True], ids=["files", "rows"])
def every_row(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rows are dropped before the engine sees them, which happens to large tables only."""
    if request.param:
        monkeypatch.setattr(relations, "FILTERED_ROWS", 0)
        monkeypatch.setattr(dictionary_columns, "MAX_FILTERED_SHARE", 1.0)


def check(peers: Peers, text: str, *, verify: bool = False) -> None:
    lake, duck = peers
    theirs = rows_of(duck.sql(text).to_arrow_table())
    assert_same(rows_of(lake.queries.run(text, verify=verify)), theirs, ordered=False, note=text)


@pytest.mark.usefixtures("every_row")
@pytest.mark.parametrize("text", PRUNED)
def test_files_are_left_out(peers: Peers, text: str) -> None:
    assert [table.files for table in peers[0].queries.explain(text).tables] == [PRUNED[text]]
    check(peers, text)
    check(peers, text, verify=True)


@pytest.mark.usefixtures("every_row")
@pytest.mark.parametrize("text", WHOLE)
def test_no_row_is_left_out_that_counts(peers: Peers, text: str) -> None:
    check(peers, text)
    check(peers, text, verify=True)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("every_row")
def test_random_nested_statements_give_duckdbs_answers(peers: Peers, seed: int) -> None:
    chance = random.Random(f"pushdown {seed}")
    for _ in range(40):
        check(peers, Nested(chance).statement())


class Nested:
    """SELECTs within SELECTs, of columns k, g, v, n at each level, though not always the same ones."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.tables, self.ctes = chance, 0, list[str]()

    def statement(self) -> str:
        body = f"SELECT * FROM {self._source(3)} q{self._where('q')}"
        return f"WITH {', '.join(self.ctes)} {body}" if self.ctes else body

    def _source(self, depth: int) -> str:
        if depth == 0:
            return self.chance.choice(("p.t", "p.u"))
        text = self._select(depth - 1)
        if self.chance.random() < 0.5:
            return f"({text})"
        self.tables += 1
        name, kind = f"c{self.tables}", self.chance.choice(("", "", "MATERIALIZED ", "NOT MATERIALIZED "))
        self.ctes.append(f"{name} AS {kind}({text})")
        return name if self.chance.random() < 0.8 else f"(SELECT * FROM {name} UNION SELECT * FROM {name})"

    def _select(self, depth: int) -> str:
        inner, where = f"{self._source(depth)} i", self._where("i")
        kind = self.chance.choice(
            ("plain", "swap", "star", "group", "window", "limit", "distinct", "join", "set", "on")
        )
        if kind == "plain":
            return f"SELECT k, i.g, v + 1 AS v, n FROM {inner}{where}"
        if kind == "swap":
            return f"SELECT n AS k, k AS n, g, v FROM {inner}{where}"
        if kind == "star":
            return f"SELECT {self.chance.choice(('*', 'i.*', 'k, g, v, n'))} FROM {inner}{where}"
        if kind == "group":
            last = self.chance.choice(("min(n)", "n"))
            return f"SELECT k, max(g) AS g, sum(v) AS v, {last} AS n FROM {inner}{where} GROUP BY ALL"
        if kind == "window":
            keys = self.chance.choice(("g", "k", "k, g", "g, n"))
            return f"SELECT k, g, v, count(*) OVER (PARTITION BY {keys}) AS n FROM {inner}{where}"
        if kind == "limit":
            return f"SELECT k, g, v, n FROM {inner}{where} ORDER BY ALL LIMIT {self.chance.randint(1, 30)}"
        if kind == "distinct":
            return f"SELECT DISTINCT k, g, v, n FROM {inner}{where}"
        if kind == "on":
            return f"SELECT DISTINCT ON (g) k, g, v, n FROM {inner}{where} ORDER BY g, k DESC, v, n"
        if kind == "set":
            return f"SELECT k, g, v, n FROM {inner}{where} UNION ALL SELECT n, g, v, k FROM p.u"
        join = self.chance.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
        other = "i" if join in ("SEMI JOIN", "ANTI JOIN") else "o"
        return f"SELECT i.k, {other}.g, {other}.v, i.n FROM {inner} {join} p.u o ON i.k = o.n{where}"

    def _where(self, alias: str) -> str:
        parts = []
        for _ in range(self.chance.randint(0, 2)):
            column = f"{alias}.{self.chance.choice(('k', 'k', 'g', 'n'))}"
            value = self.chance.randint(-1, 62)
            tests = (
                f"< {value}",
                f">= {value}",
                f"= {value % 4}",
                "IS NULL",
                f"IN ({value}, 3)",
                f"BETWEEN 2 AND {value}",
            )
            parts.append(f"{column} {self.chance.choice(tests)}")
            if self.chance.random() < 0.2:
                parts[-1] = f"({parts[-1]} OR {column} > 50)"
        return f" WHERE {' AND '.join(parts)}" if parts else ""
