"""DataFusion, held short: in memory, without disk, read-only, within a budget of memory and a deadline.

Knows nothing of Iceberg or the timeline: it is given Arrow and gives Arrow.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions, udf
from datafusion.catalog import Schema

from catalog.errors import Internal, Invalid, LakeError

PARALLEL_BYTES = 32 << 20
"""Below this one thread answers as soon as two would, and always in the same order."""

_ANY_SIZE = str(1 << 62)
"""A join's smaller side is hashed once for all partitions: to deal both sides out by key first would copy every row."""
_READ_ONLY = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
Parameters = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True)
class Limits:
    """What one query may use in this process."""

    memory_bytes: int
    seconds: float = 60.0


def memory_of_process() -> int:
    """The default budget: most of what Lambda gives the function, else 2 GiB."""
    given = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
    return int(int(given) * 0.6) << 20 if given and given.isdecimal() else 2 << 30


class Session:
    """One query's tables. `exact_decimals`: `0.1` is a decimal, not the double nearest to it.

    `recursive`: columns are not pruned, because DataFusion 54 prunes those that a recursive term still needs.
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
        """A table of these batches, dealt out to as many partitions as the session has."""
        self._make(database)
        shares: list[list[pa.RecordBatch]] = [list(batches[at :: self._partitions]) for at in range(self._partitions)]
        filled = [share for share in shares if share] or [[pa.RecordBatch.from_pylist([], schema=schema)]]
        self._context.register_record_batches(f"{quoted(database)}.{quoted(table)}", filled)

    def add_view(self, database: str, table: str, sql: str) -> None:
        """A table that is a query over others: how masks and row filters come before everything else."""
        self._make(database)
        view = self.plan(sql, None)
        self._context.catalog().schema(database).register_table(table, view)

    def add_function(
        self,
        name: str,
        arguments: list[pa.DataType],
        result: pa.DataType,
        call: Callable[..., Any],
        *,
        known: bool = True,
    ) -> None:
        """A function of rows, by columns: what a search said of each. `known`: its values may be planned with."""
        self._context.register_udf(udf(call, arguments, result, "stable" if known else "volatile", name))

    def _make(self, database: str) -> None:
        if database not in self._schemas:
            self._schemas.add(database)
            self._context.catalog().register_schema(database, Schema.memory_schema())

    def plan(self, sql: str, parameters: Parameters) -> Any:
        """The query, planned: a DataFrame nobody has run. Invalid with DataFusion's reason when it makes no sense."""
        values = named(parameters)
        with explained():
            return self._context.sql_with_options(sql, _READ_ONLY, param_values=values or None)

    def optimised(self, frame: Any) -> Any:
        with explained():
            return frame.optimized_logical_plan()


def run(frame: Any, deadline: float, limits: Limits) -> Iterator[pa.RecordBatch]:
    """The answer, batch by batch. Past the deadline the work is cancelled, wherever it is."""
    with explained(limits):
        stream = frame.execute_stream()
    loop = _loop()
    while True:
        waiting = asyncio.run_coroutine_threadsafe(_next(stream), loop)
        try:
            with explained(limits):
                batch = waiting.result(max(deadline - time.monotonic(), 0.001))
        except Late:
            waiting.cancel()
            raise Invalid(
                f"the query took longer than its {limits.seconds:g} s: narrow it, or bound its recursion"
            ) from None
        if batch is None:
            return
        if batch.num_rows:
            yield batch


async def _next(stream: Any) -> pa.RecordBatch | None:
    try:
        found = await stream.__anext__()
    except StopAsyncIteration:
        return None
    return found.to_pyarrow()  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _loop() -> asyncio.AbstractEventLoop:
    """Where answers are waited for: one thread for all queries, idle but when a batch arrives."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="query-clock", daemon=True).start()
    return loop


def named(parameters: Parameters) -> dict[str, Any]:
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    return {str(number): value for number, value in enumerate(parameters, 1)}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class explained:  # noqa: N801 - reads as a statement: with explained(): …
    """Within the block, what DataFusion raises becomes Invalid with its reason in one line."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, LakeError | Late) or not isinstance(error, Exception):
            return
        raise explain(str(error), self._limits) from None


def explain(text: str, limits: Limits | None = None) -> LakeError:
    text = re.sub(
        r"^(DataFusion error: |Execution error: |Error during planning: |External error: )+", "", text.strip()
    )
    first = text.splitlines()[0] if text else "no reason was given"
    if "Resources exhausted" in text or "Failed to allocate" in text:
        budget = f"{limits.memory_bytes >> 20} MiB" if limits else "its memory"
        return Invalid(f"the query needs more than {budget}: select fewer columns or rows, or run it on Spark")
    if "No field named" in text:
        return Invalid(_unknown_column(first))
    if "Internal error" in text or "panicked" in text:
        return Internal(f"the query engine failed: {first}")
    return Invalid(f"the query cannot be run: {first[:500]}")


def _unknown_column(text: str) -> str:
    name = re.search(r"No field named ([^\s]+?)\.(?:\s|$)", text)
    asked = name.group(1) if name else "?"
    said = f"there is no column {asked}"
    near = re.search(r"Did you mean '(.+)'\?", text)
    if near:
        return f"{said}: did you mean {near.group(1).rpartition('.')[2]}?"
    valid = re.search(r"Valid fields are (.+?)\.?$", text)
    fields = sorted({field.rpartition(".")[2].strip('"') for field in valid.group(1).split(", ")}) if valid else []
    close = get_close_matches(asked.rpartition(".")[2].strip('"'), fields, n=3, cutoff=0.6)
    if close:
        return f"{said}: did you mean {' or '.join(close)}?"
    return f"{said}; there are {', '.join(fields[:20])}" if fields else said
