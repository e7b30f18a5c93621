"""TPC-H's 22 queries over Iceberg tables give DuckDB's answers over the files they were made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from bench.tpch import QUERIES, TABLES, generate
from catalog.lake import Lake
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import assert_same, rows_of

# These name every column they sort by but for ties: their answers are compared as sets.
TIES = {2, 3, 5, 10, 18, 21}


@pytest.fixture(scope="module")
def peers(
    server: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lake, duckdb.DuckDBPyConnection]]:
    folder: Path = tmp_path_factory.mktemp("tpch")
    generate(folder, 0.01)
    duck = duckdb.connect()
    with lake_on(server) as lake:
        for name in TABLES:
            rows = pq.read_table(folder / f"{name}.parquet")
            lake.tables.create(f"tpch.{name}", rows.schema)
            lake.tables.insert(f"tpch.{name}", rows)
            duck.register(name, rows)
        sequence(lake, *(f"tpch.{name}" for name in TABLES))
        yield lake, duck


@pytest.mark.parametrize("number", sorted(QUERIES))
def test_the_answer_is_duckdbs(peers: tuple[Lake, duckdb.DuckDBPyConnection], number: int) -> None:
    lake, duck = peers
    ours = rows_of(lake.queries.run(QUERIES[number]))
    theirs = rows_of(duck.sql(QUERIES[number]).to_arrow_table())
    assert_same(ours, theirs, ordered=number not in TIES, note=f"query {number}")
