"""Tables and their rows over HTTP, through the deployed API."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.api.caller import ARROW, COLUMNS, PARQUET, ROWS, Api, problem
from tests.worlds.forged_arrow import PARQUET_BOMBS, forged_streams, stream_bombs


class TestTables:
    def test_a_table_is_made_described_changed_and_dropped(self, api: Api) -> None:
        table = api.make("bronze.life", key=["station"], mode="mor", sort=["metres desc"])
        described = api.get(f"/tables/{table}").json()
        assert (described["mode"], described["key"], described["rows"]) == ("mor", ["station"], 0)
        changed = api("PATCH", f"/tables/{table}", json={"add": {"sea": "string"}, "rename": {"metres": "height"}})
        assert [column["name"] for column in changed.json()["columns"]] == ["station", "height", "sea"]
        assert table in api.get("/tables?database=bronze").json()["tables"]
        assert api("DELETE", f"/tables/{table}?purge=true").status_code == 204
        assert problem(api.get(f"/tables/{table}")) == (404, "not_found")

    def test_an_old_schema_stays_and_may_be_kept_for_ever(self, api: Api) -> None:
        table = api.make("bronze.shapes")
        api("PATCH", f"/tables/{table}", json={"drop": ["metres"]})
        old = api.get(f"/tables/{table}/schemas/0")
        assert [column["name"] for column in old.json()["columns"]] == ["station", "metres"]
        assert "immutable" in old.headers["cache-control"]
        again = api.get(f"/tables/{table}/schemas/0", headers={"If-None-Match": f'"other", {old.headers["etag"]}'})
        assert (again.status_code, again.content) == (304, b"")
        assert problem(api.get(f"/tables/{table}/schemas/9")) == (404, "not_found")

    def test_a_list_comes_in_pages_that_leave_nothing_out(self, api: Api) -> None:
        made = [api.make(f"silver.page_{number}") for number in range(5)]
        seen, query = [], "database=silver&limit=2"
        answer = api.get(f"/tables?{query}").json()
        while True:
            assert len(answer["tables"]) <= 2
            seen += answer["tables"]
            if "next" not in answer:
                break
            answer = api.get(f"/tables?{query}&page={answer['next']}").json()
        assert seen == api.get("/tables?database=silver&limit=1000").json()["tables"]
        assert set(made) <= set(seen)

    def test_a_token_of_another_list_or_a_guess_is_refused(self, api: Api) -> None:
        for number in range(2):
            api.make(f"gold.token_{number}")
        token = api.get("/tables?database=gold&limit=1").json()["next"]
        for other in (f"database=bronze&page={token}", f"database=gold&page={token[:-2]}AA", "page=x", "page=e30"):
            assert problem(api.get(f"/tables?{other}")) == (400, "invalid")

    @pytest.mark.parametrize(
        ("body", "at"),
        [
            ({"columns": COLUMNS}, ["body", "name"]),
            ({"name": "nodot", "columns": COLUMNS}, ["body", "name"]),
            ({"name": "a.b", "columns": {}}, ["body", "columns"]),
            ({"name": "a.b", "columns": COLUMNS, "mode": "fast"}, ["body", "mode"]),
            ({"name": "a.b", "columns": COLUMNS, "typo": 1}, ["body", "typo"]),
        ],
        ids=["no-name", "bad-name", "no-columns", "bad-mode", "unknown-field"],
    )
    def test_what_is_wrong_with_a_request_is_said_with_its_place(self, api: Api, body: Any, at: list[str]) -> None:
        answer = api.post("/tables", body)
        assert problem(answer) == (400, "invalid")
        assert at in [fault["at"] for fault in answer.json()["errors"]]

    def test_a_name_that_is_taken_is_a_conflict(self, api: Api) -> None:
        api.make("bronze.taken")
        assert problem(api.post("/tables", {"name": "bronze.taken", "columns": COLUMNS})) == (409, "conflict")


class TestRows:
    def test_rows_in_every_format_go_in_and_come_out(self, api: Api) -> None:
        table = api.make("bronze.formats")
        rows = pa.table({"station": ["Dover"], "metres": [5.0]})
        arrow, parquet = io.BytesIO(), io.BytesIO()
        with pa.ipc.new_stream(arrow, rows.schema) as writer:
            writer.write_table(rows)
        pq.write_table(pa.table({"station": ["Cuxhaven"], "metres": [2.9]}), parquet)
        assert api.post(f"/tables/{table}/rows", {"rows": ROWS}).json()["rows"] == 2
        for kind, body in ((ARROW, arrow), (PARQUET, parquet)):
            sent = api("POST", f"/tables/{table}/rows", content=body.getvalue(), headers={"Content-Type": kind})
            assert sent.status_code == 200, sent.text
        expected = [("Brest", 4.2), ("Cuxhaven", 2.9), ("Dover", 5.0), ("Newlyn", 3.1)]

        def read(kind: str) -> bytes:
            answer = api.get(f"/tables/{table}/rows", headers={"Accept": kind})
            assert answer.headers["content-type"].partition(";")[0] == kind
            return answer.content

        as_arrow = pa.ipc.open_stream(read(ARROW)).read_all()
        as_parquet = pq.read_table(io.BytesIO(read(PARQUET)))
        as_csv = [(s, float(m)) for s, m in list(csv.reader(io.StringIO(read("text/csv").decode())))[1:]]
        as_json = [(row["station"], row["metres"]) for row in json.loads(read("application/json"))["rows"]]
        for result in (as_arrow, as_parquet):
            assert sorted((row["station"], row["metres"]) for row in result.to_pylist()) == expected
        assert sorted(as_csv) == expected and sorted(as_json) == expected
        assert problem(api.get(f"/tables/{table}/rows", headers={"Accept": "image/png"})) == (406, "not_acceptable")

    def test_an_upsert_replaces_and_a_delete_removes(self, api: Api) -> None:
        table = api.make("bronze.upserts", key=["station"])
        api.post(f"/tables/{table}/rows", {"rows": ROWS})
        done = api.post(f"/tables/{table}/rows?mode=upsert", {"rows": [{"station": "Brest", "metres": 6.9}]}).json()
        assert (done["rows"], done["matched"]) == (1, 1)
        assert api.post(f"/tables/{table}/delete", {"keys": [{"station": "Newlyn"}]}).json()["rows"] == 1
        assert api.rows(table) == [{"station": "Brest", "metres": 6.9}]
        assert api.post(f"/tables/{table}/delete", {"where": "metres > 6"}).json()["rows"] == 1
        assert api.rows(table) == []

    def test_a_key_makes_a_write_happen_once(self, api: Api) -> None:
        table, headers = api.make("bronze.once"), {"Idempotency-Key": "monday"}
        first = api.post(f"/tables/{table}/rows", {"rows": ROWS}, headers=headers).json()
        second = api.post(f"/tables/{table}/rows", {"rows": ROWS}, headers=headers).json()
        assert (first["replayed"], second["replayed"]) == (False, True)
        assert first["snapshot_id"] == second["snapshot_id"]
        other = api.post(f"/tables/{table}/rows", {"rows": ROWS[:1]}, headers=headers)
        assert problem(other) == (409, "conflict")
        assert len(api.rows(table)) == 2

    def test_a_key_gives_the_first_answer_again(self, api: Api) -> None:
        body, headers = {"name": "bronze.made_once", "columns": COLUMNS}, {"Idempotency-Key": "made"}
        first, second = (api.post("/tables", body, headers=headers) for _ in range(2))
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.json() == second.json() and second.headers["idempotency-replayed"] == "true"
        for bad in ("", "x" * 129, "a b"):
            assert problem(api.post("/tables", body, headers={"Idempotency-Key": bad})) == (400, "invalid")

    def test_rows_that_do_not_fit_are_refused_whole(self, api: Api) -> None:
        table = api.make("bronze.refused")
        answer = api.post(f"/tables/{table}/rows", {"rows": [*ROWS, {"station": "Dover", "metres": "high"}]})
        assert problem(answer) == (400, "invalid") and "row 2" in answer.json()["detail"]
        assert api.rows(table) == []

    @pytest.mark.parametrize(
        ("content", "kind", "status"),
        [
            (b'{"rows": [', "application/json", 400),
            (b"[" * 50_000, "application/json", 400),
            (b'"\xff\xfe"', "application/json", 400),
            (b"no arrow", ARROW, 400),
            (b"PAR1no parquetPAR1", PARQUET, 400),
            (b"a,b", "text/csv", 415),
            (b'{"rows": ["' + b"x" * (4 << 20) + b'"]}', "application/json", 413),
        ],
        ids=["cut", "deep", "not-utf8", "not-arrow", "not-parquet", "csv", "large"],
    )
    def test_a_body_that_cannot_be_read(self, api: Api, content: bytes, kind: str, status: int) -> None:
        api("POST", "/tables", json={"name": "bronze.bodies", "columns": COLUMNS})
        sent = api("POST", "/tables/bronze.bodies/rows", content=content, headers={"Content-Type": kind})
        assert problem(sent)[0] == status

    def test_forged_arrow_and_bombs_are_refused_and_the_worker_lives(self, api: Api) -> None:
        """Three values, whose offsets lead two megabytes into the process's own memory."""
        table = api.make("bronze.forged", columns={"c0": "binary"})
        forged = forged_streams()
        for name in ("offsets", "offsets of a null", "view of a null", "in a dictionary"):
            sent = api("POST", f"/tables/{table}/rows", content=forged[name], headers={"Content-Type": ARROW})
            assert problem(sent) == (400, "invalid"), name
        for kind, bomb in ((ARROW, stream_bombs()["zstd"]), (PARQUET, PARQUET_BOMBS["zstd with a false footer"]())):
            sent = api("POST", f"/tables/{table}/rows", content=bomb, headers={"Content-Type": kind})
            assert problem(sent) == (400, "invalid") and "134217728 bytes" in sent.json()["detail"]
        assert api.rows(table) == []

    def test_a_limit_is_told_and_a_large_answer_is_linked_to(self, api: Api) -> None:
        table = api.make("bronze.large")
        text = base64.b64encode(bytes(range(256)) * 6).decode()
        for start in range(0, 4000, 1000):
            rows = pa.table({"station": [f"{n} {text}" for n in range(start, start + 1000)], "metres": [1.0] * 1000})
            sink = io.BytesIO()
            pq.write_table(rows, sink)
            api("POST", f"/tables/{table}/rows", content=sink.getvalue(), headers={"Content-Type": PARQUET})
        few = api.get(f"/tables/{table}/rows?limit=10").json()
        assert (len(few["rows"]), few["more"]) == (10, True)
        answer = api.get(f"/tables/{table}/rows?limit=4000", headers={"Accept": ARROW})
        assert answer.status_code == 303 and answer.json()["bytes"] > 6_000_000
        there = httpx.get(answer.headers["location"])
        assert pa.ipc.open_stream(there.content).read_all().num_rows == 4000

    def test_the_past_is_read_by_id_and_by_name(self, api: Api) -> None:
        table = api.make("bronze.past")
        first = api.post(f"/tables/{table}/rows", {"rows": ROWS}).json()["snapshot_id"]
        named = api.post("/snapshots", {"name": "before", "table": table})
        assert (named.status_code, named.json()["snapshot_id"]) == (201, first)
        api.post(f"/tables/{table}/delete", {"where": "metres > 0"})
        for moment in (f"snapshot:{first}", "before"):
            assert len(api.get(f"/tables/{table}/rows?as_of={moment}").json()["rows"]) == 2
        assert {"name": "before", "table": table, "snapshot_id": first} in api.get("/snapshots").json()["snapshots"]
        assert problem(api.get(f"/tables/{table}/rows?as_of=never")) == (404, "not_found")
        assert problem(api.get(f"/tables/{table}/rows?as_of={first}")) == (400, "invalid")
