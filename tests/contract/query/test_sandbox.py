"""What the engine may do: read the objects of its query, and nothing else, within its memory and its time."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from catalog.core.errors import Internal, Invalid
from catalog.query.plan.functions import ALLOWED_FUNCTIONS, CALL_BY_NAME
from catalog.query.plan.syntax import ROW_SOURCES, check_calls
from catalog.query.run import engine
from catalog.query.run.engine import Session
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.scan.lake_files import LAKE_FILES, LakeObject, QueryFiles
from catalog.query.sql.statement import _VOLATILE

MEMORY = 64 << 20


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(MEMORY)
    yield made
    made.close()


def run(session: Session, text: str, limits: EngineLimits | None = None) -> list[object]:
    limits = limits or EngineLimits(MEMORY)
    schema = session.schema(text, {})
    return [
        row
        for batch in session.run(text, {}, schema, time.monotonic() + limits.seconds, limits)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/proc/self/environ')",
        "SELECT * FROM read_parquet('s3://bucket/key')",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "SELECT * FROM read_parquet('lake://0123/0')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '{folder}/x.csv'",
        "COPY (SELECT 1) TO 'lake://0123/0' (FORMAT parquet)",
        "EXPORT DATABASE '{folder}/x'",
        "ATTACH '{folder}/x.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{folder}/x.duckdb_extension'",
        "SET threads = 1",
        "SET memory_limit = '100GB'",
        "SET temp_directory = '{folder}'",
        "SET enable_external_access = true",
        "SET GLOBAL allowed_directories = ['/']",
        "RESET lock_configuration",
    ],
)
def test_the_engine_itself_refuses_what_leaves_its_query(session: Session, tmp_path: Path, text: str) -> None:
    """Even if a statement passed every check before: nothing is read, written, loaded or set."""
    with pytest.raises(duckdb.Error):
        session._cursor.execute(text.format(folder=tmp_path)).fetchall()
    assert not list(tmp_path.iterdir())


def test_python_objects_are_not_tables(session: Session) -> None:
    rows = pa.table({"secret": [1]})
    with pytest.raises(duckdb.Error, match="does not exist"):
        session._cursor.execute("SELECT * FROM rows")
    assert rows.num_rows


def test_only_listed_functions_make_rows(session: Session) -> None:
    """Every other function in FROM is refused, whatever it is called in this version of DuckDB."""
    names = session._cursor.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
    ).fetchall()
    assert len(names) > 50
    for (name,) in names:
        for text in (f'SELECT * FROM "{name}"(1)', f"SELECT (SELECT 1 FROM \"{name}\"('x') LIMIT 1)"):
            if name in ROW_SOURCES:
                check_calls(session.syntax_tree(text))
            else:
                with pytest.raises(Invalid, match="only tables of the lake can be read"):
                    check_calls(session.syntax_tree(text))


def test_the_engines_own_tables_are_none(session: Session) -> None:
    views = session._cursor.execute("SELECT DISTINCT view_name FROM duckdb_views()").fetchall()
    assert views
    for (name,) in views:
        for text in (f'SELECT * FROM "{name}"', f'FROM main."{name}"', f'FROM system.main."{name}"'):
            with pytest.raises(Invalid, match="there is no table"):
                check_calls(session.syntax_tree(text))


def test_a_common_table_expression_does_not_open_the_engines_tables(session: Session) -> None:
    """Its name is known to the whole statement, and means the engine's table outside of its scope."""
    views = session._cursor.execute("SELECT DISTINCT view_name FROM duckdb_views()").fetchall()
    for (name,) in views:
        text = f'SELECT * FROM "{name}", (WITH "{name.upper()}" AS (SELECT 1) SELECT 2)'
        try:
            session._cursor.execute(text)
        except duckdb.CatalogException:
            continue  # it needs a schema
        with pytest.raises(Invalid, match="cannot be called"):
            check_calls(session.syntax_tree(text))


_LEFT_OUT = {
    "array_to_string_comma_default", "bitstring_byte_comparable", "col_description", "create_sort_key",
    "current_connection_id", "current_query", "current_query_id", "current_setting", "current_transaction_id",
    "currval", "decimal_average", "decimal_division", "finalize", "format_pg_type", "format_type", "get_block_size",
    "get_type", "getvariable", "hive_partition_component", "in_search_path", "index_key", "invoke", "make_type",
    "map_to_pg_oid", "nextval", "obj_description", "remap_struct", "replace_type", "setseed", "setval",
    "shobj_description", "sleep_ms", "stats", "sum_no_overflow", "timetz_byte_comparable", "to_aggregate_state",
    "txid_current", "variant_bytes_to_variant", "variant_comparator", "variant_normalize",
    "variant_to_parquet_variant", "vector_type", "vertex_extract", "write_log",
}  # fmt: skip


@pytest.mark.parametrize(
    "call",
    [
        "json_serialize_plan('select current_setting(''allowed_paths'')', optimize := true)",
        "'allowed_paths'.current_setting()",
        "system.main.current_setting('allowed_paths')",
        "\"Current_Setting\"('allowed_paths')",
        "list_transform(['allowed_paths'], lambda x: current_setting(x))",
        "(SELECT CASE WHEN true THEN current_setting('allowed_paths') END)",
        "to_aggregate_state(1)",
        "finalize('x'::BLOB)",
        "combine(1, 2)",
        "__internal_decompress_string(9223372036854775807::UBIGINT)",
        "variant_bytes_to_variant('x'::BLOB)",
        "stats(1)",
        "sleep_ms(1)",
        "sum_no_overflow(1) OVER ()",
        "a_function_of_a_later_engine(1)",
    ],
)
def test_only_listed_functions_are_called(session: Session, call: str) -> None:
    with pytest.raises(Invalid, match="not a function that a query may call"):
        check_calls(session.syntax_tree(f"SELECT {call}"))


@pytest.mark.parametrize("function", sorted(CALL_BY_NAME))
def test_an_aggregate_named_by_text_is_one_of_the_list(session: Session, function: str) -> None:
    def check(arguments: str) -> None:
        check_calls(session.syntax_tree(f"SELECT {function}({arguments})"))

    for allowed in ("[1], 'sum'", "[1], 'Sum'", "['a', 'b'], 'string_agg', ','", "[1]"):
        check(allowed)
    check_calls(session.syntax_tree(f"SELECT [1].{function}('sum')"))
    for refused in ("sum_no_overflow", "Sum_No_Overflow", "combine_aggr", "of_a_later_engine", "main.sum", ""):
        with pytest.raises(Invalid, match="not a function that a query may call"):
            check(f"[1], '{refused}'")
    for computed in ("[1], 'sum_no' || '_overflow'", "[1], $name", "[1], n", "[1], (SELECT 'x')", "[1], name := 'sum'"):
        with pytest.raises(Invalid, match="as a text in the query"):
            check(computed)


def test_only_known_functions_call_others_by_name(session: Session) -> None:
    """Whatever text they are given: the error of a name that the catalog does not have shows that it was looked up."""
    unknown = "'strandline_no_such_name'"
    pool, calling = (unknown, "[1, 2]"), set()
    for name in sorted(name for name in ALLOWED_FUNCTIONS if name.isidentifier()):
        for arguments in (args for count in (1, 2, 3) for args in itertools.product(pool, repeat=count)):
            if unknown not in ",".join(arguments):
                continue
            try:
                session._cursor.execute(f'SELECT "{name}"({",".join(arguments)})')
            except duckdb.CatalogException as error:
                if "strandline_no_such_name does not exist" in str(error):
                    calling.add(name)
            except duckdb.Error:
                continue
    assert calling == CALL_BY_NAME


def test_the_state_of_an_aggregate_is_not_shown(session: Session) -> None:
    for text in ("SELECT sum(1) EXPORT_STATE", "SELECT hash(max('x') EXPORT_STATE)"):
        with pytest.raises(Invalid, match="EXPORT_STATE is not supported"):
            check_calls(session.syntax_tree(text))


def test_every_function_of_the_engine_was_looked_at(session: Session) -> None:
    """A new engine's functions are listed, or fall under what is left out here, by somebody who read what they do."""
    rows = session._cursor.execute(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions()"
        " WHERE function_type IN ('scalar', 'aggregate', 'macro', 'window')"
    ).fetchall()
    engine = {name for (name,) in rows}
    internal = re.compile(
        r"__|collate_|icu_|has_\w*privilege|inet_|pg_|json_(de)?serialize_|json_copy_|parse_duckdb_|combine|.* from$"
    )
    assert {name for name in engine - ALLOWED_FUNCTIONS if not internal.match(name)} == _LEFT_OUT
    assert ALLOWED_FUNCTIONS - engine == {"unnest"}  # which the binder knows itself


def test_what_changes_from_run_to_run_is_known(session: Session) -> None:
    """The queries that call a function whose result is not fixed are never cached."""
    rows = session._cursor.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'"
    ).fetchall()
    harmless = {"current_database", "current_schema", "current_schemas", "error"}
    assert {name for (name,) in rows if name in ALLOWED_FUNCTIONS} - harmless <= _VOLATILE
    assert "age" in _VOLATILE  # of one argument: to today, although DuckDB says that it is fixed


def test_a_macro_reaches_nothing_that_is_refused(session: Session) -> None:
    """DuckDB expands macros after our check: one that calls such a function is refused, or not cached, itself."""
    macros = session._cursor.execute(
        "SELECT DISTINCT function_name, macro_definition FROM duckdb_functions() WHERE function_type = 'macro'"
    ).fetchall()
    tables = session._cursor.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro')"
    ).fetchall()
    assert len(macros) > 50
    never = {name for (name,) in tables} - ROW_SOURCES
    for name, definition in macros:
        if name not in ALLOWED_FUNCTIONS:
            continue
        called = set(re.findall(r"(\w+)\(", definition.lower()))
        assert called <= ALLOWED_FUNCTIONS - never | {"cast", "coalesce", "exists"}, (name, definition)
        if set(re.findall(r"\w+", definition.lower())) & _VOLATILE:
            assert name in _VOLATILE, definition


def test_two_threads_that_share_a_handle_read_what_they_asked_for() -> None:
    """A thread that seeks between another one's seek and read does not move it."""
    files, data = QueryFiles(), bytes(range(256))
    with LAKE_FILES.open(files.add(LakeObject("s3://b/k", len(data), lambda start, end: data[start:end]))) as handle:
        handle.seek(10)
        other = threading.Thread(target=lambda: (handle.seek(200), handle.read(3)))
        other.start()
        other.join()
        assert handle.read(4) == data[10:14]
    files.close()


def test_a_file_is_read_only_by_the_query_that_listed_it(session: Session) -> None:
    mine, other = QueryFiles(), QueryFiles()
    data = b"PAR1"
    url = other.add(LakeObject("s3://b/k", len(data), lambda start, end: data[start:end]))
    assert other.token not in url.replace(other.token, "") and mine.token != other.token
    assert LAKE_FILES.exists(url) and not LAKE_FILES.exists(url.replace(other.token, mine.token))
    with pytest.raises(PermissionError):
        LAKE_FILES.open(url, "wb")
    with pytest.raises(PermissionError):
        LAKE_FILES.ls("lake://")
    other.close()
    assert not LAKE_FILES.exists(url)
    mine.close()


def test_sessions_do_not_see_each_other() -> None:
    one, two = Session(MEMORY), Session(MEMORY)
    name = one.register("strandline_mine", pa.table({"a": [1]}))
    assert one._cursor.execute(f"SELECT a FROM {name}").fetchall() == [(1,)]
    with pytest.raises(duckdb.Error, match="does not exist"):
        two._cursor.execute(f"SELECT a FROM {name}")
    one.close()
    two.close()


@pytest.mark.parametrize("text", ["SELECT array_resize('a'::VARIANT, 1)"])
def test_a_defect_of_the_engine_is_the_statements_error(session: Session, text: str) -> None:
    """As a crash of its worker is: a caller who finds one makes no error of ours."""
    with pytest.raises(duckdb.InternalException):
        session._cursor.execute(text)
    with pytest.raises(Invalid, match="fails on this query"):
        session.schema(text, {})
    assert run(session, "SELECT 1 AS one") == [{"one": 1}]


def test_memory_is_bounded_and_nothing_spills(session: Session) -> None:
    small = Session(engine.MIN_MEMORY_BYTES)
    limits = EngineLimits(engine.MIN_MEMORY_BYTES)
    try:
        with pytest.raises(Invalid, match="needs more than 16 MiB"):
            run(small, "SELECT a.i, list(b.i) FROM range(3000) a(i), range(3000) b(i) GROUP BY 1", limits)
        assert run(small, "SELECT 1 AS one", limits) == [{"one": 1}]
        (setting,) = small._cursor.execute("SELECT current_setting('temp_directory')").fetchall()
        assert not setting[0]
    finally:
        small.close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT 1 // (a - 1000000) AS n FROM range(2000000) t(a)", "cannot be run: Division by zero"),
        (  # small rows for the first batch, some that the reader then holds, and others over the limit at once
            "SELECT repeat('x', CASE WHEN a < 100000 THEN 1 WHEN a < 150000 THEN 500 ELSE 1000000 END) AS n "
            "FROM range(200000) t(a)",
            "needs more than 64 MiB",
        ),
    ],
)
def test_an_error_after_the_first_rows_has_its_reason_and_frees_what_it_held(
    session: Session, text: str, reason: str
) -> None:
    limits = EngineLimits(MEMORY)
    batches = session.run(text, {}, session.schema(text, {}), time.monotonic() + limits.seconds, limits)
    assert next(batches).num_rows
    with pytest.raises(Invalid, match=reason) as caught:
        list(batches)
    assert caught.value.__traceback__ is not None  # the error is still held, and with it the frames that raised it
    assert used_memory() < 8 << 20


def test_rows_that_nobody_reads_on_hold_no_memory(session: Session) -> None:
    text, limits = "SELECT repeat('x', (a / 10)::INT) AS n FROM range(200000) t(a)", EngineLimits(MEMORY)
    batches = session.run(text, {}, session.schema(text, {}), time.monotonic() + limits.seconds, limits)
    assert next(batches).num_rows
    assert used_memory() > 8 << 20  # what the engine has made ahead of the reader
    batches.close()  # type: ignore[attr-defined]
    assert used_memory() < 8 << 20


def test_an_error_of_ours_frees_what_the_engine_held(session: Session) -> None:
    """While somebody holds the error, as a log does, its frames live, and with them the engine's reader."""
    text, limits = "SELECT repeat('x', (a / 10)::INT) AS n FROM range(200000) t(a)", EngineLimits(MEMORY)
    other = pa.schema([("n", pa.int64())])
    with pytest.raises(Internal, match="returned column n as string but planned int64") as caught:
        next(session.run(text, {}, other, time.monotonic() + limits.seconds, limits))
    assert caught.value.__traceback__ is not None
    assert used_memory() < 8 << 20


def used_memory() -> int:
    """What the engine holds, asked in a session of its own: another statement in a session ends the one before."""
    asking = Session(MEMORY)
    try:
        (used,) = asking._cursor.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
        return int(used[0])
    finally:
        asking.close()


def test_a_running_statement_is_interrupted(session: Session) -> None:
    endless = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(Invalid, match=r"longer than its 0\.2 s"):
        run(session, endless, EngineLimits(MEMORY, 0.2))
    assert run(session, "SELECT 1 AS one") == [{"one": 1}]
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)
