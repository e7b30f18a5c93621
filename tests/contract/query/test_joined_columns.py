"""JOIN … USING and NATURAL JOIN give what DuckDB gives, or are refused: never a key of the side that has no row."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from catalog.lake import Lake
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on
from tests.worlds.query import assert_same, rows_of

LEFT = pa.table({"x": ["a", "b", "c"], "k": [1, 2, None], "j": [1, 2, 3]})
RIGHT = pa.table({"k": [1, 3, None], "y": ["A", "C", "N"], "j": [1, 4, 3]})


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        for name, rows in (("q.l", LEFT), ("q.r", RIGHT)):
            made.tables.create(name, rows.schema)
            made.tables.insert(name, rows)
        yield made


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("create schema q")
        for name, rows in (("q.l", LEFT), ("q.r", RIGHT)):
            connection.register("given", rows)
            connection.execute(f"create table {name} as select * from given")
        yield connection


SHAPES = (
    "select * from q.l {join} q.r using (k)",
    "select * from q.r a {join} q.l b using (k, j)",
    "select * from q.l natural {join} q.r",
    "select * from q.l b {join} q.r using (k)",
    "select k, x, y from q.r {join} q.l using (k)",
    "select k, count(*) as c from q.l natural {join} q.r group by k",
    "select a.k from (select k from q.r) a {join} (select k from q.l) b using (k)",
    # the right table's name comes first in the alphabet
    "select * from q.r {join} q.l using (k)",
    "select * from q.r b {join} q.l a using (j)",
    "select * from q.r natural {join} q.l",
    "with z as (select * from q.r), c as (select * from q.l) select * from z {join} c using (k)",
)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("join", ["join", "left join", "right join", "full join"])
def test_the_joined_column_is_what_it_is_elsewhere(
    lake: Lake, duck: duckdb.DuckDBPyConnection, shape: str, join: str
) -> None:
    sql = shape.format(join=join)
    actual, expected = lake.queries.run(sql, fresh=True).table(), duck.sql(sql).to_arrow_table()
    assert actual.column_names == expected.column_names
    assert_same(rows_of(actual), rows_of(expected), ordered=False, note=sql)
