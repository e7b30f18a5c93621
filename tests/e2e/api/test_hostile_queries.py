"""Statements that exhaust memory, time or the stack: each caller gets a reason, everybody else gets answers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import Api, problem
from tests.worlds.hostile_statements import TOO_LARGE

MEMORY = "needs more than (its )?[0-9]+ MiB"
DEADLINE = "took longer than its 25 s"
EXHAUSTING = {
    "a long text": ("SELECT length(repeat('x', 1500000000))", MEMORY),
    "two long texts": ("SELECT length(repeat('x', 1000000000)), length(repeat('y', 1000000000))", MEMORY),
    "a long array": ("SELECT len(range(300000000))", MEMORY),
    "a resized array": ("SELECT len(list_resize([1], 500000000, 1))", MEMORY),
    "texts of rows": ("SELECT string_agg(repeat('x', 1000), '') FROM generate_series(1, 3000000) AS t(a)", MEMORY),
    "a large result": ("SELECT a FROM generate_series(1, 30000000) AS t(a)", "the result has more than [0-9]+ MiB"),
    "planning": ("SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))", DEADLINE),
    "a cross join": (
        "SELECT count(*) FROM generate_series(1, 1000000) a(x), generate_series(1, 1000000) b(y) WHERE x < y",
        DEADLINE,
    ),
}
MAX_TEXT = 100_000  # of the API's own limit
LARGE = {name: case for name, case in TOO_LARGE.items() if len(case[0]) <= MAX_TEXT and name != "lone surrogate"}


@pytest.fixture(scope="module")
def nobody(cloud: EmbeddedCloud, calling: Callable[..., Api]) -> Api:
    """A caller without any role: what it cannot read it can still compute."""
    return calling(cloud.token("reader:nothing.here"))


def good(api: Api) -> None:
    assert api.get("/health").status_code == 200
    answer = api.post("/query", {"sql": "SELECT 40 + 2 AS n"})
    assert answer.status_code == 200 and answer.json()["rows"] == [{"n": 42}], answer.text


@pytest.mark.parametrize("name", EXHAUSTING)
def test_a_statement_that_exhausts_its_worker_is_refused_and_nobody_else_is(nobody: Api, api: Api, name: str) -> None:
    sql, reason = EXHAUSTING[name]
    answer = nobody.post("/query", {"sql": sql})
    assert problem(answer) == (400, "invalid"), answer.text
    assert re.search(reason, answer.json()["detail"]), answer.text
    good(api)


def test_others_are_served_while_one_query_runs_to_its_deadline(nobody: Api, api: Api) -> None:
    sql, _ = EXHAUSTING["a cross join"]
    thread = threading.Thread(target=lambda: nobody.post("/query", {"sql": sql}))
    thread.start()
    good(api)
    assert thread.is_alive()
    thread.join()
    good(api)


def test_statements_that_are_too_large_are_refused_by_their_limit(nobody: Api, api: Api) -> None:
    for name, (sql, reason) in LARGE.items():
        answer = nobody.post("/query", {"sql": sql})
        assert problem(answer) == (400, "invalid"), (name, answer.text)
        assert re.search(reason, answer.json()["detail"]), (name, answer.text)
    good(api)
