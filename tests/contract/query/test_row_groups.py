"""Files of many row groups with scattered deletes, read in ranges and by two threads, give DuckDB's answers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from catalog.lake import Lake
from catalog.query.run import execution
from catalog.query.scan import parquet_objects
from catalog.tables import file_writer
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import assert_same, rows_of

ROWS, FILES, GROUP_ROWS = 12_000, 4, 2048
STATEMENTS, SEEDS = 25, 4


@pytest.fixture(scope="module")
def peers(server: ApiServer) -> Iterator[tuple[Lake, duckdb.DuckDBPyConnection]]:
    """`qa.big`: a column renamed and promoted after half of the files, and rows deleted all over."""
    rng = np.random.default_rng(5)
    parts = []
    with lake_on(server) as lake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_writer, "ROW_GROUP_ROWS", GROUP_ROWS)
        lake.tables.create("qa.big", {"id": "long", "k": "int", "x": "double", "w": "string"}, mode="mor")
        for number in range(FILES):
            if number == FILES // 2:
                lake.tables.alter("qa.big", rename={"k": "key"}, promote={"k": "long"}, add={"late": "int"})
            ids = np.arange(number * ROWS, (number + 1) * ROWS)
            columns = {
                "id": pa.array(ids),
                "key": pa.array(rng.integers(0, 500, ROWS), mask=rng.random(ROWS) < 0.1),
                "x": pa.array(np.where(rng.random(ROWS) < 0.02, np.nan, rng.normal(size=ROWS))),
                "w": pa.array([f"w{value}" for value in rng.integers(0, 50, ROWS)]),
            }
            if number < FILES // 2:
                part = pa.table(columns)
                old = part.set_column(1, "k", part.column("key").cast(pa.int32()))
                lake.tables.insert("qa.big", old)
                parts.append(part.append_column("late", pa.nulls(ROWS, pa.int32())))
            else:
                part = pa.table(columns).append_column("late", pa.array(ids % 7).cast(pa.int32()))
                lake.tables.insert("qa.big", part)
                parts.append(part)
        duck = duckdb.connect()
        duck.register("rows_big", pa.concat_tables(parts))
        duck.execute("CREATE SCHEMA qa; CREATE TABLE qa.big AS SELECT * FROM rows_big")
        for condition in ("key = 17", "id >= 13000 AND id < 15500", "id = 47999 OR id = 0", "w = 'w9' AND key < 250"):
            lake.tables.delete("qa.big", condition)
            duck.execute(f"DELETE FROM qa.big WHERE {condition}")
        sequence(lake, "qa.big")
        yield lake, duck


def statement(rng: random.Random) -> tuple[str, bool]:
    low = rng.randrange(-500, FILES * ROWS)
    condition = rng.choice(
        [
            f"id BETWEEN {low} AND {low + rng.choice([0, 3, 2000, 20000])}",
            f"key = {rng.randrange(520)}",
            f"key < {rng.randrange(100)} AND x > {rng.choice(['0.5', '-1', '3.9'])}",
            f"w IN ('w{rng.randrange(60)}', 'w9') AND id % 3 = 0",
            "late IS NULL AND key IS NULL",
            f"late = {rng.randrange(9)}",
            f"x > {rng.choice(['3.5', '100'])} OR id < 10",
            "true",
        ]
    )
    limit = rng.choice([1, 5, 100, 3000])
    return rng.choice(
        [
            (f"SELECT count(*), sum(id), sum(key), count(late), min(id), max(id) FROM qa.big WHERE {condition}", False),
            (f"SELECT * FROM qa.big WHERE {condition} ORDER BY id LIMIT {limit} OFFSET {rng.choice([0, 7])}", True),
            (f"SELECT * FROM qa.big WHERE {condition} ORDER BY key DESC NULLS LAST, id LIMIT {limit}", True),
            (f"SELECT id, x, row_number() OVER (ORDER BY id DESC) FROM qa.big WHERE {condition}", False),
            (f"SELECT w, count(*), sum(id), max(late) FROM qa.big WHERE {condition} GROUP BY w", False),
            (f"SELECT a.id, b.w FROM qa.big a JOIN qa.big b ON a.id = b.id + 1 WHERE a.{condition}", False)
            if condition.startswith("id")
            else (f"SELECT DISTINCT w, late FROM qa.big WHERE {condition}", False),
            (f"SELECT id FROM qa.big WHERE {condition} AND id IN (SELECT max(id) FROM qa.big GROUP BY key)", False),
            (f"WITH c AS (SELECT * FROM qa.big) SELECT id, w FROM c WHERE {condition} ORDER BY id LIMIT {limit}", True),
            (f"SELECT count(*) FROM (SELECT * FROM qa.big WHERE {condition} LIMIT {limit})", False),
        ]
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_answer_is_duckdbs(
    peers: tuple[Lake, duckdb.DuckDBPyConnection], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, duck = peers
    if seed % 2:
        monkeypatch.setattr(execution, "PARALLEL_BYTES", 0)
    if seed > 1:
        monkeypatch.setattr(parquet_objects, "MAX_WHOLE_BYTES", 0)
    rng = random.Random(seed)
    for _ in range(STATEMENTS):
        text, ordered = statement(rng)
        theirs = rows_of(duck.sql(text).to_arrow_table())
        assert_same(rows_of(lake.queries.run(text)), theirs, ordered=ordered, note=text)
