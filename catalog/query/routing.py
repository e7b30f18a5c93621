"""Where a query is cheapest: its metadata, this process, or Spark. Arithmetic over sizes known before anything is read.

Prices are those of catalog.prices, speeds are constants here; what was estimated and what happened is logged with every
query, and kept of every large one (catalog.query.history), so that they can be tuned from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from catalog.prices import dollars_for
from catalog.query.engine import Limits

SPARK_VCPUS, SPARK_GB = 12, 48  # a driver and two executors of 4 vCPUs and 16 GB each
SPARK_START_S = 60.0

READ_BYTES_S = 120e6
DECODE_BYTES_S = 400e6
SPARK_BYTES_S = 600e6
UNPACKED = 4.0
"""A column's bytes in memory, for one in its file."""
REQUEST_BYTES = 8 << 20


class Route(StrEnum):
    METADATA = "metadata"
    LAMBDA = "lambda"
    SPARK = "spark"


@dataclass(frozen=True)
class TableEstimate:
    """One table's part: what pruning left of it."""

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
    """What a row of these columns takes in memory at least, however well its file packs it."""


@dataclass(frozen=True)
class Explanation:
    """The choice, and what it was made from. Times and dollars are estimates, sizes are exact."""

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
    """How such queries went before, for people."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """What `as_dict` made, read back from JSON."""
        tables = tuple(TableEstimate(**{**one, "columns": tuple(one["columns"])}) for one in record["tables"])
        return cls(**{**record, "route": Route(record["route"]), "tables": tables, "seen": tuple(record["seen"])})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"route": str(self.route)}

    def lines(self) -> list[str]:
        """For people."""
        said = [f"route    {self.route}: {self.reason}"]
        for one in self.tables:
            deletes = ", deletes pending" if one.deletes else ""
            said.append(
                f"table    {one.table}: {one.files} of {one.of_files} files, {one.rows} rows, {size(one.bytes)} of "
                f"{size(one.of_bytes)} in {', '.join(one.columns) or 'no column'}{deletes}"
            )
        said.append(
            f"reads    {size(self.bytes)} in about {self.requests} requests, {size(self.memory_bytes)} in memory"
        )
        for name, seconds in self.seconds.items():
            said.append(f"{name:<8} about {seconds:.2f} s, ${self.dollars[name]:.6f}")
        return [*said, *self.seen]


def choose(
    tables: Sequence[TableEstimate], limits: Limits, *, answered: bool, limit_bytes: int | None = None
) -> Explanation:
    """The route for a query over these tables. `answered`: their metadata has the answer already."""
    read = 0 if answered else sum(one.bytes for one in tables)
    loaded = 0 if answered else sum(_loaded(one) for one in tables)
    # A join holds all but its largest side once more, hashed.
    joined = loaded - max((_loaded(one) for one in tables), default=0) if len(tables) > 1 and not answered else 0
    memory = int(loaded + joined)
    requests = 0 if answered else sum(one.files + one.bytes // REQUEST_BYTES for one in tables)
    here = 0.02 + read / READ_BYTES_S + memory / DECODE_BYTES_S
    spark = SPARK_START_S + read / SPARK_BYTES_S
    gigabytes = limits.memory_bytes / 0.6 / (1 << 30)
    seconds = {"lambda": here, "spark": spark}
    lambda_second = gigabytes * dollars_for("lambda.gb_second")
    spark_hour = SPARK_VCPUS * dollars_for("emr.vcpu_hour") + SPARK_GB * dollars_for("emr.gb_hour")
    gets = requests * dollars_for("s3.read")
    dollars = {"lambda": here * lambda_second + gets, "spark": max(spark, 60.0) / 3600 * spark_hour + gets}
    route, reason = _route(answered, read, memory, here, limits, limit_bytes)
    if answered:
        seconds = {"metadata": 0.01}
        dollars = {"metadata": 0.01 * lambda_second}
    bounds = {"memory_bytes": float(limits.memory_bytes), "seconds": limits.seconds}
    if limit_bytes is not None:
        bounds["bytes"] = float(limit_bytes)
    return Explanation(route, reason, tuple(tables), read, memory, requests, seconds, dollars, bounds)


def only_here(explanation: Explanation, reason: str) -> Explanation:
    """The same for a query that no other place can run, whatever its size."""
    here = str(Route.LAMBDA)
    seconds = {name: found for name, found in explanation.seconds.items() if name == here}
    dollars = {name: found for name, found in explanation.dollars.items() if name == here}
    return replace(explanation, route=Route.LAMBDA, reason=reason, seconds=seconds, dollars=dollars)


def _route(
    answered: bool, read: int, memory: int, seconds: float, limits: Limits, limit_bytes: int | None
) -> tuple[Route, str]:
    if answered:
        return Route.METADATA, "the table's own statistics hold the answer: no data is read"
    if limit_bytes is not None and read > limit_bytes:
        return Route.SPARK, f"it reads {size(read)}, over the limit of {size(limit_bytes)}"
    if memory > limits.memory_bytes:
        return Route.SPARK, f"it needs about {size(memory)} of memory, over the {size(limits.memory_bytes)} there are"
    if seconds > limits.seconds:
        return Route.SPARK, f"it takes about {seconds:.0f} s, over the {limits.seconds:g} s there are"
    return Route.LAMBDA, f"{size(read)} fit into memory, and are read sooner than a job would start"


def _loaded(one: TableEstimate) -> float:
    return max(one.bytes * UNPACKED, float(one.rows * one.row_bytes))


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
