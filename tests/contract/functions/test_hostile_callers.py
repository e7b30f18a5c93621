"""What callers send that they should not: each request gets a reason, and none is an error of ours."""

from __future__ import annotations

import io
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from catalog.formats import apart
from functions.api.row_formats import ARROW, PARQUET
from tests.worlds import bad_reader
from tests.worlds.api import Function
from tests.worlds.hostile_files import hostile_files, hostile_streams
from tests.worlds.lake import running_lake

COLUMNS = {"a": "long", "b": "string"}


def _good_stream() -> bytes:
    rows, sink = pa.table({"a": [7]}), io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


GOOD = _good_stream()


@pytest.fixture(scope="module")
def api() -> Iterator[Function]:
    with running_lake() as lake:
        function = Function(lake)
        yield function
        function.restart()


@pytest.fixture(scope="module")
def table(api: Function) -> str:
    name = f"silver.t{uuid4().hex[:10]}"
    assert api("POST", "/tables", {"name": name, "columns": COLUMNS}).status == 201
    assert api("POST", f"/tables/{name}/rows", {"rows": [{"a": 1, "b": "x"}]}).status == 200
    return name


def as_writer(table: str, name: str = "writer") -> dict[str, Any]:
    return {"sub": name, "roles": [f"strandline:writer:{table}"]}


class TestQueries:
    @pytest.mark.parametrize("engine", ["auto", "lambda", "spark"])
    def test_without_a_role_nothing_is_computed(self, api: Function, engine: str) -> None:
        answer = api("POST", "/query", {"sql": "select 1", "engine": engine}, roles=[])
        assert (answer.status, answer.body["type"]) == (403, "urn:strandline:denied"), answer.body


class TestRows:
    def test_no_body_is_an_error_of_ours(self, api: Function, table: str) -> None:
        bodies = [(ARROW, label, data) for label, data in hostile_streams().items()]
        for label, (name, data) in hostile_files().items():
            if name.endswith(".parquet"):
                bodies.append((PARQUET, label, data))
            elif name.endswith((".json", ".jsonl")):
                bodies.append(("application/json", label, data))
                bodies.append(("application/json", f"rows of {label}", b'{"rows":' + data.strip() + b"}"))
        assert len(bodies) >= 200
        answers = {
            (media, label): api("POST", f"/tables/{table}/rows", data, media_type=media).status
            for media, label, data in bodies
        }
        assert {what: status for what, status in answers.items() if status not in (200, 400, 413)} == {}
        assert api("GET", "/health").status == 200

    @pytest.mark.parametrize("media_type", [ARROW, PARQUET])
    def test_a_body_that_crashes_its_reader_is_a_400_and_the_function_lives(
        self, api: Function, table: str, media_type: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apart, "PROGRAM", bad_reader.PROGRAM)
        api.restart()
        crashed = api("POST", f"/tables/{table}/rows", b"crash", media_type=media_type)
        assert (crashed.status, crashed.body["type"]) == (400, "urn:strandline:invalid")
        assert "SIGSEGV" in crashed.body["detail"]
        assert api("POST", f"/tables/{table}/rows", GOOD, media_type=ARROW).status == 200
        api.restart()

    def test_many_rows_of_many_columns_are_not_allocated(self, api: Function) -> None:
        name = f"silver.t{uuid4().hex[:10]}"
        api("POST", "/tables", {"name": name, "columns": {f"c{n}": "long" for n in range(500)}})
        answer = api("POST", f"/tables/{name}/rows", {"rows": [{}] * 100_000})
        assert answer.status == 400 and "send 33554 or fewer" in answer.body["detail"]

    @pytest.mark.parametrize(
        "query",
        ["as_of=--5", "as_of=-", "as_of=@1", "as_of=" + "9" * 30, "where=secret.id%3D1", "where=a.b%3D1", "where=%28",
         "where=a", "where=a%3D'", "where=a%3D1%20and", "columns=a.b", "columns=", "limit=-1", "where=" + "%28" * 500,
         "where=" + "not%20" * 500 + "a%3D1", "where=b%20in%20%28%29", "where=a%3D1e999", "where=1%3D1"],
    )  # fmt: skip
    def test_no_parameter_is_an_error_of_ours(self, api: Function, table: str, query: str) -> None:
        answer = api("GET", f"/tables/{table}/rows", query=query)
        assert answer.status in (200, 400, 404), answer.body


class TestTimes:
    @pytest.mark.parametrize("value", [1 << 62, -(1 << 62), 253_402_300_800_000_000])
    def test_a_time_that_python_cannot_hold_is_no_error_of_ours(self, api: Function, value: int) -> None:
        name = f"silver.t{uuid4().hex[:10]}"
        api("POST", "/tables", {"name": name, "columns": {"at": "timestamp"}})
        rows, sink = pa.table({"at": pa.array([0, value], pa.timestamp("us"))}), io.BytesIO()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        answer = api("POST", f"/tables/{name}/rows", sink.getvalue(), media_type=ARROW)
        assert answer.status == 400 and "years 1 to 9999" in answer.body["detail"], answer.body


class TestEntries:
    PATH = "/timeline/tile/entries/000.p/1"

    def test_a_stage_decides_who_reads_them(self, api: Function, monkeypatch: pytest.MonkeyPatch) -> None:
        put = api.lake.s3.put_object
        put(Bucket=api.lake.settings.bucket, Key=self.PATH.removeprefix("/"), Body=b"\0\1x")
        assert api("GET", self.PATH).status == 200
        assert api("GET", self.PATH, **as_writer("silver.*")).status == 403
        monkeypatch.setenv("STRANDLINE_PUBLIC_ENTRIES", "true")
        monkeypatch.setenv("STRANDLINE_FUNCTION", "public")
        api.restart()
        opened = api("GET", self.PATH, anonymous=True)
        assert opened.status == 200 and opened.headers["Cache-Control"].startswith("public")
        monkeypatch.undo()
        api.restart()
        assert api("GET", self.PATH, anonymous=True).status == 401


class TestUploads:
    def begin(self, api: Function, table: str, name: str, digest: str, **claims: Any) -> Any:
        return api("POST", "/ingest/uploads", {"table": table, "name": name, "sha256": digest}, **claims)

    def test_a_writer_creates_no_table_by_a_file(self, api: Function, table: str) -> None:
        made = f"silver.t{uuid4().hex[:10]}"
        refused = self.begin(api, made, "a.jsonl", "0" * 64, **as_writer("silver.*"))
        assert (refused.status, refused.body["type"]) == (403, "urn:strandline:denied")
        assert self.begin(api, made, "a.jsonl", "0" * 64).status == 201
        allowed = self.begin(api, table, "a.jsonl", "0" * 64, **as_writer("silver.*"))
        assert allowed.status == 201 and allowed.body["headers"]["x-amz-meta-strandline-table"] == "must-exist"

    def test_a_writer_fills_a_table_that_an_admin_declared(self, api: Function) -> None:
        declared = f"silver.t{uuid4().hex[:10]}"
        assert api("PUT", f"/tables/{declared}/rule", {"columns": {"n": "long"}}).status == 200
        assert self.begin(api, declared, "a.jsonl", "0" * 64, **as_writer("silver.*")).status == 201

    def test_who_claims_the_same_bytes_hides_nobodys_upload(self, api: Function, table: str) -> None:
        data = uuid4().hex.encode()
        digest, bucket = sha256(data).hexdigest(), api.lake.settings.bucket
        other = f"silver.t{uuid4().hex[:10]}"
        api("POST", "/tables", {"name": other, "columns": COLUMNS})
        link = self.begin(api, table, "mine.jsonl", digest).body
        assert api("GET", f"/ingest/{digest}").body["status"] == "unknown"
        api.lake.s3.put_object(Bucket=bucket, Key=link["key"], Body=data, ChecksumAlgorithm="SHA256")
        assert self.begin(api, other, "theirs.jsonl", digest, **as_writer(other)).status == 201
        files = api("GET", f"/ingest/{digest}", **as_writer(table)).body["files"]
        assert [(file["status"], file["key"]) for file in files] == [("landing", link["key"])]
        assert api("GET", f"/ingest/{digest}", **as_writer(other)).body["files"] == []

    def test_other_bytes_under_the_key_are_not_the_claimed_ones(self, api: Function, table: str) -> None:
        link = self.begin(api, table, f"{uuid4().hex}.jsonl", "1" * 64).body
        api.lake.s3.put_object(
            Bucket=api.lake.settings.bucket, Key=link["key"], Body=b"other", ChecksumAlgorithm="SHA256"
        )
        assert api("GET", f"/ingest/{'1' * 64}").body["files"] == []
