"""Chooses the cheapest route for a query: metadata, this process, or Spark. Computed from sizes that metadata states.

Prices come from catalog.core.prices; speeds are constants here. Estimates and measurements are logged with every query
and stored for large ones (catalog.query.plan.estimate_history), so that the speeds can be tuned from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from catalog.core.prices import dollars_for
from catalog.query.run.engine_limits import EngineLimits

SPARK_VCPUS, SPARK_GB = 12, 48  # a driver and two executors of 4 vCPUs and 16 GB each
SPARK_START_S = 60.0

READ_BYTES_S = 120e6
DECODE_BYTES_S = 400e6
SPARK_BYTES_S = 600e6
UNPACKED = 4.0
"""Bytes of a column in memory for each byte in its file."""
REQUEST_BYTES = 8 << 20


class Route(StrEnum):
    METADATA = "metadata"
    LAMBDA = "lambda"
    SPARK = "spark"


@dataclass(frozen=True)
class TableEstimate:
    """What the query reads of one table after pruning. `of_files` and `of_bytes`: the totals before it."""

    table: str
    snapshot_id: str | None
    files: int
    of_files: int
    rows: int
    bytes: int
    of_bytes: int
    columns: tuple[str, ...]
    deletes: bool
    row_bytes: int = 8
    """The least that a row of these columns takes in memory, however well its file compresses it."""


@dataclass(frozen=True)
class Explanation:
    """The route and the figures it was chosen by. Times and dollars are estimates; sizes are exact."""

    route: Route
    reason: str
    tables: tuple[TableEstimate, ...]
    bytes: int
    memory_bytes: int
    requests: int
    seconds: dict[str, float]
    dollars: dict[str, float]
    limits: dict[str, float]
    seen: tuple[str, ...] = ()
    """Lines for people: past queries of the same shape."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Reads back what `as_dict` wrote."""
        tables = tuple(TableEstimate(**{**table, "columns": tuple(table["columns"])}) for table in record["tables"])
        return cls(**{**record, "route": Route(record["route"]), "tables": tables, "seen": tuple(record["seen"])})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"route": str(self.route)}

    def lines(self) -> list[str]:
        """The explanation as text for people."""
        lines = [f"route    {self.route}: {self.reason}"]
        for table in self.tables:
            deletes = ", deletes pending" if table.deletes else ""
            lines.append(
                f"table    {table.table}: {table.files} of {table.of_files} files, {table.rows} rows, "
                f"{size(table.bytes)} of {size(table.of_bytes)} in {', '.join(table.columns) or 'no column'}{deletes}"
            )
        lines.append(
            f"reads    {size(self.bytes)} in about {self.requests} requests, {size(self.memory_bytes)} in memory"
        )
        for name, seconds in self.seconds.items():
            lines.append(f"{name:<8} about {seconds:.2f} s, ${self.dollars[name]:.6f}")
        return [*lines, *self.seen]


def choose(
    tables: Sequence[TableEstimate], limits: EngineLimits, *, answered: bool, limit_bytes: int | None = None
) -> Explanation:
    """The route for a query over these tables. `answered`: metadata or the cache already gives the result."""
    read = 0 if answered else sum(table.bytes for table in tables)
    tables_memory = 0 if answered else sum(_memory_bytes(table) for table in tables)
    # A join holds all but its largest side a second time, as hash tables.
    join_memory = (
        tables_memory - max((_memory_bytes(table) for table in tables), default=0)
        if len(tables) > 1 and not answered
        else 0
    )
    memory = int(tables_memory + join_memory)
    requests = 0 if answered else sum(table.files + table.bytes // REQUEST_BYTES for table in tables)
    in_process = 0.02 + read / READ_BYTES_S + memory / DECODE_BYTES_S
    spark = SPARK_START_S + read / SPARK_BYTES_S
    gigabytes = limits.memory_bytes / 0.6 / (1 << 30)
    seconds = {"lambda": in_process, "spark": spark}
    lambda_second = gigabytes * dollars_for("lambda.gb_second")
    spark_hour = SPARK_VCPUS * dollars_for("emr.vcpu_hour") + SPARK_GB * dollars_for("emr.gb_hour")
    gets = requests * dollars_for("s3.read")
    dollars = {"lambda": in_process * lambda_second + gets, "spark": max(spark, 60.0) / 3600 * spark_hour + gets}
    route, reason = _route(answered, read, memory, in_process, limits, limit_bytes)
    if answered:
        seconds = {"metadata": 0.01}
        dollars = {"metadata": 0.01 * lambda_second}
    bounds = {"memory_bytes": float(limits.memory_bytes), "seconds": limits.seconds}
    if limit_bytes is not None:
        bounds["bytes"] = float(limit_bytes)
    return Explanation(route, reason, tuple(tables), read, memory, requests, seconds, dollars, bounds)


def only_in_process(explanation: Explanation, reason: str) -> Explanation:
    """The explanation of a query that only this process can run, whatever its size."""
    in_process = str(Route.LAMBDA)
    seconds = {name: value for name, value in explanation.seconds.items() if name == in_process}
    dollars = {name: value for name, value in explanation.dollars.items() if name == in_process}
    return replace(explanation, route=Route.LAMBDA, reason=reason, seconds=seconds, dollars=dollars)


def _route(
    answered: bool, read: int, memory: int, seconds: float, limits: EngineLimits, limit_bytes: int | None
) -> tuple[Route, str]:
    if answered:
        return Route.METADATA, "the table's statistics give the answer: no data is read"
    if limit_bytes is not None and read > limit_bytes:
        return Route.SPARK, f"it reads {size(read)}, over the limit of {size(limit_bytes)}"
    if memory > limits.memory_bytes:
        return Route.SPARK, f"it needs about {size(memory)} of memory, over the limit of {size(limits.memory_bytes)}"
    if seconds > limits.seconds:
        return Route.SPARK, f"it takes about {seconds:.0f} s, over the limit of {limits.seconds:g} s"
    return Route.LAMBDA, f"{size(read)} fit into memory and are read before a Spark job would have started"


def _memory_bytes(table: TableEstimate) -> float:
    return max(table.bytes * UNPACKED, float(table.rows * table.row_bytes))


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
