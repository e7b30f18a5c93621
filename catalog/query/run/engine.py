"""DuckDB, restricted: in memory, without disk or network, within a memory limit and a deadline.

It reads objects only through `catalog.query.scan.lake_files`, and runs only text that `catalog.query.plan` has checked:
one SELECT whose tables were replaced by scans. Does not know Iceberg or the timeline.
"""

from __future__ import annotations

import atexit
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import _seam  # what `sql` itself calls: there every statement is bound once more, before it runs
from duckdb.func import FunctionNullHandling, PythonUDFType

from catalog.core.errors import Internal, Invalid, LakeError
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.scan.lake_files import LAKE_FILES, SCHEME

THREADS = 2
PARALLEL_BYTES = 1 << 20
"""Below this size one thread is nearly as fast as two, and leaves the other core to other queries."""
MIN_MEMORY_BYTES = 16 << 20
BATCH_ROWS = 1 << 16
PREFETCH_GAP_BYTES = 512 << 10
"""DuckDB reads gaps up to this size between column chunks along, to save a request."""
MAX_INSTANCES = 4
"""Databases that are kept, one for each memory limit and number of threads; in a function there are two."""
Parameters = Mapping[str, Any] | Sequence[Any] | None

_CONFIG: dict[str, Any] = {
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_unsigned_extensions": False,
    "python_enable_replacements": False,
    "python_scan_all_frames": False,
}
_SETTINGS = (
    # It answers min and max from a footer, in which the upper bound of floats that may be NaN is NaN, and 0.0 is -0.0.
    "SET GLOBAL disabled_optimizers = 'statistics_propagation'",
    "SET GLOBAL TimeZone = 'UTC'",
    "SET GLOBAL enable_external_file_cache = false",
    f"SET GLOBAL parquet_prefetch_column_gap = {PREFETCH_GAP_BYTES}",
    f"SET GLOBAL allowed_directories = ['{SCHEME}://']",
    "SET GLOBAL enable_external_access = false",
    "SET GLOBAL lock_configuration = true",
)

_instances: OrderedDict[tuple[int, int], duckdb.DuckDBPyConnection] = OrderedDict()
_lock = threading.Lock()


def _instance(memory_bytes: int, threads: int) -> duckdb.DuckDBPyConnection:
    """The database with this memory limit. Opening one takes 30 ms, a cursor of it 0.2 ms."""
    memory_bytes = max(memory_bytes, MIN_MEMORY_BYTES)
    key = (memory_bytes, threads)
    with _lock:
        if key not in _instances:
            config = {**_CONFIG, "memory_limit": f"{memory_bytes}B", "threads": threads}
            database = duckdb.connect(":memory:", config=config)
            database.register_filesystem(LAKE_FILES)
            for setting in _SETTINGS:
                database.execute(setting)
            _instances[key] = database
            if len(_instances) > MAX_INSTANCES:
                _instances.popitem(last=False)
        _instances.move_to_end(key)
        return _instances[key]


@atexit.register
def _close() -> None:
    with _lock:
        while _instances:
            _instances.popitem()[1].close()


class Session:
    """The connection of one query. What it registers is seen by no other session."""

    def __init__(self, memory_bytes: int, threads: int = 1) -> None:
        self._cursor = _instance(memory_bytes, threads).cursor()
        self._functions: list[str] = []

    def register(self, name: str, rows: pa.Table) -> str:
        """Registers Arrow rows; returns the name under which no common table expression can shadow them."""
        self._cursor.register(name, rows)
        return f"temp.main.{quote_identifier(name)}"

    def add_function(
        self, name: str, arguments: list[pa.DataType], result: pa.DataType, call: Callable[..., Any]
    ) -> None:
        """Registers a scalar function over Arrow columns. Its name must be unique in this process."""
        types: Any = [self._type_name(type_) for type_ in arguments]
        self._cursor.create_function(
            name,
            call,
            types,
            self._type_name(result),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
        self._functions.append(name)

    def _type_name(self, type_: pa.DataType) -> str:
        empty = pa.table({"c": pa.array([], type_)})
        self._cursor.register("strandline_type", empty)
        try:
            return str(_seam.bind(self._cursor, "SELECT c FROM temp.main.strandline_type").types[0])
        finally:
            self._cursor.unregister("strandline_type")

    def syntax_tree(self, text: str) -> dict[str, Any]:
        """The statement as DuckDB's own parser reads it. Invalid, with its reason, if it is not one SELECT."""
        with translate_engine_errors():
            rows = self._cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
        record = json.loads(rows[0][0])
        if record["error"]:
            raise Invalid(_not_a_select(record))
        if len(record["statements"]) != 1:
            raise Invalid(f"there are {len(record['statements'])} statements: send one at a time")
        node: dict[str, Any] = record["statements"][0]["node"]
        return node

    def schema(self, text: str, parameters: Mapping[str, Any]) -> pa.Schema:
        """The schema of the statement's rows, without running it. Every column is nullable."""
        with translate_engine_errors():
            bound = _seam.bind(self._cursor, text, values=dict(parameters) or None)
            if bound.return_type != "query_result" or bound.writes:
                raise Invalid("the query returns no rows: write a SELECT")
            types = _seam.arrow_schema(self._cursor, bound.names, bound.types).types  # it renames repeated names
        return pa.schema([pa.field(name, type_) for name, type_ in zip(bound.names, types, strict=True)])

    def value(self, expression: dict[str, Any], parameters: Mapping[str, Any], cast_to: str | None = None) -> Any:
        """The value of a constant expression of a syntax tree, as an Arrow scalar; None if it has none."""
        if cast_to in (None, "VARCHAR") and (plain := _plain_value(expression, parameters)) is not None:
            return plain
        statement = {"error": False, "statements": [{"node": _select_of(expression), "named_param_map": []}]}
        try:
            rows = self._cursor.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(statement)]).fetchall()
            text = str(rows[0][0])
            if cast_to is not None:
                text = f"SELECT CAST(({text}) AS {cast_to})"
            column = self._submit(text, _used(parameters, expression)).read_all().column(0)
        except duckdb.Error:
            return None
        return column[0] if len(column) == 1 and column[0].is_valid else None

    def run(
        self, text: str, parameters: Mapping[str, Any], schema: pa.Schema, deadline: float, limits: EngineLimits
    ) -> Iterator[pa.RecordBatch]:
        """Yields batches of the schema. At the deadline the work is interrupted and Invalid is raised."""
        timer = threading.Timer(max(deadline - time.monotonic(), 0.001), self._cursor.interrupt)
        timer.daemon = True
        timer.start()
        reader = None
        try:
            with translate_engine_errors(limits):
                reader = self._submit(text, parameters)
            while True:
                with translate_engine_errors(limits):
                    batch = next(reader, None)
                if batch is None:
                    return
                if batch.num_rows:
                    yield cast_to_schema(batch, schema)
        finally:
            timer.cancel()
            if reader is not None:
                reader.close()  # frees its memory now, and not when the garbage of an error is collected

    def _submit(self, text: str, parameters: Mapping[str, Any]) -> Any:
        """Starts the statement: a reader of its batches."""
        return _seam.submit(self._cursor, text, dict(parameters) or None, "stream", BATCH_ROWS).arrow_reader()

    def close(self) -> None:
        for name in self._functions:
            self._cursor.remove_function(name)
        self._functions = []
        self._cursor.close()


def warm_up(memory_bytes: int = MIN_MEMORY_BYTES) -> None:
    """Opens the database with this memory limit and loads its parts, so that the first query does not."""
    session, limits = Session(memory_bytes), EngineLimits(memory_bytes)
    schema = session.schema("SELECT 1 AS one", {})
    for _ in session.run("SELECT 1 AS one", {}, schema, time.monotonic() + limits.seconds, limits):
        pass
    session.close()


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


def parameters_by_name(parameters: Parameters) -> dict[str, Any]:
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    return {str(number): value for number, value in enumerate(parameters, 1)}


def quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _select_of(expression: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "SELECT_NODE",
        "modifiers": [],
        "cte_map": {"map": []},
        "select_list": [expression],
        "from_table": {"type": "EMPTY", "alias": "", "sample": None},
        "where_clause": None,
        "group_expressions": [],
        "group_sets": [],
        "aggregate_handling": "STANDARD_HANDLING",
        "having": None,
        "sample": None,
        "qualify": None,
    }


_INTEGER = re.compile(r"-?[0-9]{1,9}")
_DECIMAL = re.compile(r"[0-9]{1,15}\.[0-9]{1,15}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _plain_value(node: dict[str, Any], parameters: Mapping[str, Any]) -> Any:
    """The value of a literal or parameter that needs no engine to be read: asking takes it a millisecond. None for any
    other expression."""
    if node["class"] == "PARAMETER":
        value = parameters.get(str(node.get("identifier")))
        if type(value) is str or (type(value) is int and abs(value) < 1 << 31):
            return pa.scalar(value)
    elif node["class"] == "CONSTANT":
        kind, text = node["literal"]["kind"], node["literal"]["text"]
        if kind == "STRING":
            return pa.scalar(text)
        if kind == "INTEGER" and _INTEGER.fullmatch(text):
            return pa.scalar(int(text), pa.int32())
        if kind == "NUMERIC" and _DECIMAL.fullmatch(text):
            return pa.scalar(Decimal(text))
    elif node["class"] == "CAST" and node["child"].get("class") == "CONSTANT" and not node.get("try_cast"):
        type_, literal = node["type_expr"], node["child"]["literal"]
        is_date = str(type_.get("type_name")).lower() == "date" and not (type_.get("schema") or type_.get("catalog"))
        if is_date and literal["kind"] == "STRING" and _DATE.fullmatch(literal["text"]):
            with suppress(ValueError):
                return pa.scalar(date.fromisoformat(literal["text"]))
    return None


def _used(parameters: Mapping[str, Any], expression: Any) -> dict[str, Any]:
    """The parameters that the expression names: DuckDB rejects others."""
    names: set[str] = set()
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("class") == "PARAMETER":
                names.add(str(node.get("identifier")))
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return {name: value for name, value in parameters.items() if name in names}


# Errors


@contextmanager
def translate_engine_errors(limits: EngineLimits | None = None) -> Iterator[None]:
    """Raises DuckDB's errors within the block as LakeErrors with its reason in one line."""
    try:
        yield
    except (LakeError, MemoryError):
        raise
    except duckdb.Error as error:
        raise engine_error(error, limits) from None
    except (OSError, pa.ArrowException) as error:  # DuckDB's own, after the first batch: Arrow's stream keeps its text
        kind = next((kind for start, kind in _STREAM_ERRORS.items() if str(error).startswith(start)), duckdb.Error)
        raise engine_error(kind(str(error)), limits) from None


_STREAM_ERRORS: dict[str, type[duckdb.Error]] = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "INTERRUPT Error": duckdb.InterruptException,
    "INTERNAL Error": duckdb.InternalException,
    "FATAL Error": duckdb.FatalException,
}


def engine_error(error: duckdb.Error, limits: EngineLimits | None = None) -> LakeError:
    """The error for one of DuckDB's: Invalid for what the statement causes, Internal if the database is lost."""
    text = str(error).strip()
    if isinstance(error, duckdb.OutOfMemoryException):
        budget = f"{limits.memory_bytes >> 20} MiB" if limits else "its memory"
        return Invalid(f"the query needs more than {budget}: select fewer columns or rows, or run it on Spark")
    if isinstance(error, duckdb.InterruptException):
        seconds = f"{limits.seconds:g} s" if limits else "time"
        return Invalid(f"the query took longer than its {seconds}: narrow it, or bound its recursion")
    reason = _reason(text)
    if isinstance(error, duckdb.FatalException):
        return Internal(f"the query engine failed: {reason}")
    if isinstance(
        error, duckdb.InternalException
    ):  # as if the statement had crashed its worker: no error of the lake's
        return Invalid(f"the query engine fails on this query: write it in another way ({reason})")
    return Invalid(f"the query cannot be run: {reason}")


def _reason(text: str) -> str:
    """DuckDB's message in one line, without the excerpt of the text, which is not what the user wrote."""
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith(("LINE ", "\tCandidate", "Candidate functions")) or (kept and not line.strip()):
            break
        kept.append(line.strip())
    return re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", " ".join(kept))[:500] or "DuckDB gave no reason"


def _not_a_select(record: dict[str, Any]) -> str:
    message = str(record["error_message"])
    if "Only SELECT statements can be serialized" in message:
        return "PIVOT must name its values, as in PIVOT t ON c IN ('a', 'b') USING sum(x); all else must be a SELECT"
    return f"the query cannot be parsed: {' '.join(message.split())[:300]}"


def unknown_column(column: str, names: Sequence[str]) -> Invalid | None:
    """The error for a column that none of the tables has, with the nearest names; None if one of them has it."""
    message, name = f"there is no column {column}", column.rpartition(".")[2].lower()
    if name in {known.lower() for known in names}:
        return None
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        return Invalid(f"{message}: did you mean {' or '.join(close)}?")
    return Invalid(f"{message}; there are {', '.join(names[:20])}" if names else message)


_UNKNOWN_COLUMN = (
    re.compile(r'Referenced column "(?P<column>[^"]+)" not found in FROM clause'),
    re.compile(r'"(?P<table>[^"]+)" does not have a column named "(?P<column>[^"]+)"'),
)


def unknown_column_of(error: LakeError) -> str | None:
    """The column that DuckDB did not find, if that is what the error says."""
    for pattern in _UNKNOWN_COLUMN:
        if match := pattern.search(error.message):
            parts = match.groupdict()
            return f"{parts['table']}.{parts['column']}" if "table" in parts else parts["column"]
    return None
