"""The API end to end: over HTTP only, through the deployed gateway, authorizer and function."""

from __future__ import annotations

import base64
import csv
import hashlib
import hmac
import io
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from joserfc import jwt
from joserfc.jwk import RSAKey

from catalog.access.routes import ROUTES, SIGNED_PREFIX
from catalog.changes import verify as verify_changes
from catalog.changes.wire import from_ipc, from_json_lines
from catalog.errors import LakeError
from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import read as read_proof
from catalog.merkle.proof import verify as verify_proof
from catalog.merkle.tree import leaf_hash
from catalog.merkle.verify import verify_consistency
from infra.local.cloud import EmbeddedCloud
from infra.local.endpoint import REGION
from tests.e2e.flow import eventually, lake_of

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
PROBLEM = "application/problem+json"
COLUMNS = {"station": "string", "metres": "double"}
ROWS = [{"station": "Brest", "metres": 4.2}, {"station": "Newlyn", "metres": 3.1}]


class Api:
    """The deployed API as one caller sees it. Every answer is checked for what all answers have."""

    def __init__(self, http: httpx.Client, endpoint: str, token: str | None) -> None:
        self._http, self._endpoint, self._token = http, endpoint, token

    def __call__(self, method: str, path: str, *, headers: dict[str, str] | None = None, **rest: Any) -> httpx.Response:
        sent = dict(headers or {})
        if self._token is not None:
            sent.setdefault("Authorization", f"Bearer {self._token}")
        answer = self._http.request(method, self._endpoint + path, headers=sent, **rest)
        if answer.status_code not in (401, 403) or answer.headers["content-type"] == PROBLEM:  # not the gateway's own
            assert answer.headers["x-request-id"] and answer.headers["x-correlation-id"]
        if answer.status_code >= 400 and answer.headers["content-type"] == PROBLEM:
            said = answer.json()
            assert said["status"] == answer.status_code and said["instance"] == answer.headers["x-request-id"]
        return answer

    def get(self, path: str, **rest: Any) -> httpx.Response:
        return self("GET", path, **rest)

    def post(self, path: str, body: Any, **rest: Any) -> httpx.Response:
        return self("POST", path, json=body, **rest)

    def make(self, name: str, **shape: Any) -> str:
        made = self.post("/tables", {"name": name, "columns": COLUMNS, **shape})
        assert made.status_code == 201, made.text
        return name

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = self.get(f"/tables/{table}/rows").json()["rows"]
        return sorted(found, key=lambda row: str(row["station"]))


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def calling(cloud: EmbeddedCloud) -> Iterator[Callable[..., Api]]:
    with httpx.Client(timeout=60) as http:
        yield lambda token: Api(http, cloud.addresses()["api"], token)


@pytest.fixture(scope="module")
def api(cloud: EmbeddedCloud, calling: Callable[..., Api]) -> Api:
    return calling(cloud.token("admin"))


def ok(answer: httpx.Response) -> httpx.Response | None:
    return answer if answer.status_code == 200 else None


def problem(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == PROBLEM, answer.text
    return answer.status_code, answer.json()["type"].removeprefix("urn:strandline:")


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
        assert seen == made

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
        for found in (as_arrow, as_parquet):
            assert sorted((row["station"], row["metres"]) for row in found.to_pylist()) == expected
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
        assert problem(other) == (422, "unverified")
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
        for moment in (first, "before"):
            assert len(api.get(f"/tables/{table}/rows?as_of={moment}").json()["rows"]) == 2
        assert {"name": "before", "table": table, "snapshot_id": first} in api.get("/snapshots").json()["snapshots"]
        assert problem(api.get(f"/tables/{table}/rows?as_of=never")) == (404, "not_found")


class TestProofs:
    def test_a_commit_is_proven_with_the_public_key_alone(self, api: Api, calling: Callable[..., Api]) -> None:
        table = api.make("gold.proven")
        snapshot = api.post(f"/tables/{table}/rows", {"rows": ROWS}).json()["snapshot_id"]
        commit = eventually(lambda: ok(api.get(f"/commits/snapshot-{snapshot}")))
        stranger = calling(None)
        keys = [VerifierKey.parse(key) for key in stranger.get("/timeline/key").text.split()]
        index = commit.json()["index"]
        proof = api.get(f"/commits/{index}/proof").content
        found = verify_proof(proof, read_proof(proof).extra, keys)
        assert found.index == index and json.loads(read_proof(proof).extra)["snapshot_id"] == snapshot
        assert [c["operation"] for c in api.get(f"/tables/{table}/commits").json()["commits"]] == ["create", "append"]
        again = api.get(f"/commits/{index}", headers={"If-None-Match": commit.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    def test_the_timeline_is_public_and_its_tiles_are_as_published(self, cloud: EmbeddedCloud, calling: Any) -> None:
        stranger = calling(None)
        cloud.wait_until_idle()
        note = stranger.get("/timeline/checkpoint")
        assert note.headers["content-type"].startswith("text/plain")
        size = int(note.text.split("\n")[1])
        partial = f"000.p/{size}"
        hashes = stranger.get(f"/timeline/tile/0/{partial}")
        entries = stranger.get(f"/timeline/tile/entries/{partial}")
        assert len(hashes.content) == 32 * size and "public" in hashes.headers["cache-control"]
        length = int.from_bytes(entries.content[:2], "big")
        assert leaf_hash(entries.content[2 : 2 + length]) == hashes.content[:32]
        for path in ("tile/0/0", "tile/9/000", "tile/0/000.p/0", "tile/entries/../../keys", "tile/0/%2e%2e/keys"):
            assert stranger.get(f"/timeline/{path}").status_code in (400, 404)

    def test_the_timeline_only_grows(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        stranger = calling(None)
        cloud.wait_until_idle()
        old = int(stranger.get("/timeline/checkpoint").text.split("\n")[1])
        api.make("gold.grown")
        cloud.wait_until_idle()
        found = eventually(lambda: ok(stranger.get(f"/timeline/consistency?old={old}"))).json()
        roots = [base64.b64decode(found[f"{which}_checkpoint"].split("\n")[2]) for which in ("old", "new")]
        hashes = [base64.b64decode(value) for value in found["hashes"]]
        verify_consistency(old, found["new_size"], hashes, *roots)

    def test_a_cut_of_the_whole_lake_has_a_name(self, api: Api, cloud: EmbeddedCloud) -> None:
        api.make("gold.cut")
        cloud.wait_until_idle()
        assert api.post("/snapshots", {"name": "close-of-day"}).status_code == 202
        named = eventually(lambda: ok(api.get("/snapshots?name=close-of-day"))).json()["snapshots"]
        assert named[0]["index"] >= 0


class TestFiles:
    def test_a_file_is_sent_and_followed_to_its_commit(self, api: Api, cloud: EmbeddedCloud) -> None:
        data = b"station,metres\nBrest,4.2\n"
        digest = hashlib.sha256(data).hexdigest()
        link = api.post("/ingest/uploads", {"table": "bronze.sent", "name": "a b.csv", "sha256": digest}).json()
        assert httpx.put(link["url"], content=b"other", headers=link["headers"]).status_code == 400
        assert httpx.put(link["url"], content=data).status_code == 403
        assert httpx.put(link["url"], content=data, headers=link["headers"]).status_code == 200
        cloud.wait_until_idle()

        def placed() -> Any:
            (found,) = api.get(f"/ingest/{digest}").json()["files"]
            return found if "index" in found else None

        found = eventually(placed)
        assert (found["status"], found["rows"], found["table"]) == ("committed", 1, "bronze.sent")
        assert api.get(f"/commits/{found['index']}").json()["snapshot_id"] == found["snapshot_id"]

    def test_a_bad_file_is_found_in_quarantine_with_the_reason(self, api: Api, cloud: EmbeddedCloud) -> None:
        data = b'{"station": '
        digest = hashlib.sha256(data).hexdigest()
        link = api.post("/ingest/uploads", {"table": "bronze.bad", "name": "bad.jsonl", "sha256": digest}).json()
        assert api.get(f"/ingest/{digest}").json()["status"] == "unknown"
        httpx.put(link["url"], content=data, headers=link["headers"])
        assert api.get(f"/ingest/{digest}").json()["status"] in ("landing", "quarantined")
        cloud.wait_until_idle()
        found = api.get(f"/ingest/{digest}").json()
        assert found["status"] == "quarantined" and found["files"][0]["reason"]

    def test_anothers_file_is_not_told_of(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        data = b"station,metres\nDover,5.0\n"
        digest = hashlib.sha256(data).hexdigest()
        link = api.post("/ingest/uploads", {"table": "bronze.private", "name": "a.csv", "sha256": digest}).json()
        httpx.put(link["url"], content=data, headers=link["headers"])
        cloud.wait_until_idle()
        assert api.get(f"/ingest/{digest}").json()["status"] == "committed"
        other = calling(cloud.token("writer:silver.*"))
        assert other.get(f"/ingest/{digest}").json() == {"sha256": digest, "status": "unknown", "files": []}

    def test_a_name_that_could_not_be_ingested_gets_no_link(self, api: Api) -> None:
        body = {"table": "bronze.sent", "name": "../up.csv", "sha256": "0" * 64}
        assert problem(api.post("/ingest/uploads", body)) == (400, "invalid")


class TestChanges:
    def test_a_feed_is_followed_page_by_page_and_holds(self, api: Api, cloud: EmbeddedCloud) -> None:
        table = api.make("gold.feed", key=["station"])
        api.post(f"/tables/{table}/rows", {"rows": ROWS})
        api.post(f"/tables/{table}/rows?mode=upsert", {"rows": [{"station": "Brest", "metres": 6.9}]})
        api.post(f"/tables/{table}/delete", {"keys": [{"station": "Newlyn"}]})
        cloud.wait_until_idle()
        keys = [VerifierKey.parse(key) for key in api.get("/timeline/key").text.split()]

        def whole() -> list[Any] | None:
            found, page = [], ""
            while True:
                answer = api.get(f"/tables/{table}/changes?limit=2{page}").json()
                found += answer["change_sets"]
                if "next" not in answer:
                    return found if len(found) == 3 else None
                page = f"&page={answer['next']}"

        sets = eventually(whole)
        read = [from_json_lines([json.dumps(line) for line in (one["head"], *one["changes"])]) for one in sets]
        for one in read:
            verify_changes(one, keys)
        assert [[change["op"] for change in one["changes"]] for one in sets] == [["INSERT"] * 2, ["UPDATE"], ["DELETE"]]
        arrow = api.get(f"/tables/{table}/changes", headers={"Accept": ARROW})
        assert from_ipc(arrow.content).root == read[0].root and arrow.headers["strandline-next"]

    def test_a_mark_moves_forward_from_where_it_stands(self, api: Api, cloud: EmbeddedCloud) -> None:
        table = api.make("gold.marked")
        api.post(f"/tables/{table}/rows", {"rows": ROWS})
        cloud.wait_until_idle()
        mark = f"/watermarks/reports/{table}"
        assert "sequence" not in api.get(mark).json()
        assert api("PUT", mark, json={"sequence": 1}).status_code == 202
        assert eventually(lambda: api.get(mark).json().get("sequence")) == 1
        assert problem(api("PUT", mark, json={"sequence": 0, "expected": 1})) == (409, "conflict")


class TestQueries:
    def test_sql_is_answered_with_a_receipt(self, api: Api, cloud: EmbeddedCloud) -> None:
        table = api.make("gold.asked")
        api.post(f"/tables/{table}/rows", {"rows": ROWS})
        cloud.wait_until_idle()
        body = {"sql": f"select max(metres) as high from {table} where station <> $s", "parameters": {"s": "Brest"}}
        found = eventually(lambda: ok(api.post("/query", body))).json()
        assert found["rows"] == [{"high": 3.1}] and found["receipt"]["index"] >= 0

    def test_a_search_is_a_query_too_and_its_vectors_are_sequenced(
        self, api: Api, cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake, table = lake_of(cloud, monkeypatch), "gold.searched"
        lake.tables.create(table, {"id": "long", "text": "string"}, mode="mor", key=["id"])
        notes = ["the tide rises on the shore", "boil the rice and chop an onion"]
        lake.tables.insert(table, [{"id": number, "text": text} for number, text in enumerate(notes)])
        head = lake.vectors.create(table, "text")
        cloud.wait_until_idle()

        def sequenced() -> list[str]:
            try:
                return [leaf.operation for _, leaf in lake.timeline.commits_since(f"vectors/{head.id}")]
            except LakeError:  # the reader is a second behind
                return []

        assert eventually(sequenced) == ["create", "vectors"]
        sql = f"select id from {table} order by embedding <-> $q limit 1"
        found = eventually(lambda: ok(api.post("/query", {"sql": sql, "parameters": {"q": "cooking"}}))).json()
        assert found["rows"] == [{"id": 1}]
        assert found["receipt"]["searched"][head.id]["version"] == head.entries[-1].version
        by_vector = {"sql": sql, "parameters": {"q": [1.0] * head.dimensions}}
        assert len(api.post("/query", by_vector).json()["rows"]) == 1
        by_words = {"sql": f"select id from {table} where text @@ $w", "parameters": {"w": "tides"}}
        assert api.post("/query", by_words).json()["rows"] == [{"id": 0}]
        assert problem(api.post("/query", {**by_vector, "parameters": {"q": [1.0]}})) == (400, "invalid")
        endless = {"sql": sql.partition("limit")[0], "parameters": {"q": "x"}}
        assert problem(api.post("/query", endless)) == (400, "invalid")

    def test_a_query_over_what_may_not_be_read_finds_nothing(
        self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        table = api.make("gold.unasked")
        cloud.wait_until_idle()
        for roles in ((), ("reader:silver.*",)):
            answer = calling(cloud.token(*roles)).post("/query", {"sql": f"select * from {table}"})
            assert problem(answer) == (404, "not_found")
        assert problem(api.post("/query", {"sql": "select from where"})) == (400, "invalid")
        assert problem(api.get("/queries/none")) == problem(api("DELETE", "/queries/none")) == (404, "not_found")


class TestWhoMayCall:
    def test_without_a_role_nothing_is_there(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        table = api.make("gold.hidden")
        api.post(f"/tables/{table}/rows", {"rows": ROWS})
        nobody = calling(cloud.token(subject="nobody"))
        assert nobody.get("/tables").json() == {"tables": []}
        assert nobody.get("/snapshots").json() == {"snapshots": []}
        there, not_there = nobody.get(f"/tables/{table}"), nobody.get("/tables/gold.nothing")
        assert problem(there) == problem(not_there) == (404, "not_found")
        assert there.json()["detail"].replace("hidden", "nothing") == not_there.json()["detail"]
        for method, path in [(r.method, r.path) for r in ROUTES if "{t}" in r.path]:
            filled = path.format(t=table, version=0, consumer="c")
            body = {"sequence": 0} if method == "PUT" else {"rows": []} if path.endswith("rows") else {"where": "a = 1"}
            if method == "PATCH":
                body = {"drop": ["metres"]}
            sent = {} if method in ("GET", "DELETE") else {"json": body}
            assert nobody(method, filled, **sent).status_code == 404, path
        commit = eventually(lambda: ok(api.get(f"/tables/{table}/commits"))).json()["commits"]
        for path in [f"/commits/{one['index']}" for one in commit]:
            assert nobody.get(path).status_code == nobody.get(f"{path}/proof").status_code == 404
        assert nobody.post("/tables", {"name": "gold.new", "columns": COLUMNS}).status_code == 403
        assert nobody.post("/tables", {"name": table, "columns": COLUMNS}).status_code == 403

    def test_a_reader_reads_and_a_writer_writes_their_own(
        self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        mine, other = api.make("silver.mine"), api.make("silver.other")
        reader, writer = calling(cloud.token(f"reader:{mine}")), calling(cloud.token(f"writer:{mine}"))
        assert reader.get("/tables").json()["tables"] == writer.get("/tables").json()["tables"] == [mine]
        assert problem(reader.post(f"/tables/{mine}/rows", {"rows": ROWS})) == (403, "denied")
        assert writer.post(f"/tables/{mine}/rows", {"rows": ROWS}).status_code == 200
        assert len(reader.rows(mine)) == 2
        assert problem(writer("DELETE", f"/tables/{mine}")) == (403, "denied")
        assert problem(writer.post(f"/tables/{other}/rows", {"rows": ROWS})) == (404, "not_found")

    def test_groups_and_scopes_are_roles_too(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        table = api.make("silver.groups")
        for claims in ({"cognito:groups": [f"reader:{table}"]}, {"scope": f"openid strandline/reader:{table}"}):
            assert calling(cloud.token(**claims)).get(f"/tables/{table}").status_code == 200

    def test_tokens_that_are_not_the_issuers_are_refused(
        self, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        issuer, now = cloud.gateway.issuer, int(time.time())
        good = {"iss": issuer.url, "sub": "eve", "aud": cloud.gateway.audience(), "exp": now + 60, "roles": ["admin"]}
        document = json.loads(issuer.document("/.well-known/jwks.json") or b"")
        public = RSAKey.import_key(document["keys"][0])
        kid = document["keys"][0]["kid"]

        def part(value: Any) -> str:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

        def signed(text: str) -> str:
            """As a verifier would check it that takes the public key for a shared secret."""
            made = hmac.digest(public.as_pem(private=False), text.encode(), "sha256")
            return base64.urlsafe_b64encode(made).decode().rstrip("=")

        confused = f"{part({'alg': 'HS256', 'kid': kid})}.{part(good)}"
        valid = issuer.token("eve", cloud.gateway.audience(), roles=["admin"])
        head, body, signature = valid.split(".")
        forged = {
            "expired": issuer.token("eve", cloud.gateway.audience(), expires_in=timedelta(seconds=-1)),
            "wrong audience": issuer.token("eve", "another", roles=["admin"]),
            "wrong issuer": issuer.token("eve", cloud.gateway.audience(), iss="https://elsewhere"),
            "not yet": issuer.token("eve", cloud.gateway.audience(), nbf=now + 3600),
            "alg none": f"{part({'alg': 'none', 'kid': kid})}.{part(good)}.",
            "key confusion": f"{confused}.{signed(confused)}",
            "another key": jwt.encode({"alg": "RS256", "kid": kid}, good, RSAKey.generate_key(2048), ["RS256"]),
            "altered": f"{head}.{part({**good, 'sub': 'root'})}.{signature}",
            "cut": f"{head}.{body}.",
            "nothing": "-",
        }  # fmt: skip
        assert calling(valid).get("/tables").status_code == 200
        for why, token in forged.items():
            answer = calling(str(token)).get("/tables")
            assert (answer.status_code, answer.json()) == (401, {"message": "Unauthorized"}), why
        assert calling(None).get("/tables").status_code == 401

    def test_no_way_around_the_authorizer(self, api: Api, calling: Callable[..., Api]) -> None:
        api.make("gold.guarded")
        stranger = calling(None)
        for path in (
            "/tables/",
            "//tables",
            "/tables/gold.guarded/",
            "/Tables",
            "/timeline/../tables",
            "/signed/tables",
        ):
            answer = stranger.get(path)
            assert answer.status_code in (401, 403, 404), path
            assert "gold.guarded" not in answer.text or answer.status_code == 404

    def test_a_signed_request_has_the_roles_of_its_principal(self, cloud: EmbeddedCloud, api: Api) -> None:
        table = api.make("gold.signed")

        def get(principal: str) -> httpx.Response:
            url = f"{cloud.addresses()['api']}{SIGNED_PREFIX}/tables/{table}"
            request = AWSRequest("GET", url)
            SigV4Auth(Credentials(principal, "any"), "execute-api", REGION).add_auth(request)
            return httpx.get(url, headers=dict(request.headers))

        assert get("person").json()["name"] == table
        assert get("stranger").status_code == 404


class TestTheSurface:
    def test_what_is_not_there_and_what_may_not_be_done(self, api: Api) -> None:
        assert problem(api.get("/nothing")) == (404, "not_found")
        refused = api("PUT", "/tables", json={})
        assert problem(refused) == (405, "method_not_allowed") and refused.headers["allow"] == "GET, POST"

    def test_the_deployed_routes_are_the_declared_and_the_documented_ones(self, api: Api, cloud: EmbeddedCloud) -> None:
        client = cloud.endpoint.client("apigatewayv2")
        (api_id,) = [one["ApiId"] for one in client.get_apis()["Items"]]
        deployed = {route["RouteKey"]: route for route in client.get_routes(ApiId=api_id)["Items"]}
        declared = {route.key: route for route in ROUTES}
        assert set(deployed) == {*declared, f"ANY {SIGNED_PREFIX}/{{path+}}", "$default"}
        for key, route in declared.items():
            assert deployed[key].get("AuthorizationType", "NONE") == ("NONE" if route.public else "JWT"), key
        document = api.get("/openapi.json").json()
        described = {f"{method.upper()} {path}" for path, ways in document["paths"].items() for method in ways}
        assert document["openapi"].startswith("3.1") and described == {key.replace("+}", "}") for key in declared}

    def test_ids_follow_a_request_into_the_logs_and_to_the_sequencer(self, api: Api, cloud: EmbeddedCloud) -> None:
        table = api.make("bronze.followed")
        cloud.wait_until_idle()
        sent = api.post(f"/tables/{table}/rows", {"rows": ROWS}, headers={"X-Correlation-Id": "order-66"})
        assert sent.headers["x-correlation-id"] == "order-66"
        cloud.wait_until_idle()
        for function in ("api", "sequencer"):
            lines = cloud.functions.logs(f"strandline-dev-{function}")
            assert any('"correlation_id":"order-66"' in line for line in lines), function
        bad = api.get("/health", headers={"X-Correlation-Id": "not an id!"})
        assert bad.headers["x-correlation-id"] == bad.headers["x-request-id"]

    def test_figures_and_health(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        assert calling(None).get("/health").json()["status"] == "ok"
        found = api.get("/metrics-summary").json()
        assert found["tables"] >= 1 and found["timeline_size"] >= 0
        assert calling(cloud.token()).get("/metrics-summary").json()["tables"] == 0
