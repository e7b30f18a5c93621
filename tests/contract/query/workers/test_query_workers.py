"""Queries in workers: the same answers and errors as in this process; what a statement does to its worker, it does to
that one alone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import query_workers
from catalog.access import Caller, Level, Role
from catalog.core.errors import Invalid, LakeError, NotFound, Unavailable
from catalog.lake import Lake
from catalog.query import Answer, EngineLimits, QueryWorkers, WorkerLimits
from infra.local.server import ApiServer
from tests.waiting import wait_until
from tests.worlds.lake import lake_on, sequence

TABLE = "tides.levels"
MEMORY = 640 << 20
ROWS = [{"id": number, "station": f"s{number}", "metres": number / 2} for number in range(5)]
LONG = EngineLimits(1 << 30, 120.0)


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as lake:
        lake.tables.create(TABLE, {"id": "long", "station": "string", "metres": "double"})
        lake.tables.insert(TABLE, ROWS)
        sequence(lake, TABLE)
        yield lake


@pytest.fixture(scope="module")
def workers(lake: Lake) -> Iterator[QueryWorkers]:
    workers = query_workers(lake.settings, limits=WorkerLimits(MEMORY, result_bytes=16 << 20))
    yield workers
    workers.close()


def ask(workers: QueryWorkers, sql: str, **options: Any) -> Answer:
    answer = workers.ask(sql, **{"limits": LONG, **options})
    assert isinstance(answer, Answer)
    return answer


def outcome(call: Any) -> Any:
    try:
        answer = call()
        receipt = {key: value for key, value in answer.receipt.as_dict().items() if key not in ("requests", "bytes")}
        return answer.schema, answer.table().to_pylist(), receipt, answer.explanation.route
    except LakeError as error:
        return type(error), error.as_dict()


SAME: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": (f"SELECT * FROM {TABLE} ORDER BY id", {}),
    "no rows": (f"SELECT id FROM {TABLE} WHERE id > 99", {}),
    "parameters by name": (f"SELECT $a AS a, $b AS b FROM {TABLE} LIMIT 1", {"parameters": {"a": 1, "b": "x"}}),
    "parameters by number": ("SELECT $1 AS a", {"parameters": [2.5]}),
    "metadata": (f"SELECT count(*) AS n FROM {TABLE}", {}),
    "as of": (f"SELECT id FROM {TABLE} ORDER BY id", {"as_of": 0}),
    "fresh": (f"SELECT max(id) AS n FROM {TABLE}", {"fresh": True}),
    "verified": (f"SELECT sum(id) AS n FROM {TABLE}", {"verify": True}),
    "explained": (f"EXPLAIN ROUTE SELECT id FROM {TABLE}", {}),
    "nested": ("SELECT [1, 2] AS list, {'a': 1} AS struct, NULL AS nothing, DATE '2026-03-01' AS day", {}),
    "dictionary": ("SELECT 'x'::ENUM('x', 'y') AS d", {}),
    "a caller who may": (f"SELECT count(id) AS n FROM {TABLE}", {"caller": Caller("a", (Role(Level.READ, TABLE),))}),
    "a caller who may not": (f"SELECT id FROM {TABLE}", {"caller": Caller("a", (Role(Level.READ, "other.*"),))}),
    "no such table": ("SELECT * FROM tides.nothing", {}),
    "no such column": (f"SELECT metre FROM {TABLE}", {}),
    "not SQL": ("SELEC 1", {}),
    "while it runs": (f"SELECT 1 // (id - 4) AS n FROM {TABLE}", {}),
    "an error with a subject": ("SELECT * FROM read_csv('/etc/passwd')", {}),
    "too many for it": (f"SELECT * FROM {TABLE}", {"limits": EngineLimits(64), "engine": "lambda"}),
    "no such point": (f"SELECT 1 FROM {TABLE}", {"as_of": "yesterday?"}),
    "not a point": (f"SELECT 1 FROM {TABLE}", {"as_of": -5}),
}


@pytest.mark.parametrize("name", SAME)
def test_the_outcome_is_that_of_this_process(lake: Lake, workers: QueryWorkers, name: str) -> None:
    sql, options = SAME[name]
    theirs = outcome(lambda: workers.ask(sql, **{"limits": LONG, **options}))
    ours = outcome(lambda: lake.queries.ask(sql, **{"limits": LONG, **options}))
    if name == "no such point":
        assert theirs[0] is ours[0] is NotFound
    assert theirs == ours


def test_a_worker_sees_no_less_than_its_supervisor_has(lake: Lake, workers: QueryWorkers) -> None:
    ask(workers, f"SELECT count(*) FROM {TABLE}")  # opens the worker's reader, which polls once a second
    lake.tables.create("tides.later", {"id": "long"})
    lake.tables.insert("tides.later", [{"id": 1}])
    seen = sequence(lake, "tides.later") + 1
    assert ask(workers, "SELECT id FROM tides.later", seen_size=seen).table().to_pylist() == [{"id": 1}]
    with pytest.raises(Unavailable, match=f"not reached size {seen + 9}"):
        ask(workers, "SELECT 1", seen_size=seen + 9)


def test_a_warm_worker_is_kept_with_its_cache(workers: QueryWorkers) -> None:
    before = ask(workers, f"SELECT station FROM {TABLE} WHERE id = 3"), workers.pids()
    again = ask(workers, f"SELECT station FROM {TABLE} WHERE id = 3")
    assert again.receipt.cached and not before[0].receipt.cached
    assert workers.pids() == before[1] and len(before[1]) == 1


OUT_OF_MEMORY = {
    "a long text": "SELECT length(repeat('x', 1500000000))",
    "many texts": "SELECT length(repeat('x', 1000000000)), length(repeat('y', 1000000000))",
    "a long array": "SELECT len(range(300000000))",
    "a resized array": "SELECT len(list_resize([1], 500000000, 1))",
    "of rows": "SELECT sum(length(repeat('x', 20000000 + a))) FROM generate_series(1, 100) AS t(a)",
}


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_a_query_over_the_memory_limit_is_refused_and_the_next_is_answered(workers: QueryWorkers, name: str) -> None:
    """The engine counts its memory, and refuses first; what it does not count ends the worker, with the same reason."""
    ask(workers, "SELECT 1")
    with pytest.raises(Invalid, match=r"needs more than (its )?[0-9]+ MiB"):
        ask(workers, OUT_OF_MEMORY[name])
    assert ask(workers, "SELECT 7 AS n").table().to_pylist() == [{"n": 7}]


TOO_LONG = {
    "while it is planned": "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))",
    "while it runs": "SELECT count(*) FROM generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y) "
    "WHERE x < y",
}
DOUBLING = (
    "WITH c0 AS (SELECT 1 AS x)"
    + "".join(f", c{n + 1} AS (SELECT a.x FROM c{n} a, c{n} b)" for n in range(30))
    + " SELECT * FROM c30"
)


@pytest.mark.parametrize("name", TOO_LONG)
def test_a_query_past_its_deadline_is_killed(workers: QueryWorkers, name: str) -> None:
    ask(workers, "SELECT 1")
    (before,) = workers.pids()
    with pytest.raises(Invalid, match=r"took longer than its 1 s"):
        ask(workers, TOO_LONG[name], limits=EngineLimits(1 << 30, 1.0))
    assert not Path(f"/proc/{before}").exists()
    assert ask(workers, "SELECT 8 AS n").table().to_pylist() == [{"n": 8}]


def test_a_common_table_is_planned_once_however_often_it_is_named(workers: QueryWorkers) -> None:
    assert ask(workers, DOUBLING).table().to_pylist() == [{"x": 1}]


def test_a_result_larger_than_the_limit_is_refused_and_the_worker_stays(workers: QueryWorkers) -> None:
    ask(workers, "SELECT 1")
    before = workers.pids()
    with pytest.raises(Invalid, match="the result has more than 16 MiB"):
        ask(workers, "SELECT a FROM generate_series(1, 5000000) AS t(a)")
    assert ask(workers, "SELECT 9 AS n").table().to_pylist() == [{"n": 9}]
    assert workers.pids() == before


@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL])
def test_a_worker_that_crashes_is_the_statements_error_and_is_replaced(
    workers: QueryWorkers, end: signal.Signals
) -> None:
    ask(workers, "SELECT 1")
    (pid,) = workers.pids()
    raised: list[LakeError] = []

    def run() -> None:
        try:
            ask(workers, TOO_LONG["while it runs"])
        except LakeError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: _is_running(pid), "the query to run")
    os.kill(pid, end)
    thread.join()
    assert isinstance(raised[0], Invalid) and end.name in raised[0].message
    assert ask(workers, "SELECT 10 AS n").table().to_pylist() == [{"n": 10}]


def _is_running(pid: int) -> bool:
    """Whether the process has used processor time for the query, by its count of clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks > _TICKS.setdefault(pid, ticks) + 20


_TICKS: dict[int, int] = {}


def test_a_worker_that_died_between_queries_is_nobodys_error(workers: QueryWorkers) -> None:
    ask(workers, "SELECT 1")
    (pid,) = workers.pids()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: workers.pids() != [pid], "the worker to end")
    assert ask(workers, "SELECT 11 AS n").table().to_pylist() == [{"n": 11}]


def test_closing_ends_a_query_that_runs(lake: Lake) -> None:
    workers = query_workers(lake.settings, limits=WorkerLimits(MEMORY, 1 << 20))
    ask(workers, "SELECT 1")
    (pid,) = workers.pids()
    raised: list[LakeError] = []

    def run() -> None:
        try:
            ask(workers, TOO_LONG["while it runs"])
        except LakeError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: _is_running(pid), "the query to run")
    workers.close()
    thread.join()
    assert raised and not Path(f"/proc/{pid}").exists()
    with pytest.raises(Unavailable, match="closed"):
        workers.ask("SELECT 1")


def test_a_worker_can_write_no_file_and_knows_no_more_than_it_needs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001")
    monkeypatch.setenv("A_SECRET_OF_THE_SUPERVISOR", "x")
    workers = query_workers(lake.settings, limits=WorkerLimits(MEMORY, 1 << 20))
    try:
        ask(workers, "SELECT 1")
        (pid,) = workers.pids()
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
        limits = {line[:26].strip(): line[26:].split() for line in lines}
        variables = {entry.partition("=")[0] for entry in Path(f"/proc/{pid}/environ").read_text().split("\0")}
    finally:
        workers.close()
    assert limits["Max data size"][:2] == [str(MEMORY)] * 2
    assert limits["Max file size"][:2] == limits["Max core file size"][:2] == ["0", "0"]
    assert limits["Max cpu time"][0] != "unlimited"
    assert {"AWS_LAMBDA_RUNTIME_API", "A_SECRET_OF_THE_SUPERVISOR", "STRANDLINE_SIGNER"}.isdisjoint(variables)


def test_a_worker_that_cannot_start_is_unavailable(lake: Lake) -> None:
    workers = query_workers(lake.settings, limits=WorkerLimits(32 << 20, 1 << 20))
    with pytest.raises(Unavailable, match="did not start"):
        workers.ask("SELECT 1", limits=LONG)
    workers.close()
    with pytest.raises(Invalid, match="not JSON values"):
        query_workers(lake.settings).ask("SELECT $a", parameters={"a": object()})
