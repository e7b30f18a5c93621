"""The router against both engines: 60 queries (quick: 20), each run here and on a warm Spark session, over the same
objects.

Here means what a function of the given memory could do, whether the router would let it or not; a query that does not
fit there has only Spark. Spark's time is that of a session that is up already: the kindest peer there is. What an EMR
job needs to start is in the details.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.harness import Figure, suite
from bench.query import _qualified
from bench.query_world import Warehouse, warehouse
from bench.tpch import QUERIES, TABLES, generate
from catalog.errors import LakeError
from catalog.query.engine import Limits
from catalog.query.footers import Traffic
from catalog.query.queries import Queries
from catalog.query.routing import SPARK_START_S, Route
from catalog.settings import load_settings
from spark_jobs.query import answered
from spark_jobs.session import CATALOG, spark_session

MEMORY_AT_SCALE_1 = 480 << 20
WITHIN = 1.2


@suite("router")
def run(quick: bool) -> Iterator[Figure]:
    scale = 0.02 if quick else 0.1
    limits = Limits(int(MEMORY_AT_SCALE_1 * scale), 120.0)
    with warehouse() as house:
        _fill(house, scale)
        queries = house.reader()
        with _spark(house) as spark:
            found = [_measured(queries, spark, text, limits) for text in _mixed()[:: 3 if quick else 1]]
    good = [one for one in found if one["chosen_s"] <= WITHIN * one["better_s"]]
    routes = [str(one["route"]) for one in found]
    detail: dict[str, object] = {
        "scale": scale,
        "memory_mib": limits.memory_bytes >> 20,
        "queries": len(found),
        "routes": {name: routes.count(name) for name in sorted(set(routes))},
        "did_not_fit_here": sum(one["here_s"] is None for one in found),
        "missed": [one for one in found if one not in good],
        "with_a_job's_start": round(_share(found, SPARK_START_S), 3),
    }
    share = len(good) / len(found)
    yield Figure("router, within 1.2x of the better engine", share, f"of {len(found)} queries", 0.9, "higher", detail)


def _measured(queries: Queries, spark: SparkSession, text: str, limits: Limits) -> dict[str, object]:
    route = queries.explain(text, limits=limits).route
    here = _here(queries, text, limits)
    asked = queries.translated(text)
    there = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        answered(spark, asked)
        there = min(there, time.perf_counter() - began)
        if there > 2:
            break
    chosen = there if route is Route.SPARK else here
    better = min(there, here if here is not None else there)
    return {
        "sql": " ".join(text.split())[:90],
        "route": str(route),
        "here_s": here,
        "spark_s": there,
        "chosen_s": float("inf") if chosen is None else chosen,
        "better_s": better,
    }


def _here(queries: Queries, text: str, limits: Limits) -> float | None:
    """The best of three, whatever the router thinks of it; None if it does not fit."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        asked = queries._read(text, {"limits": limits})
        plan = queries._planned(asked)
        try:
            for _ in queries._execution.run(plan, limits, Traffic(), {}, asked.began + limits.seconds):
                pass
        except LakeError:
            return None
        best = min(best, time.perf_counter() - began)
    return best


def _share(found: list[dict[str, object]], start: float) -> float:
    """The share when Spark has to be started first."""
    good = 0
    for one in found:
        here, there = one["here_s"], float(str(one["spark_s"])) + start
        better = there if here is None else min(float(str(here)), there)
        chosen = there if one["route"] == "spark" else float("inf") if here is None else float(str(here))
        good += chosen <= WITHIN * better
    return good / len(found)


def _mixed() -> list[str]:
    """TPC-H's 22, and 38 of what people ask between them: points, ranges, counts, groups, joins, all of a table."""
    made = [_qualified(text) for text in QUERIES.values()]
    for step in range(8):
        low = 1000 * step
        made += [
            f"select * from tpch.orders where o_orderkey = {low + 1}",
            f"select o_orderstatus, count(*), sum(o_totalprice) from tpch.orders where o_orderkey < {low} group by 1",
            f"select sum(l_quantity) from tpch.lineitem where l_orderkey between {low} and {low * 6}",
            "select c_name, sum(o_totalprice) from tpch.customer join tpch.orders on c_custkey = o_custkey "
            f"where c_custkey < {low} group by c_name order by 2 desc limit {10 + step}",
        ]
    made += [
        "select count(*) from tpch.lineitem",
        "select min(o_orderdate), max(o_orderdate) from tpch.orders",
        "select * from tpch.lineitem order by l_extendedprice desc, l_orderkey, l_linenumber limit 10",
        "select l_orderkey, l_comment, l_shipdate, l_extendedprice from tpch.lineitem where l_comment like '%fox%'",
        "select o_comment, c_comment from tpch.orders, tpch.customer where o_custkey = c_custkey and c_acctbal > 9000",
        "select l_suppkey, l_partkey, count(*), sum(l_tax), avg(l_discount) from tpch.lineitem group by 1, 2 limit 50",
    ]
    assert len(made) == 60
    return made


def _fill(house: Warehouse, scale: float) -> None:
    tables = house.tables()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder:
        generate(Path(folder), scale)
        for name in TABLES:
            rows = pq.read_table(Path(folder) / f"{name}.parquet")
            tables.create(f"tpch.{name}", rows.schema)
            tables.insert(f"tpch.{name}", rows)


class _spark:  # noqa: N801 - reads as a statement: with _spark(house) as spark
    """A local session that finds tables in the embedded Glue and reads their objects where we do."""

    def __init__(self, house: Warehouse) -> None:
        self._objects = house.url
        settings = load_settings(
            {
                **os.environ,
                "STRANDLINE_BUCKET": house.bucket,
                "AWS_ENDPOINT_URL": house.glue_url,
                "AWS_REGION": "us-east-1",
            }
        )
        self._session = spark_session("bench", settings, local=True, long_lived=True)

    def __enter__(self) -> SparkSession:
        os.environ.setdefault("AWS_REGION", "us-east-1")
        spark = self._session.__enter__()
        spark.conf.set(f"spark.sql.catalog.{CATALOG}.s3.endpoint", self._objects)
        spark.sql(f"select count(*), sum(l_tax) from {CATALOG}.tpch.lineitem").collect()  # warm
        return spark

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)  # type: ignore[arg-type]
