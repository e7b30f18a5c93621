"""What the lake proves over HTTP: commits, files, changes, and the answers to queries."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pytest

from catalog.access.routes import SIGNED_PREFIX
from catalog.changes import verify as verify_changes
from catalog.changes.serialization import from_ipc, from_json_lines
from catalog.core.errors import LakeError
from catalog.lake import Lake
from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import read as read_proof
from catalog.merkle.proof import verify as verify_proof
from catalog.merkle.tree import leaf_hash
from catalog.merkle.verify import verify_consistency
from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import ARROW, ROWS, Api, problem
from tests.waiting import wait_until


class TestProofs:
    def test_a_commit_is_proven_with_the_public_key_alone(self, api: Api, calling: Callable[..., Api]) -> None:
        table = api.make("gold.attested")
        snapshot = api.post(f"/tables/{table}/rows", {"rows": ROWS}).json()["snapshot_id"]
        commit = api.get_when_ready(f"/commits/snapshot-{snapshot}")
        stranger = calling(None)
        keys = [VerifierKey.parse(key) for key in stranger.get("/timeline/key").text.split()]
        index = commit.json()["index"]
        proof = api.get(f"/commits/{index}/proof").content
        proven = verify_proof(proof, read_proof(proof).extra, keys)
        assert proven.index == index and json.loads(read_proof(proof).extra)["snapshot_id"] == snapshot
        assert [c["operation"] for c in api.get(f"/tables/{table}/commits").json()["commits"]] == ["create", "append"]
        again = api.get(f"/commits/{index}", headers={"If-None-Match": commit.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")

    def test_the_timeline_is_public_and_its_tiles_are_as_published(self, cloud: EmbeddedCloud, calling: Any) -> None:
        stranger, reader = calling(None), calling(cloud.token("reader:*"))
        cloud.wait_until_idle()
        note = stranger.get("/timeline/checkpoint")
        assert note.headers["content-type"].startswith("text/plain")
        size = int(note.text.split("\n")[1])
        partial = f"000.p/{size}"
        hashes = stranger.get(f"/timeline/tile/0/{partial}")
        entries = reader.get(f"/timeline/tile/entries/{partial}")
        assert len(hashes.content) == 32 * size and "public" in hashes.headers["cache-control"]
        length = int.from_bytes(entries.content[:2], "big")
        assert leaf_hash(entries.content[2 : 2 + length]) == hashes.content[:32]
        assert entries.headers["cache-control"].startswith("private")
        for path in ("tile/0/0", "tile/9/000", "tile/0/000.p/0", "tile/entries/../../keys", "tile/0/%2e%2e/keys"):
            assert stranger.get(f"/timeline/{path}").status_code in (400, 401, 404)  # 401: a path of no route

    def test_entries_are_for_callers_who_may_read_every_table(self, cloud: EmbeddedCloud, calling: Any) -> None:
        """They name all tables: what `/tables` hides from a caller, the published log must not show it."""
        path, signed = "/timeline/tile/entries/000.p/1", f"{SIGNED_PREFIX}/timeline/tile/entries/000.p/1"
        stranger = calling(None)
        assert [stranger.get(one).status_code for one in (path, path + "?x=1", path + "/")] == [401] * 3
        assert stranger.get(signed).status_code in (401, 403)
        assert stranger.get(path.replace("entries", "%65ntries")).status_code in (400, 401, 404)
        for roles in ((), ("reader:gold.attested",), ("admin:gold.*",)):
            assert problem(calling(cloud.token(*roles, subject="some")).get(path)) == (403, "denied"), roles
        event = {"version": "2.0", "routeKey": "GET /timeline/tile/entries/{path+}", "rawPath": path}
        context = {"http": {"method": "GET", "path": path}, "requestId": "r", "stage": "$default"}
        payload = json.dumps({**event, "headers": {}, "requestContext": context}).encode()
        answers = [cloud.functions.invoke(f"strandline-dev-{name}", payload).payload for name in ("public", "api")]
        assert [json.loads(answer)["statusCode"] for answer in answers] == [404, 401]  # though no gateway asked first

    def test_the_timeline_only_grows(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        stranger = calling(None)
        cloud.wait_until_idle()
        old = int(stranger.get("/timeline/checkpoint").text.split("\n")[1])
        api.make("gold.grown")
        cloud.wait_until_idle()
        consistency = stranger.get_when_ready(f"/timeline/consistency?old={old}").json()
        roots = [base64.b64decode(consistency[f"{which}_checkpoint"].split("\n")[2]) for which in ("old", "new")]
        hashes = [base64.b64decode(value) for value in consistency["hashes"]]
        verify_consistency(old, consistency["new_size"], hashes, *roots)

    def test_a_cut_of_the_whole_lake_has_a_name(self, api: Api, cloud: EmbeddedCloud) -> None:
        api.make("gold.cut")
        cloud.wait_until_idle()
        size = int(api.get("/timeline/checkpoint").text.split("\n")[1])
        asked = api.post("/snapshots", {"name": "close-of-day"})
        assert (asked.status_code, asked.json()["index"]) == (202, size - 1)
        api.post("/tables/gold.cut/rows", {"rows": ROWS})
        named = api.get_when_ready("/snapshots?name=close-of-day").json()["snapshots"]
        assert named[0]["index"] == size - 1

    def test_what_can_never_be_served_is_refused_at_once_and_reaches_no_queue(
        self, api: Api, cloud: EmbeddedCloud
    ) -> None:
        table = api.make("gold.refused")
        cloud.wait_until_idle()
        size = int(api.get("/timeline/checkpoint").text.split("\n")[1])
        assert api.post("/snapshots", {"name": "beginning", "index": 0}).status_code == 202
        api.get_when_ready("/snapshots?name=beginning")
        mark = f"/watermarks/hasty/{table}"
        refused = [
            (api.post("/snapshots", {"name": "someday", "index": size + 9}), (404, "not_found")),
            (api.post("/snapshots", {"name": "beginning", "index": 1}), (409, "conflict")),
            (api("PUT", mark, json={"sequence": 3, "expected": 3}), (400, "invalid")),
        ]
        # The reader may be a moment behind the table; from then on there is no such leaf.
        api.get_when_ready(f"/commits/{size - 1}")
        refused.append((api("PUT", mark, json={"sequence": 99}), (404, "not_found")))
        for answer, expected in refused:
            assert problem(answer) == expected
        assert cloud.queues()["strandline-dev-moved.fifo"] == (0, 0)


class TestFiles:
    def test_a_file_is_sent_and_followed_to_its_commit(self, api: Api, cloud: EmbeddedCloud) -> None:
        data = b"station,metres\nLeith,4.2\n"
        digest = hashlib.sha256(data).hexdigest()
        link = api.post("/ingest/uploads", {"table": "bronze.followed", "name": "a b.csv", "sha256": digest}).json()
        assert httpx.put(link["url"], content=b"other", headers=link["headers"]).status_code == 400
        assert httpx.put(link["url"], content=data).status_code == 403
        assert httpx.put(link["url"], content=data, headers=link["headers"]).status_code == 200
        cloud.wait_until_idle()

        def placed() -> Any:
            (status,) = api.get(f"/ingest/{digest}").json()["files"]
            return status if "index" in status else None

        status = wait_until(placed, "the file's commit in the timeline")
        assert (status["status"], status["rows"], status["table"]) == ("committed", 1, "bronze.followed")
        assert api.get(f"/commits/{status['index']}").json()["snapshot_id"] == status["snapshot_id"]

    def test_a_bad_file_is_found_in_quarantine_with_the_reason(self, api: Api, cloud: EmbeddedCloud) -> None:
        data = b'{"station": '
        digest = hashlib.sha256(data).hexdigest()
        link = api.post("/ingest/uploads", {"table": "bronze.bad", "name": "bad.jsonl", "sha256": digest}).json()
        assert api.get(f"/ingest/{digest}").json()["status"] == "unknown"
        httpx.put(link["url"], content=data, headers=link["headers"])
        assert api.get(f"/ingest/{digest}").json()["status"] in ("landing", "quarantined")
        cloud.wait_until_idle()
        status = api.get(f"/ingest/{digest}").json()
        assert status["status"] == "quarantined" and status["files"][0]["reason"]

    def test_anothers_file_is_not_told_of(self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]) -> None:
        data = b"station,metres\nDover,5.0\n"
        digest = hashlib.sha256(data).hexdigest()
        link = api.post("/ingest/uploads", {"table": "bronze.private", "name": "a.csv", "sha256": digest}).json()
        httpx.put(link["url"], content=data, headers=link["headers"])
        cloud.wait_until_idle()
        assert api.get(f"/ingest/{digest}").json()["status"] == "committed"
        other = calling(cloud.token("writer:silver.*"))
        assert other.get(f"/ingest/{digest}").json() == {"sha256": digest, "status": "unknown", "files": []}

    def test_a_rule_that_was_set_is_what_the_next_file_goes_by(
        self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        rule, shape = "/tables/bronze.by_rule/rule", {"columns": {"id": "long", "v": "string"}, "key": ["id"]}
        assert problem(api.get(rule)) == (404, "not_found")
        made = api("PUT", rule, json={**shape, "unknown": "ignore"})
        assert made.json() == {
            "table": "bronze.by_rule",
            **shape,
            "mode": "cow",
            "unknown": "ignore",
            "csv": {"quote": '"', "decimal": ".", "nulls": [], "skip_lines": 0},
            "inferred": False,
        }
        assert api.get(rule).json() == made.json()
        for data in (b'{"id": 1, "v": "a"}\n', b'{"id": 1, "v": "b", "x": 0}\n'):
            digest = hashlib.sha256(data).hexdigest()
            link = api.post("/ingest/uploads", {"table": "bronze.by_rule", "name": f"{digest}.jsonl", "sha256": digest})
            httpx.put(link.json()["url"], content=data, headers=link.json()["headers"])
            cloud.wait_until_idle()
        assert api.get("/tables/bronze.by_rule/rows").json()["rows"] == [{"id": 1, "v": "b"}]

        assert problem(api("PUT", rule, json={"columns": {"id": "string"}})) == (400, "invalid")
        assert problem(api("PUT", rule, json={"columns": {"id": "number"}})) == (400, "invalid")
        writer = calling(cloud.token("writer:bronze.*"))
        assert problem(writer("PUT", rule, json=shape)) == problem(writer("DELETE", rule)) == (403, "denied")
        assert problem(calling(cloud.token("admin:silver.*"))("DELETE", rule)) == (404, "not_found")
        assert (writer.get(rule).status_code, api("DELETE", rule).status_code) == (200, 204)
        assert problem(api.get(rule)) == (404, "not_found")

    def test_a_name_that_could_not_be_ingested_gets_no_link(self, api: Api) -> None:
        body = {"table": "bronze.followed", "name": "../up.csv", "sha256": "0" * 64}
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
            change_sets, page = [], ""
            while True:
                answer = api.get(f"/tables/{table}/changes?limit=2{page}").json()
                change_sets += answer["change_sets"]
                if "next" not in answer:
                    return change_sets if len(change_sets) == 3 else None
                page = f"&page={answer['next']}"

        sets = wait_until(whole, "a feed of three change sets")
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
        assert wait_until(lambda: api.get(mark).json().get("sequence"), "the watermark to be set") == 1
        assert problem(api("PUT", mark, json={"sequence": 0, "expected": 1})) == (409, "conflict")

    def test_a_mark_is_moved_by_whoever_moved_it_first(
        self, api: Api, cloud: EmbeddedCloud, calling: Callable[..., Api]
    ) -> None:
        table = api.make("gold.owned")
        for _ in range(2):
            api.post(f"/tables/{table}/rows", {"rows": ROWS})
        cloud.wait_until_idle()
        ada, eve = (calling(cloud.token(f"writer:{table}", subject=name)) for name in ("ada", "eve"))
        mark = f"/watermarks/reports/{table}"
        assert ada("PUT", mark, json={"sequence": 0, "holder": "run-1"}).status_code == 202
        moved = wait_until(lambda: "sequence" in (seen := eve.get(mark).json()) and seen, "the watermark to be set")
        assert moved["holder"] == "run-1"
        assert problem(eve("PUT", mark, json={"sequence": 1, "expected": 0})) == (403, "denied")
        assert ada("PUT", mark, json={"sequence": 1, "expected": 0}).status_code == 202
        wait_until(lambda: ada.get(mark).json()["sequence"] == 1, "the watermark to move")
        assert api("PUT", mark, json={"sequence": 2, "expected": 1}).status_code == 202
        wait_until(lambda: ada.get(mark).json()["sequence"] == 2, "an admin to move it")
        assert problem(eve("PUT", mark, json={"sequence": 2, "expected": 2})) == (403, "denied")


class TestQueries:
    def test_sql_is_answered_with_a_receipt(self, api: Api, cloud: EmbeddedCloud) -> None:
        table = api.make("gold.asked")
        api.post(f"/tables/{table}/rows", {"rows": ROWS})
        cloud.wait_until_idle()
        body = {"sql": f"select max(metres) as high from {table} where station <> $s", "parameters": {"s": "Brest"}}

        def answered() -> Any:
            answer = api.post_when_ready("/query", body).json()
            return answer if answer["rows"] != [{"high": None}] else None  # the cut before the rows

        answer = wait_until(answered, "the rows in a query")
        assert answer["rows"] == [{"high": 3.1}] and answer["receipt"]["index"] >= 0

    @pytest.mark.parametrize(
        ("sql", "status", "said"),
        [
            ("SELECT (1", 400, "column"),
            ("SELECT 1; DROP TABLE gold.asked", 400, "2 statements"),
            ("SELECT * FROM read_parquet('/etc/passwd')", 400, "only tables of the lake can be read"),
            ("SELECT metre FROM gold.badly_asked", 400, "did you mean metres"),
            ("SELECT * FROM gold.badly_aske", 404, "did you mean gold.badly_asked"),
            ("SELECT station + interval '1 day' FROM gold.badly_asked", 400, "VARCHAR"),
            ("SELECT 1 // 0", 400, "ivision by zero"),
        ],
        ids=["syntax", "several", "file", "column", "table", "types", "arithmetic"],
    )
    def test_bad_input_is_refused_with_the_reason(
        self, api: Api, cloud: EmbeddedCloud, sql: str, status: int, said: str
    ) -> None:
        if api.get("/tables/gold.badly_asked").status_code == 404:
            api.make("gold.badly_asked")
            cloud.wait_until_idle()
            api.post_when_ready("/query", {"sql": "SELECT * FROM gold.badly_asked"})
        answer = api.post("/query", {"sql": sql})
        assert problem(answer)[0] == status and said in answer.json()["detail"]

    def test_two_columns_of_one_name_both_come_or_the_answer_is_refused(self, api: Api) -> None:
        body = {"sql": "SELECT a.v, b.v, 3 AS w FROM (VALUES (1)) a(v), (VALUES (2)) b(v)"}
        for accept in ("application/json", "application/vnd.apache.parquet", "*/*"):
            answer = api.post("/query", body, headers={"Accept": accept})
            assert problem(answer) == (400, "invalid"), accept
            assert "column name v appears twice" in answer.json()["detail"]
            assert "AS v_2" in answer.json()["detail"] and "text/csv" in answer.json()["detail"]
        assert api.post("/query", body, headers={"Accept": "text/csv"}).text.split() == ["v,v,w", "1,2,3"]
        with pa.ipc.open_stream(api.post("/query", body, headers={"Accept": ARROW}).content) as stream:
            assert [column.to_pylist() for column in stream.read_all().columns] == [[1], [2], [3]]

    def test_what_never_ends_is_ended_and_what_does_not_fit_is_refused(self, api: Api) -> None:
        endless = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        large = "SELECT i, repeat('x', 2000) || i AS s FROM generate_series(1, 100000000) t(i) ORDER BY s"
        for sql, said in ((endless, "took longer than"), (large, "needs more than")):
            answer = api.post("/query", {"sql": sql})
            assert problem(answer) == (400, "invalid") and said in answer.json()["detail"]
        assert api.post("/query", {"sql": "SELECT 1 AS one"}).json()["rows"] == [{"one": 1}]

    def test_a_search_is_a_query_too_and_its_vectors_are_sequenced(
        self, api: Api, cloud: EmbeddedCloud, lake: Lake
    ) -> None:
        table = "gold.searched"
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

        wait_until(lambda: sequenced() == ["create", "vectors"], "the vectors in the timeline")
        sql = f"select id from {table} order by embedding <-> $q limit 1"
        answer = api.post_when_ready("/query", {"sql": sql, "parameters": {"q": "cooking"}}).json()
        assert answer["rows"] == [{"id": 1}]
        assert answer["receipt"]["searched"][head.id]["version"] == head.entries[-1].version
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
        for roles, refused in (((), (403, "denied")), (("reader:silver.*",), (404, "not_found"))):
            answer = calling(cloud.token(*roles)).post("/query", {"sql": f"select * from {table}"})
            assert problem(answer) == refused
        assert problem(api.post("/query", {"sql": "select from where"})) == (400, "invalid")
        assert problem(api.get("/queries/none")) == problem(api("DELETE", "/queries/none")) == (404, "not_found")
