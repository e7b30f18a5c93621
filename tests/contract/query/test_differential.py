"""Random statements give DuckDB's answers on the same rows, over tables with a history (query_tables.py)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest

from catalog.lake import Lake
from catalog.query.scan import dictionary_columns, relations
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import assert_same, rows_of
from tests.worlds.query_grammar import Grammar
from tests.worlds.query_tables import make_tables

STATEMENTS, SEEDS = 100, 20


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
