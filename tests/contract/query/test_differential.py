"""Random statements give DuckDB's answers on the same rows, over tables with a history (query_tables.py).

STRANDLINE_STATEMENTS sets how many statements each seed asks.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import duckdb
import pytest

from catalog.core.point_in_time import SnapshotId
from catalog.lake import Lake
from catalog.query.scan import dictionary_columns, relations
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import assert_same, rows_of
from tests.worlds.query_grammar import Grammar
from tests.worlds.query_tables import make_tables

STATEMENTS, SEEDS = int(os.environ.get("STRANDLINE_STATEMENTS", "100")), 20
VERSIONS, VERSIONED_SEEDS, VERIFIED_SEEDS = 3, 4, 2
"""How many of the newest snapshots of `qa.t` are read: those with its last schema."""


class VersionedGrammar(Grammar):
    """Names versions of `qa.t` as «0», «1», …; a set operation is over two of them."""

    def _set(self) -> tuple[str, bool]:
        word = self.random.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        sides = [f"SELECT id, grp, num FROM {self._from('t')}{self._where('t')}" for _ in range(2)]
        return f" {word} ".join(sides), False

    def _from(self, name: str) -> str:
        return f"«{self.random.randrange(VERSIONS)}»" if name == "t" else super()._from(name)


@pytest.fixture(scope="module")
def peers(server: ApiServer) -> Iterator[tuple[Lake, duckdb.DuckDBPyConnection]]:
    duck = duckdb.connect()
    duck.execute("CREATE SCHEMA qa")
    with lake_on(server) as lake:
        rows, other = make_tables(lake)
        duck.register("rows_t", rows)
        duck.register("rows_u", other)
        duck.execute("CREATE TABLE qa.t AS SELECT * FROM rows_t; CREATE TABLE qa.u AS SELECT * FROM rows_u")
        sequence(lake, "qa.t", "qa.u")
        yield lake, duck


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_statements_give_duckdbs_answers(
    peers: tuple[Lake, duckdb.DuckDBPyConnection], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, duck = peers
    if seed % 2:  # rows are dropped before the engine sees them only where there are many: here, everywhere
        monkeypatch.setattr(relations, "FILTERED_ROWS", 0)
        monkeypatch.setattr(dictionary_columns, "MAX_FILTERED_SHARE", 1.0)
    if seed % 4 > 1:  # and words are read as codes only where they are few
        monkeypatch.setattr(dictionary_columns, "MAX_VALUE_BYTES", 1 << 20)
    grammar = Grammar(random.Random(seed))
    for _ in range(STATEMENTS):
        text, ordered = grammar.statement()
        theirs = rows_of(duck.sql(text).to_arrow_table())
        assert_same(rows_of(lake.queries.run(text)), theirs, ordered=ordered, note=text)


@pytest.mark.parametrize("seed", range(VERIFIED_SEEDS))
def test_random_verified_statements_give_duckdbs_answers(
    peers: tuple[Lake, duckdb.DuckDBPyConnection], seed: int
) -> None:
    """Verified rows reach DuckDB as Arrow, with the columns only that the statement was found to use."""
    lake, duck = peers
    grammar = Grammar(random.Random(f"verified {seed}"))
    for _ in range(STATEMENTS // 4):
        text, ordered = grammar.statement()
        theirs = rows_of(duck.sql(text).to_arrow_table())
        answer = lake.queries.run(text, verify=True)
        assert_same(rows_of(answer), theirs, ordered=ordered, note=text)


@pytest.fixture(scope="module")
def snapshots(peers: tuple[Lake, duckdb.DuckDBPyConnection]) -> list[int]:
    """The newest snapshots, each a table `qa.t<number>` of DuckDB, as the table API reads it."""
    lake, duck = peers
    ids = [snapshot.snapshot_id for snapshot in lake.tables.history("qa.t")][:VERSIONS]
    for number, snapshot_id in enumerate(ids):
        duck.register("rows_v", lake.tables.scan("qa.t", as_of=SnapshotId(snapshot_id)))
        duck.execute(f"CREATE TABLE qa.t{number} AS SELECT * FROM rows_v")
    counts = [duck.sql(f"SELECT count(*) FROM qa.t{number}").fetchall() for number in range(VERSIONS)]
    assert len(set(map(str, counts))) == VERSIONS, "each version has other rows"
    return ids


@pytest.mark.parametrize("seed", range(VERSIONED_SEEDS))
def test_random_statements_over_versions_give_duckdbs_answers(
    peers: tuple[Lake, duckdb.DuckDBPyConnection], snapshots: list[int], seed: int
) -> None:
    lake, duck = peers
    grammar = VersionedGrammar(random.Random(f"versions {seed}"))
    for _ in range(STATEMENTS // 2):
        text, ordered = grammar.statement()
        ours = theirs = text
        for number, snapshot_id in enumerate(snapshots):
            ours = ours.replace(f"«{number}»", f"qa.t VERSION AS OF 'snapshot:{snapshot_id}'")
            theirs = theirs.replace(f"«{number}»", f"qa.t{number}")
        expected = rows_of(duck.sql(theirs).to_arrow_table())
        assert_same(rows_of(lake.queries.run(ours)), expected, ordered=ordered, note=ours)
