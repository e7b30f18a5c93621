"""What callers send that they should not: each request gets a reason, and none is an error of ours."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.formats import apart
from functions.api.row_formats import ARROW, PARQUET
from tests.worlds import bad_reader, times
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

    @pytest.mark.parametrize(
        "rows",
        [
            [1] * 100_000,
            [{"x" * 4_000_000: 1}],
            [{"a": "x" * 4_000_000}],
            [{"a": 1, "b": ["x" * 4_000_000]}],
            [{"a": [[[["x" * 4_000_000]]]]}],
        ],
        ids=["100,000 faults", "a name", "a value", "a list", "a nested list"],
    )
    def test_a_problem_is_small_whatever_it_quotes(self, api: Function, table: str, rows: list[Any]) -> None:
        """Lambda makes an error of a response of more than 6 MB."""
        answer = api("POST", f"/tables/{table}/rows", {"rows": rows})
        assert answer.status == 400 and len(json.dumps(answer.body)) < 32_000, answer.status

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
    @pytest.mark.parametrize("label", [label for label in times.columns_out_of_range() if "in a " not in label])
    def test_a_time_that_no_table_can_hold_is_a_400_with_its_row(self, api: Function, label: str) -> None:
        column, name = times.columns_out_of_range()[label], f"silver.t{uuid4().hex[:10]}"
        zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
        type_ = "date" if pa.types.is_date(column.type) else "timestamptz" if zoned else "timestamp"
        assert api("POST", "/tables", {"name": name, "columns": {"at": type_}}).status == 201
        for media_type, body in ((ARROW, times.arrow(column)), (PARQUET, times.parquet(column))):
            answer = api("POST", f"/tables/{name}/rows", body, media_type=media_type)
            assert answer.status == 400 and "row 1, column 'at'" in answer.body["detail"], answer.body

    @pytest.mark.parametrize("label", [label for label in times.files_out_of_range() if "int96" in label])
    def test_an_int96_that_no_table_can_hold_is_a_400_with_its_row(self, api: Function, label: str) -> None:
        name = f"silver.t{uuid4().hex[:10]}"
        api("POST", "/tables", {"name": name, "columns": {"at": "timestamp"}})
        body = times.files_out_of_range()[label][1]
        answer = api("POST", f"/tables/{name}/rows", body, media_type=PARQUET)
        assert answer.status == 400 and "row 1, column 'at'" in answer.body["detail"], answer.body

    @pytest.mark.parametrize(
        ("type_", "text"),
        [("timestamp", "10000-01-01T00:00:00"), ("timestamp", "0000-12-31T23:59:59"), ("date", "10000-01-01"),
         ("date", "0000-12-31"), ("timestamptz", "9999-12-31T23:59:59-01:00"), ("date", "-0001-01-01"),
         ("timestamptz", "0001-01-01T00:00:00+01:00"), ("timestamp", 253_402_300_800_000_000), ("date", 1e300)],
    )  # fmt: skip
    def test_a_text_that_is_no_time_of_a_table_is_a_400_with_its_row(
        self, api: Function, type_: str, text: Any
    ) -> None:
        name = f"silver.t{uuid4().hex[:10]}"
        api("POST", "/tables", {"name": name, "columns": {"at": type_}})
        answer = api("POST", f"/tables/{name}/rows", {"rows": [{"at": None}, {"at": text}]})
        assert answer.status == 400 and "row 1, column 'at'" in answer.body["detail"], answer.body

    def test_the_first_and_the_last_time_are_in_every_answer(self, api: Function) -> None:
        for type_, column in times.columns_at_the_ends().items():
            name = f"silver.t{uuid4().hex[:10]}"
            api("POST", "/tables", {"name": name, "columns": {"at": type_}})
            assert api("POST", f"/tables/{name}/rows", times.arrow(column), media_type=ARROW).status == 200
            path = f"/tables/{name}/rows"
            texts = [value.isoformat() for value in column.to_pylist()]
            assert [row["at"] for row in api("GET", path).body["rows"]] == texts
            assert api("GET", path, accept="text/csv").body.split() == ["at", *texts]
            stream = pa.ipc.open_stream(api("GET", path, accept=ARROW).body).read_all()
            assert stream["at"].combine_chunks().equals(column)
            stored = pq.read_table(io.BytesIO(api("GET", path, accept=PARQUET).body))
            assert stored["at"].cast(column.type).combine_chunks().equals(column)

    @pytest.mark.parametrize(
        "value", ["timestamp '294246-01-01'", "date '10000-01-01'", "date '0001-01-01' - 1", "'infinity'::timestamp"]
    )
    @pytest.mark.parametrize("accept", ["application/json", "text/csv", ARROW, PARQUET])
    def test_a_computed_time_beyond_python_is_no_error_of_ours(self, api: Function, value: str, accept: str) -> None:
        answer = api("POST", "/query", {"sql": f"select {value} as t"}, accept=accept)
        assert answer.status == (200 if accept in (ARROW, PARQUET) else 400), answer.body


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
