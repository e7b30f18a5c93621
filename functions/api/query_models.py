"""The bodies of requests and responses of queries, statements and searches."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, RootModel

from catalog.core.point_in_time import GRAMMAR
from functions.api.models import ColumnName, In, Out, RowsOut, TableName


class QueryIn(In):
    sql: str = Field(min_length=1, max_length=100_000, examples=["select station, max(metres) from bronze.tides"])
    parameters: dict[str, Any] = Field(default={}, max_length=1000, description="values of `$name` in the statement")
    as_of: str | None = Field(
        default=None, min_length=1, max_length=256, description=f"the point in time: {GRAMMAR}; default: now"
    )
    verify: bool = Field(default=False, description="hash every object that is read and compare it with the timeline")
    fresh: bool = Field(default=False, description="read each table's current snapshot, sequenced or not")
    engine: Literal["auto", "lambda", "spark"] = Field(
        default="auto", description="`auto` runs it where it is cheapest, `lambda` here or not at all, `spark` as a job"
    )
    wait: float = Field(default=0, ge=0, le=20, description="seconds to wait for a job before the response is 202")


class StatementIn(In):
    sql: str = Field(
        min_length=1, max_length=100_000, examples=["update silver.tides set metres = 4.2 where station = 'Brest'"]
    )
    parameters: dict[str, Any] = Field(default={}, max_length=1000, description="values of `$name` in the statement")


class StatementOut(Out):
    """What a statement did. `GET /commits/snapshot-<snapshot_id>` is its leaf, once it is sequenced."""

    statement: str = Field(examples=["UPDATE"])
    table: str
    rows: int | None = Field(default=None, description="rows that it inserted, updated or deleted")
    snapshot_id: str | None = Field(default=None, description="missing if it committed no rows")


class StatementsOut(Out):
    statements: list[StatementOut] = Field(description="in their order; one, unless it is a transaction")


class QueryOut(Out):
    """The status of a query that became a job. `detail`: the engine's state while it runs, the reason if it failed."""

    id: str
    status: Literal["running", "done", "failed", "cancelled"]
    detail: str | None = None
    route: Literal["spark"] = "spark"
    reason: str = Field(description="why it runs on Spark")
    submitted_ms: int
    estimated_bytes: int
    estimated_seconds: float
    seconds: float | None = Field(default=None, description="from submission to result")
    rows: int | None = None
    bytes: int | None = Field(default=None, description="the size of its result")
    receipt: dict[str, Any] = Field(description="what its result is computed from")


class QueryRows(RootModel[RowsOut | QueryOut]):
    """The rows; or with `rows=false` the status of the query."""


class SearchIn(In):
    table: TableName
    column: ColumnName
    text: str | None = Field(default=None, min_length=1, max_length=100_000)
    vector: list[float] | None = Field(default=None, min_length=1, max_length=4096)
    mode: Literal["vector", "text", "hybrid"] = "hybrid"
    where: str | None = Field(default=None, min_length=1, max_length=10_000)
    as_of: str | None = Field(
        default=None, min_length=1, max_length=256, description=f"the point in time: {GRAMMAR}; default: now"
    )
    limit: int = Field(default=10, ge=1, le=1000)
