"""The router against both engines: 60 queries (quick: 20), each run here and on a warm Spark session, over the same
objects.

"Here" is the engine of a function with the given memory, whichever route the router chooses; a query that does not fit
there has only Spark. Spark's time is that of a running session, the fastest case; the share with the start-up time of
an EMR job is in the details.
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
from catalog import LakeError, load_settings
from catalog.query import EngineLimits, Queries
from catalog.query.plan.routing import SPARK_START_S, Route
from catalog.query.scan.parquet_objects import Traffic
from spark_jobs.query import collect
from spark_jobs.session import CATALOG, spark_session

MEMORY_AT_SCALE_1 = 480 << 20
WITHIN = 1.2


@suite("router")
def run(quick: bool) -> Iterator[Figure]:
    scale = 0.02 if quick else 0.1
    limits = EngineLimits(int(MEMORY_AT_SCALE_1 * scale), 120.0)
    with warehouse() as house:
        _fill(house, scale)
        queries = house.reader()
        with _spark(house) as spark:
            results = [_measure(queries, spark, text, limits) for text in _mixed()[:: 3 if quick else 1]]
    well_routed = [result for result in results if result["chosen_s"] <= WITHIN * result["better_s"]]
    routes = [str(result["route"]) for result in results]
    detail: dict[str, object] = {
        "scale": scale,
        "memory_mib": limits.memory_bytes >> 20,
        "queries": len(results),
        "routes": {name: routes.count(name) for name in sorted(set(routes))},
        "did_not_fit_here": sum(result["here_s"] is None for result in results),
        "missed": [result for result in results if result not in well_routed],
        "with_a_job's_start": round(_share(results, SPARK_START_S), 3),
    }
    share = len(well_routed) / len(results)
    yield Figure("router, within 1.2x of the better engine", share, f"of {len(results)} queries", 0.9, "higher", detail)


def _measure(queries: Queries, spark: SparkSession, text: str, limits: EngineLimits) -> dict[str, object]:
    route = queries.explain(text, limits=limits).route
    here_s = _here(queries, text, limits)
    translated = queries.translated(text)
    spark_s = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        collect(spark, translated)
        spark_s = min(spark_s, time.perf_counter() - began)
        if spark_s > 2:
            break
    chosen_s = spark_s if route is Route.SPARK else here_s
    better_s = min(spark_s, here_s if here_s is not None else spark_s)
    return {
        "sql": " ".join(text.split())[:90],
        "route": str(route),
        "here_s": here_s,
        "spark_s": spark_s,
        "chosen_s": float("inf") if chosen_s is None else chosen_s,
        "better_s": better_s,
    }


def _here(queries: Queries, text: str, limits: EngineLimits) -> float | None:
    """The minimum of three runs, whichever route the router chooses; None if the query does not fit."""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        bound = queries._bind(text, {"limits": limits})
        plan = queries._plan(bound)
        try:
            for _ in queries._execution.run(plan, limits, Traffic(), {}, bound.began + limits.seconds):
                pass
        except LakeError:
            return None
        best = min(best, time.perf_counter() - began)
    return best


def _share(results: list[dict[str, object]], start: float) -> float:
    """The share of well routed queries when starting Spark takes `start` seconds."""
    good = 0
    for result in results:
        here_s, spark_s = result["here_s"], float(str(result["spark_s"])) + start
        better_s = spark_s if here_s is None else min(float(str(here_s)), spark_s)
        chosen_s = spark_s if result["route"] == "spark" else float("inf") if here_s is None else float(str(here_s))
        good += chosen_s <= WITHIN * better_s
    return good / len(results)


def _mixed() -> list[str]:
    """The 22 queries of TPC-H, and 38 simpler ones: points, ranges, counts, groups, joins, whole tables."""
    statements = [_qualified(text) for text in QUERIES.values()]
    for step in range(8):
        low = 1000 * step
        statements += [
            f"select * from tpch.orders where o_orderkey = {low + 1}",
            f"select o_orderstatus, count(*), sum(o_totalprice) from tpch.orders where o_orderkey < {low} group by 1",
            f"select sum(l_quantity) from tpch.lineitem where l_orderkey between {low} and {low * 6}",
            "select c_name, sum(o_totalprice) from tpch.customer join tpch.orders on c_custkey = o_custkey "
            f"where c_custkey < {low} group by c_name order by 2 desc limit {10 + step}",
        ]
    statements += [
        "select count(*) from tpch.lineitem",
        "select min(o_orderdate), max(o_orderdate) from tpch.orders",
        "select * from tpch.lineitem order by l_extendedprice desc, l_orderkey, l_linenumber limit 10",
        "select l_orderkey, l_comment, l_shipdate, l_extendedprice from tpch.lineitem where l_comment like '%fox%'",
        "select o_comment, c_comment from tpch.orders, tpch.customer where o_custkey = c_custkey and c_acctbal > 9000",
        "select l_suppkey, l_partkey, count(*), sum(l_tax), avg(l_discount) from tpch.lineitem group by 1, 2 limit 50",
    ]
    assert len(statements) == 60
    return statements


def _fill(house: Warehouse, scale: float) -> None:
    tables = house.tables()
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as folder:
        generate(Path(folder), scale)
        for name in TABLES:
            rows = pq.read_table(Path(folder) / f"{name}.parquet")
            tables.create(f"tpch.{name}", rows.schema)
            tables.insert(f"tpch.{name}", rows)


class _spark:  # noqa: N801 - reads as a statement: with _spark(house) as spark
    """A local session that loads tables from the embedded Glue and reads objects from the same endpoint as ours."""

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
