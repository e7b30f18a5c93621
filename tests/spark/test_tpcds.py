"""TPC-DS's queries give the same rows on Spark as in DuckDB, and the same types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from catalog.core.settings import Settings
from catalog.lake import Lake
from infra.local.endpoint import Endpoint
from spark_jobs.query import collect
from tests.spark.lakes import open_with
from tests.worlds.query import assert_same, rows_of
from tests.worlds.tpcds import asked, load

pytestmark = pytest.mark.xdist_group("spark")


@dataclass(frozen=True)
class Suite:
    lake: Lake
    queries: dict[int, str]


@pytest.fixture(scope="module")
def suite(endpoint: Endpoint, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with pytest.MonkeyPatch.context() as patch:
        lake = open_with(endpoint, settings, patch)
        queries, _ = load(lake, tmp_path_factory.mktemp("tpcds"))
        yield Suite(lake, {number: _qualified(text) for number, text in queries.items()})


def _qualified(text: str) -> str:
    """TPC-H, in the same lake, has a table `customer`, too."""
    return re.sub(r"(\bfrom\s+|\bjoin\s+|,\s*)customer\b(?!\.)", r"\1tpcds.customer", text, flags=re.IGNORECASE)


@pytest.mark.parametrize("number", asked(2))
def test_both_engines_answer_alike(suite: Suite, spark: SparkSession, number: int) -> None:
    record = suite.lake.queries.translated(suite.queries[number], fresh=True)
    ours = suite.lake.queries.run(suite.queries[number], fresh=True).table()
    theirs = collect(spark, record)
    assert (theirs.schema.names, theirs.schema.types) == (ours.schema.names, ours.schema.types)
    assert_same(rows_of(theirs), rows_of(ours), ordered=False, note=f"query {number} as {record.sql}")
