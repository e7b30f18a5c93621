"""TPC-DS's queries over Iceberg tables give DuckDB's answers on the same rows, with the same names and types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pytest

from catalog.lake import Lake
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import assert_same, rows_of
from tests.worlds.tpcds import asked, load


@dataclass(frozen=True)
class Peers:
    lake: Lake
    duck: duckdb.DuckDBPyConnection
    queries: dict[int, str]


@pytest.fixture(scope="module")
def peers(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    duck = duckdb.connect()
    with lake_on(server) as lake:
        queries, tables = load(lake, tmp_path_factory.mktemp("tpcds"))
        for name, rows in tables.items():
            duck.register(name, rows)
        sequence(lake, *(f"tpcds.{name}" for name in tables))
        yield Peers(lake, duck, queries)


@pytest.mark.parametrize("number", asked(6))
def test_the_answer_is_duckdbs(peers: Peers, number: int) -> None:
    ours = peers.lake.queries.run(peers.queries[number]).table()
    theirs = peers.duck.sql(peers.queries[number]).to_arrow_table()
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == theirs.schema.types
    # They sort by some of their columns only, so rows that tie may come in any order.
    assert_same(rows_of(ours), rows_of(theirs), ordered=False, note=f"query {number}")
