"""TPC-DS in a lake, and the queries of it that are asked: a sample, or all with STRANDLINE_TPCDS=all (`make tpcds`)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.tpcds import generate
from catalog.lake import Lake

SCALE = float(os.environ.get("STRANDLINE_TPCDS_SCALE", "0.01"))
COUNT = 99
# Compared in every run, since each is of a kind of its own: rollup, sets, windows over aggregates, correlated
# subqueries, CASE within sums, FULL JOIN. Then a sample of the others.
ALWAYS = (5, 14, 36, 51, 66, 97)


def asked(sample: int) -> list[int]:
    """The numbers of the queries to ask: `sample` of them besides those that are always asked, the same in each run."""
    if os.environ.get("STRANDLINE_TPCDS") == "all":
        return list(range(1, COUNT + 1))
    others = [number for number in range(1, COUNT + 1) if number not in ALWAYS]
    return sorted([*ALWAYS, *random.Random("tpcds").sample(others, sample)])


def load(lake: Lake, folder: Path) -> tuple[dict[int, str], dict[str, pa.Table]]:
    """Makes the tables `tpcds.<name>`. Returns the queries by number, and the rows by table."""
    queries, rows = generate(folder, SCALE), {}
    for file in sorted(folder.glob("*.parquet")):
        rows[file.stem] = pq.read_table(file)
        lake.tables.create(f"tpcds.{file.stem}", rows[file.stem].schema)
        lake.tables.insert(f"tpcds.{file.stem}", rows[file.stem])
    return queries, rows
