"""A keyed request is done once and answered as the first time, wherever the function died the time before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tests.worlds.api import Died, Function, When
from tests.worlds.lake import running_lake

COLUMNS = {"station": "string", "metres": "double"}
ROWS = {"rows": [{"station": "Brest", "metres": 4.2}, {"station": "Newlyn", "metres": 3.1}]}


@pytest.fixture(scope="module")
def api() -> Iterator[Function]:
    with running_lake() as lake:
        function = Function(lake)
        yield function
        function.restart()


def made(api: Function, *, rows: bool = True) -> str:
    name = f"silver.t{uuid4().hex[:10]}"
    assert api("POST", "/tables", {"name": name, "columns": COLUMNS, "key": ["station"]}).status == 201
    if rows:
        assert api("POST", f"/tables/{name}/rows", ROWS).status == 200
    return name


@dataclass
class Case:
    """A request about a table, what others do before it is sent again, and what must hold when it was done once."""

    method: str
    path: str
    status: int
    body: Any = None
    query: str = ""
    there: bool = True
    meanwhile: Callable[[Function, str], object] = lambda api, table: None
    done: Callable[[Function, str], bool] = lambda api, table: True


def stations(api: Function, table: str) -> list[str]:
    rows = api("GET", f"/tables/{table}/rows").body["rows"]
    return sorted(row["station"] for row in rows)


def others(api: Function, table: str) -> list[str]:
    """Without the row that is inserted before the request is sent again."""
    return [name for name in stations(api, table) if not name.startswith("Dover")]


def columns(api: Function, table: str) -> list[str]:
    return [one["name"] for one in api("GET", f"/tables/{table}").body["columns"]]


def insert_dover(api: Function, table: str) -> None:
    assert api("POST", f"/tables/{table}/rows", {"rows": [{"station": "Dover", "metres": 1.0}]}).status == 200


def named(api: Function, table: str) -> dict[str, str]:
    return dict(api("GET", f"/tables/{table}").body["snapshot_names"])


def statement(sql: str, done: Callable[[Function, str], bool]) -> Case:
    """Others insert into the table that it reads before it is sent again, unless it changed the table's columns."""
    meanwhile = insert_dover if "ALTER" not in sql else lambda api, table: None
    return Case("POST", "/statements", 200, {"sql": sql}, meanwhile=meanwhile, done=done)


CASES = {
    "create": Case(
        "POST", "/tables", 201, {"name": "{t}", "columns": COLUMNS}, there=False,
        done=lambda api, t: columns(api, t) == ["station", "metres"],
    ),
    "alter": Case(
        "PATCH", "/tables/{t}", 200, {"add": {"sea": "string"}, "rename": {"metres": "height"}},
        done=lambda api, t: columns(api, t) == ["station", "height", "sea"],
    ),
    "alter, then others": Case(
        "PATCH", "/tables/{t}", 200, {"add": {"sea": "string"}},
        meanwhile=lambda api, t: api("PATCH", f"/tables/{t}", {"add": {"gauge": "long"}}, key=uuid4().hex),
        done=lambda api, t: sorted(columns(api, t)) == ["gauge", "metres", "sea", "station"],
    ),
    "drop": Case("DELETE", "/tables/{t}", 204, done=lambda api, t: api("GET", f"/tables/{t}").status == 404),
    "purge": Case(
        "DELETE", "/tables/{t}", 204, query="purge=true",
        done=lambda api, t: not api.lake.s3.list_objects_v2(
            Bucket=api.lake.settings.bucket, Prefix=f"tables/{t.replace('.', '.db/')}/"
        ).get("Contents"),
    ),
    "insert": Case(
        "POST", "/tables/{t}/rows", 200, {"rows": [{"station": "Leith", "metres": 5.5}]},
        done=lambda api, t: stations(api, t) == ["Brest", "Leith", "Newlyn"],
    ),
    "upsert": Case(
        "POST", "/tables/{t}/rows", 200, {"rows": [{"station": "Leith", "metres": 5.5}]}, query="mode=upsert",
        done=lambda api, t: stations(api, t) == ["Brest", "Leith", "Newlyn"],
    ),
    "delete": Case(
        "POST", "/tables/{t}/delete", 200, {"where": "metres < 4"},
        meanwhile=insert_dover,
        done=lambda api, t: api("GET", f"/tables/{t}").body["snapshots"] == 3,  # the rows, the deletion, Dover
    ),
    "SQL insert": statement(
        "INSERT INTO {t} SELECT station || '!', metres FROM {t} WHERE metres > 4",
        done=lambda api, t: [name for name in stations(api, t) if "!" in name] == ["Brest!"],
    ),
    "SQL update": statement(
        "UPDATE {t} SET metres = metres + 1, station = station || '+'",
        done=lambda api, t: others(api, t) == ["Brest+", "Newlyn+"],
    ),
    "SQL delete": statement(
        "DELETE FROM {t} WHERE metres < 4 AND station <> 'Dover'",
        done=lambda api, t: others(api, t) == ["Brest"],
    ),
    "SQL merge": statement(
        "MERGE INTO {t} t USING (SELECT 'Leith' AS station, 1.5 AS metres) s ON t.station = s.station AND t.metres > 9"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.station, s.metres)",
        done=lambda api, t: stations(api, t).count("Leith") == 1,
    ),
    "SQL transaction": statement(
        "BEGIN; INSERT INTO {t} VALUES ('Ayr', 1); DELETE FROM {t}_log WHERE station = 'x'; COMMIT",
        done=lambda api, t: stations(api, t).count("Ayr") == 1,
    ),
    "SQL create": statement(
        "CREATE TABLE {t}_copy AS SELECT * FROM {t}",
        done=lambda api, t: others(api, f"{t}_copy") == ["Brest", "Newlyn"],
    ),
    "SQL alter": statement(
        "ALTER TABLE {t} RENAME COLUMN metres TO height",
        done=lambda api, t: columns(api, t) == ["station", "height"],
    ),
    "SQL drop": statement("DROP TABLE {t}_log", done=lambda api, t: api("GET", f"/tables/{t}_log").status == 404),
    "name": Case(
        "POST", "/snapshots", 201, {"name": "monday", "table": "{t}"},
        meanwhile=insert_dover,
        done=lambda api, t: list(named(api, t)) == ["monday"],
    ),
    "set a rule": Case("PUT", "/tables/{t}/rule", 200, {"key": ["station"]}),
    "remove a rule": Case("DELETE", "/tables/{t}/rule", 204),
}  # fmt: skip


def filled(value: Any, table: str) -> Any:
    if isinstance(value, dict):
        return {key: filled(one, table) for key, one in value.items()}
    return value.replace("{t}", table) if isinstance(value, str) else value


def prepared(api: Function, case: Case, kind: str) -> str:
    table = made(api) if case.there else f"silver.t{uuid4().hex[:10]}"
    if "_log" in str(case.body):
        assert api("POST", "/tables", {"name": f"{table}_log", "columns": COLUMNS}).status == 201
    if kind == "remove a rule":
        assert api("PUT", f"/tables/{table}/rule", {"key": ["station"]}).status == 200
    return table


def writing_steps(api: Function, case: Case, kind: str) -> list[int]:
    """The numbers of its requests that change something: to die around a read is to die around the write next to it."""
    table = prepared(api, case, kind)
    with api.dying(1000, "before") as made:
        answer = api(case.method, filled(case.path, table), filled(case.body, table), key=uuid4().hex)
        assert answer.status == case.status, answer.body
    steps = [number for number, name in enumerate(made) if not name.startswith(("Get", "Head", "List", "Query"))]
    assert len(steps) > 2, made
    return steps


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", CASES)
def test_a_request_that_died_at_any_step_is_answered_as_the_first_would_be(
    api: Function, kind: str, when: When
) -> None:
    case = CASES[kind]
    for step in range(60) if not kind.startswith("SQL") else writing_steps(api, case, kind):
        table, key = prepared(api, case, kind), uuid4().hex
        asked = (case.method, filled(case.path, table), filled(case.body, table))
        died = False
        with api.dying(step, when):
            try:
                api(*asked, key=key, query=case.query)
            except Died:
                died = True
        case.meanwhile(api, table)
        again = api(*asked, key=key, query=case.query)
        assert again.status == case.status, (step, again.body)
        assert case.done(api, table), step
        third = api(*asked, key=key, query=case.query)
        assert (third.status, case.done(api, table)) == (case.status, True), step
        if not died:
            return
    assert kind.startswith("SQL"), "it never got to its end"


def test_a_table_that_was_there_before_is_a_conflict_with_a_key_too(api: Function) -> None:
    table = made(api)
    for _ in range(2):
        assert api("POST", "/tables", {"name": table, "columns": COLUMNS}, key="taken").status == 409


def test_a_drop_of_nothing_is_not_found_however_often_it_is_sent(api: Function) -> None:
    for _ in range(2):
        assert api("DELETE", "/tables/silver.never", key="never").status == 404


def test_a_drop_that_is_sent_again_spares_a_table_made_anew(api: Function) -> None:
    table = made(api)
    for step in range(60):
        with api.dying(step, "after") as requests:
            try:
                api("DELETE", f"/tables/{table}", key="anew")
            except Died:
                pass
        if api("GET", f"/tables/{table}").status == 404:
            break
        api.restart()
    assert "DeleteTable" in requests
    assert api("POST", "/tables", {"name": table, "columns": COLUMNS}).status == 201
    assert api("DELETE", f"/tables/{table}", key="anew").status == 204
    assert api("GET", f"/tables/{table}").status == 200


def test_a_key_is_remembered_by_a_table_whose_snapshots_expired(api: Function) -> None:
    table, key = made(api, rows=False), uuid4().hex
    first = api("POST", f"/tables/{table}/rows", ROWS, key=key).body
    insert_dover(api, table)
    api.lake.sequencer.catch_up([table])
    assert api.lake.tables.expire(table, older_than=2**60).snapshots
    again = api("POST", f"/tables/{table}/rows", ROWS, key=key).body
    assert (again["replayed"], again["snapshot_id"]) == (True, first["snapshot_id"])
    assert stations(api, table) == ["Brest", "Dover", "Newlyn"]


def test_a_key_stands_for_the_query_string_too(api: Function) -> None:
    table = made(api)
    assert api("POST", f"/tables/{table}/rows", ROWS, key="q", query="mode=upsert").status == 200
    assert api("POST", f"/tables/{table}/rows", ROWS, key="q", query="mode=insert").status == 409


def test_a_key_is_free_again_after_a_week(api: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(api, rows=False)
    path, monday = f"/tables/{table}/rows", {"rows": [{"station": "Brest", "metres": 1.0}]}
    next_monday = {"rows": [{"station": "Dover", "metres": 2.0}]}
    assert api("POST", path, monday, key="monday").status == 200
    from catalog.access import idempotency

    now = idempotency.now_ms()
    monkeypatch.setattr(idempotency, "now_ms", lambda: now + 6 * 86_400_000)
    assert api("POST", path, next_monday, key="monday").status == 409
    monkeypatch.setattr(idempotency, "now_ms", lambda: now + 8 * 86_400_000)
    assert api("POST", path, next_monday, key="monday").body["replayed"] is False
    assert stations(api, table) == ["Brest", "Dover"]
