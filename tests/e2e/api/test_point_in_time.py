"""One spelling of a point in time gives the same rows through every command, route and SQL clause."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from typer.testing import CliRunner

from catalog.core.errors import Invalid
from catalog.lake import Lake
from cli.main import app
from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import ROWS, Api, problem
from tests.waiting import wait_until

TABLE = "silver.travelled"
SQL = f"select station, metres from {TABLE}"


def exported(lake: Lake, api: Api, at: str) -> Any:
    said = CliRunner().invoke(app, ["export", TABLE, "-", "--format", "jsonl", "--as-of", at])
    return said.exception or [json.loads(line) for line in said.stdout.splitlines()]


def queried(lake: Lake, api: Api, at: str) -> Any:
    said = CliRunner().invoke(app, ["-o", "json", "query", SQL, "--as-of", at])
    return said.exception or json.loads(said.stdout)["rows"]


def by_clause(lake: Lake, api: Api, at: str) -> Any:
    return lake.queries.run(f"{SQL} VERSION AS OF '{at}'").table().to_pylist()


def read_rows(lake: Lake, api: Api, at: str) -> Any:
    return api.get(f"/tables/{TABLE}/rows?as_of={quote(at)}").json().get("rows")


def posted(lake: Lake, api: Api, at: str) -> Any:
    return api.post("/query", {"sql": SQL, "as_of": at}).json().get("rows")


OF_A_TABLE: list[Callable[[Lake, Api, str], Any]] = [exported, by_clause, read_rows]
OF_A_QUERY: list[Callable[[Lake, Api, str], Any]] = [queried, posted]


def test_every_way_reads_the_same_spelling_alike(api: Api, cloud: EmbeddedCloud, lake: Lake) -> None:
    api.make(TABLE)
    first = api.post(f"/tables/{TABLE}/rows", {"rows": ROWS[:1]}).json()["snapshot_id"]
    assert api.post("/snapshots", {"name": "travelled-tag", "table": TABLE}).status_code == 201
    cloud.wait_until_idle()
    commit = api.get_when_ready(f"/commits/snapshot-{first}").json()
    index = commit["index"]
    assert api.post("/snapshots", {"name": "travelled-cut", "index": index}).status_code == 202
    api.post(f"/tables/{TABLE}/rows", {"rows": ROWS[1:]})
    cloud.wait_until_idle()
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(commit["sequenced_ms"]))
    everywhere = [str(index), time.isoformat(), time.isoformat().replace("+00:00", "Z"), "travelled-cut"]
    wait_until(
        lambda: lake.tables.find_snapshot(TABLE, "travelled-cut").snapshot_id == int(first),
        "the cut to name the first snapshot",
    )
    api.get_when_ready("/snapshots?name=travelled-cut")
    for at in everywhere:
        for read in OF_A_TABLE + OF_A_QUERY:
            assert read(lake, api, at) == ROWS[:1], (read.__name__, at)
    for at in ("travelled-tag", f"snapshot:{first}"):
        for read in OF_A_TABLE:
            assert read(lake, api, at) == ROWS[:1], (read.__name__, at)
        refused = queried(lake, api, at)
        assert isinstance(refused, Invalid) and f"AS OF '{at}'" in refused.message, at
        assert problem(api.post("/query", {"sql": SQL, "as_of": at})) == (400, "invalid")
    for at in (str(first), f"@{index}", str(commit["sequenced_ms"]), "2026-03-01T12:00"):
        assert isinstance(exported(lake, api, at), Invalid) and isinstance(queried(lake, api, at), Invalid), at
        assert problem(api.get(f"/tables/{TABLE}/rows?as_of={quote(at)}")) == (400, "invalid"), at
        assert problem(api.post("/query", {"sql": SQL, "as_of": at})) == (400, "invalid"), at


def test_a_name_of_two_states_is_refused_and_none_is_given_that_reads_as_something_else(
    api: Api, cloud: EmbeddedCloud, lake: Lake
) -> None:
    table = api.make("silver.ambiguous")
    first = api.post(f"/tables/{table}/rows", {"rows": ROWS[:1]}).json()["snapshot_id"]
    cloud.wait_until_idle()
    index = api.get_when_ready(f"/commits/snapshot-{first}").json()["index"]
    assert api.post("/snapshots", {"name": "twice", "index": index}).status_code == 202
    api.post(f"/tables/{table}/rows", {"rows": ROWS[1:]})
    assert api.post("/snapshots", {"name": "twice", "table": table}).status_code == 201
    cloud.wait_until_idle()
    wait_until(lambda: lake.timeline.named("twice") == index, "the name in the timeline")
    api.get_when_ready("/snapshots?name=twice")
    assert problem(api.get(f"/tables/{table}/rows?as_of=twice")) == (400, "invalid")
    for sql, options in ((f"select 1 from {table} as of 'twice'", {}), (f"select 1 from {table}", {"as_of": "twice"})):
        assert problem(api.post("/query", {"sql": sql, **options})) == (400, "invalid"), sql
    assert problem(api.get(f"/tables/{table}/changes?since=twice")) == (400, "invalid")
    for name in ("42", "2026-03-01", "2026-03"):
        assert problem(api.post("/snapshots", {"name": name, "table": table})) == (400, "invalid")
        assert problem(api.post("/snapshots", {"name": name, "index": index})) == (400, "invalid")
