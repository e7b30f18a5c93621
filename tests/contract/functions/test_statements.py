"""POST /statements: what a statement did, to whom it is allowed, and that the API refuses what the command refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from catalog.core.errors import LakeError
from catalog.query import Writes
from tests.worlds.api import Function
from tests.worlds.lake import running_lake


@pytest.fixture(scope="module")
def api() -> Iterator[Function]:
    with running_lake() as lake:
        function = Function(lake)
        yield function
        function.restart()


@pytest.fixture
def table(api: Function) -> str:
    name = f"silver.t{uuid4().hex[:10]}"
    run(api, f"CREATE TABLE {name} (station VARCHAR, metres DOUBLE)")
    run(api, f"INSERT INTO {name} VALUES ('Brest', 4.2), ('Newlyn', 3.1)")
    return name


def run(api: Function, sql: str, **more: Any) -> list[dict[str, Any]]:
    answer = api("POST", "/statements", {"sql": sql, **more})
    assert answer.status == 200, answer.body
    return list(answer.body["statements"])


def rows(api: Function, table: str) -> list[tuple[str, float]]:
    shown = api("GET", f"/tables/{table}/rows").body["rows"]
    return sorted((row["station"], row["metres"]) for row in shown)


def test_a_statement_is_answered_with_what_it_did(api: Function, table: str) -> None:
    (done,) = run(api, f"UPDATE {table} SET metres = $new WHERE station = 'Brest'", parameters={"new": 5.0})
    assert done == {"statement": "UPDATE", "table": table, "rows": 1, "snapshot_id": done["snapshot_id"]}
    assert done["snapshot_id"] == api("GET", f"/tables/{table}").body["snapshot_id"]
    assert rows(api, table) == [("Brest", 5.0), ("Newlyn", 3.1)]
    source = "(VALUES ('Brest', 1.0), ('Leith', 2.0)) s(station, metres)"
    merged = run(
        api,
        f"MERGE INTO {table} t USING {source} ON t.station = s.station WHEN MATCHED THEN UPDATE SET metres = s.metres"
        " WHEN NOT MATCHED THEN INSERT VALUES (s.station, s.metres)",
    )
    assert [(one["statement"], one["rows"]) for one in merged] == [("MERGE", 2)]
    assert rows(api, table) == [("Brest", 1.0), ("Leith", 2.0), ("Newlyn", 3.1)]
    both = run(
        api, f"BEGIN; DELETE FROM {table} WHERE station = 'Leith'; INSERT INTO {table} VALUES ('Ayr', 0); COMMIT"
    )
    assert [(one["statement"], one["rows"]) for one in both] == [("DELETE", 1), ("INSERT", 1)]
    (nothing,) = run(api, f"DELETE FROM {table} WHERE false")
    assert nothing["rows"] == 0


def test_roles_are_checked_for_each_table(api: Function, table: str) -> None:
    other = f"{table}_other"
    run(api, f"CREATE TABLE {other} AS SELECT * FROM {table}")
    writer = {"roles": [f"strandline:writer:{table}"]}
    insert = {"sql": f"INSERT INTO {table} SELECT * FROM {other}"}
    assert api("POST", "/statements", insert, **writer).status == 404, "it may not know of the other table"
    writer["roles"].append(f"strandline:reader:{other}")
    assert api("POST", "/statements", insert, **writer).status == 200
    in_one = {"sql": f"BEGIN; {insert['sql']}; COMMIT"}
    assert api("POST", "/statements", in_one, **writer).status == 403, "a transaction holds what it reads"
    for sql in (f"DELETE FROM {other}", f"DROP TABLE {table}", f"ALTER TABLE {table} ADD COLUMN x BIGINT"):
        assert api("POST", "/statements", {"sql": sql}, **writer).status == 403, sql
    assert api("POST", "/statements", insert, roles=[]).status in (403, 404)
    assert api("POST", "/statements", insert, anonymous=True).status == 401
    assert len(rows(api, other)) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1", "INSERT INTO {0} VALUES (1)", "UPDATE {0} SET absent = 1", "DELETE FROM {0} WHERE", "COMMIT",
        "INSERT INTO {0} (metres) VALUES ('x')", "INSERT INTO silver.absent VALUES (1)", "DROP TABLE silver.absent",
        "CREATE TABLE {0} (id BIGINT)", "MERGE INTO {0} USING {0} s ON true WHEN MATCHED THEN DELETE",
        "INSERT INTO {0} SELECT * FROM read_csv('/etc/passwd')", "TRUNCATE {0}", "CREATE VIEW {0}v AS SELECT 1",
        "BEGIN; INSERT INTO {0} VALUES ('a', 1)", "INSERT INTO {0} VALUES ($missing, 1)",
    ],
)  # fmt: skip
def test_what_the_command_refuses_the_api_refuses_with_the_same_words(api: Function, table: str, sql: str) -> None:
    """`strandline query` runs the same code in its own process, without a caller."""
    with pytest.raises(LakeError) as caught:
        Writes(api.lake.tables, api.lake.queries.ask).run(sql.format(table))
    answer = api("POST", "/statements", {"sql": sql.format(table)})
    assert answer.body["detail"] == caught.value.message
    assert answer.status in (400, 404, 409)
    assert rows(api, table) == [("Brest", 4.2), ("Newlyn", 3.1)]


def test_a_key_is_for_one_statement(api: Function, table: str) -> None:
    first, second = ({"sql": f"INSERT INTO {table} VALUES ('{name}', 1)"} for name in ("Ayr", "Oban"))
    done = api("POST", "/statements", first, key="k1")
    again = api("POST", "/statements", first, key="k1")
    assert (again.status, again.body) == (200, done.body) and again.headers["Idempotency-Replayed"] == "true"
    assert api("POST", "/statements", second, key="k1").status == 409
    assert [name for name, _ in rows(api, table)] == ["Ayr", "Brest", "Newlyn"]
    # A statement that failed did nothing, and may be sent again when the reason is gone.
    late = {"sql": f"INSERT INTO {table}_late VALUES (1)"}
    assert api("POST", "/statements", late, key="k2").status == 404
    run(api, f"CREATE TABLE {table}_late (id BIGINT)")
    assert api("POST", "/statements", late, key="k2").status == 200


def test_a_query_that_writes_is_told_where_to_send_it(api: Function, table: str) -> None:
    answer = api("POST", "/query", {"sql": f"DELETE FROM {table}"})
    assert answer.status == 400 and "POST /statements" in answer.body["detail"]
    assert len(rows(api, table)) == 2
