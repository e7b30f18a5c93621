"""DataFusion, restricted: in memory, without disk, read-only, within a memory budget and a deadline.

Does not know Iceberg or the timeline: Arrow in, Arrow out.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions, udf
from datafusion.catalog import Schema

from catalog.core.errors import Internal, Invalid, LakeError
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.float_order import normalise_float, normalise_floats

PARALLEL_BYTES = 32 << 20
"""Below this size one thread is as fast as two, and returns rows in the same order every time."""

_ANY_SIZE = str(1 << 62)
"""Joins of any size hash the smaller side once for all partitions: repartitioning by key would copy every row."""
_READ_ONLY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
Parameters = Mapping[str, Any] | Sequence[Any] | None


class Session:
    """A DataFusion session for one query. `exact_decimals`: `0.1` is a decimal, not the nearest double.

    `recursive`: does not prune columns, because DataFusion 54 prunes columns that a recursive term still needs.
    """

    def __init__(
        self, *, memory_bytes: int, partitions: int = 1, exact_decimals: bool = False, recursive: bool = False
    ) -> None:
        config = (
            SessionConfig()
            .with_target_partitions(partitions)
            .with_information_schema(False)
            .set("datafusion.sql_parser.parse_float_as_decimal", str(exact_decimals).lower())
            .set("datafusion.optimizer.hash_join_single_partition_threshold", _ANY_SIZE)
            .set("datafusion.optimizer.hash_join_single_partition_threshold_rows", _ANY_SIZE)
        )
        runtime = RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(max(memory_bytes, 1 << 20))
        self._context = SessionContext(config, runtime)
        if recursive:
            self._context.remove_optimizer_rule("optimize_projections")
        self._partitions = partitions
        self._schemas: set[str] = set()

    def add(self, database: str, table: str, schema: pa.Schema, batches: Sequence[pa.RecordBatch] = ()) -> None:
        """Registers a table of these batches, distributed over the session's partitions."""
        self._add_schema(database)
        batches = [normalise_floats(batch) for batch in batches]
        count = self._partitions
        partitions: list[list[pa.RecordBatch]] = [list(batches[number::count]) for number in range(count)]
        nonempty = [partition for partition in partitions if partition]
        name = f"{quote_identifier(database)}.{quote_identifier(table)}"
        self._context.register_record_batches(name, nonempty or [[pa.RecordBatch.from_pylist([], schema=schema)]])

    def add_view(self, database: str, table: str, sql: str) -> None:
        """Registers a view: masks and row filters are views in front of a table."""
        self._add_schema(database)
        view = self.plan(sql, None)
        self._context.catalog().schema(database).register_table(table, view)

    def add_function(
        self,
        name: str,
        arguments: list[pa.DataType],
        result: pa.DataType,
        call: Callable[..., Any],
        *,
        stable: bool = True,
    ) -> None:
        """Registers a scalar function over Arrow columns. `stable`: the optimiser may evaluate it while planning."""
        self._context.register_udf(udf(call, arguments, result, "stable" if stable else "volatile", name))

    def _add_schema(self, database: str) -> None:
        if database not in self._schemas:
            self._schemas.add(database)
            self._context.catalog().register_schema(database, Schema.memory_schema())

    def plan(self, sql: str, parameters: Parameters) -> Any:
        """The query as a planned DataFrame that has not run. Invalid, with DataFusion's reason, if planning fails."""
        values = {name: normalise_float(value) for name, value in parameters_by_name(parameters).items()}
        with translate_engine_errors():
            return self._context.sql_with_options(sql, _READ_ONLY, param_values=values or None)

    def optimised(self, frame: Any) -> Any:
        with translate_engine_errors():
            return frame.optimized_logical_plan()

    def schema(self, optimised: Any) -> pa.Schema:
        """The schema of the plan's rows. `frame.schema()` is not it: that is from before type coercion.

        Every column is nullable: DataFusion's own flag depends on constant folding and differs from batch to batch.
        """
        planned: pa.Schema = self._context.create_dataframe_from_logical_plan(optimised).schema()
        return pa.schema([pa.field(field.name, field.type) for field in planned])


def execute(frame: Any, schema: pa.Schema, deadline: float, limits: EngineLimits) -> Iterator[pa.RecordBatch]:
    """Runs the frame and yields batches of the schema. At the deadline the work is cancelled and Invalid is raised."""
    with translate_engine_errors(limits):
        stream = frame.execute_stream()
    loop = _event_loop()
    while True:
        waiting = asyncio.run_coroutine_threadsafe(_next(stream), loop)
        try:
            with translate_engine_errors(limits):
                batch = waiting.result(max(deadline - time.monotonic(), 0.001))
        except FutureTimeout:
            waiting.cancel()
            raise Invalid(
                f"the query took longer than its {limits.seconds:g} s: narrow it, or bound its recursion"
            ) from None
        if batch is None:
            return
        if batch.num_rows:
            yield cast_to_schema(batch, schema)


def warm_up() -> None:
    """Loads the engine's parts and starts its threads, so that the first query does not."""
    session, limits = Session(memory_bytes=1 << 20), EngineLimits(1 << 20)
    frame = session.plan("SELECT 1 AS one", None)
    for _ in execute(frame, session.schema(session.optimised(frame)), time.monotonic() + limits.seconds, limits):
        pass


def cast_to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the schema's types. Internal if a value does not fit its type."""
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException:
            raise Internal(
                f"the query engine returned column {field.name} as {column.type} but planned {field.type}: write "
                f"CAST({field.name} AS …) in the query"
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


async def _next(stream: Any) -> pa.RecordBatch | None:
    try:
        batch = await stream.__anext__()
    except StopAsyncIteration:
        return None
    return batch.to_pyarrow()  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _event_loop() -> asyncio.AbstractEventLoop:
    """The event loop that awaits batches: one daemon thread for all queries."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="query-clock", daemon=True).start()
    return loop


def parameters_by_name(parameters: Parameters) -> dict[str, Any]:
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    return {str(number): value for number, value in enumerate(parameters, 1)}


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def translate_engine_errors(limits: EngineLimits | None = None) -> Iterator[None]:
    """Raises DataFusion's errors within the block as LakeErrors with its reason in one line."""
    try:
        yield
    except (LakeError, FutureTimeout):
        raise
    except Exception as error:
        raise engine_error(str(error), limits) from None


def engine_error(text: str, limits: EngineLimits | None = None) -> LakeError:
    """The error for a message of DataFusion: Invalid for the caller's mistakes and limits, Internal for its defects."""
    text = re.sub(
        r"^(DataFusion error: |Execution error: |Error during planning: |External error: )+", "", text.strip()
    )
    first_line = text.splitlines()[0] if text else "DataFusion gave no reason"
    if "Resources exhausted" in text or "Failed to allocate" in text:
        budget = f"{limits.memory_bytes >> 20} MiB" if limits else "its memory"
        return Invalid(f"the query needs more than {budget}: select fewer columns or rows, or run it on Spark")
    if "No field named" in text:
        return Invalid(_unknown_column(first_line))
    if "Internal error" in text or "panicked" in text:
        return Internal(f"the query engine failed: {first_line}")
    return Invalid(f"the query cannot be run: {first_line[:500]}")


def _unknown_column(text: str) -> str:
    match = re.search(r"No field named ([^\s]+?)\.(?:\s|$)", text)
    column = match.group(1) if match else "?"
    message = f"there is no column {column}"
    suggestion = re.search(r"Did you mean '(.+)'\?", text)
    if suggestion:
        return f"{message}: did you mean {suggestion.group(1).rpartition('.')[2]}?"
    listed = re.search(r"Valid fields are (.+?)\.?$", text)
    fields = sorted({field.rpartition(".")[2].strip('"') for field in listed.group(1).split(", ")}) if listed else []
    close = get_close_matches(column.rpartition(".")[2].strip('"'), fields, n=3, cutoff=0.6)
    if close:
        return f"{message}: did you mean {' or '.join(close)}?"
    return f"{message}; there are {', '.join(fields[:20])}" if fields else message
