"""The Python client and `strandline api` against the deployed API; and many callers at once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from catalog.errors import Denied, Invalid, NotFound, Unavailable
from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import read, verify
from cli.client import Client, Problem
from cli.main import app
from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import COLUMNS, ROWS
from tests.e2e.flow import eventually

CALLERS, SECONDS = 16, 3.0


@pytest.fixture(scope="module")
def client(cloud: EmbeddedCloud) -> Iterator[Client]:
    with Client(cloud.addresses()["api"], cloud.token("admin")) as client:
        yield client


class TestClient:
    def test_a_tables_life(self, client: Client) -> None:
        client.create_table("bronze.lived", COLUMNS, key=["station"])
        assert client.insert("bronze.lived", ROWS)["rows"] == 2
        first = client.insert("bronze.lived", pa.table({"station": ["Dover"], "metres": [5.0]}))
        client.name_snapshot("three", "bronze.lived")
        assert client.delete("bronze.lived", keys=[{"station": "Dover"}])["rows"] == 1
        assert client.upsert("bronze.lived", [{"station": "Brest", "metres": 6.9}])["matched"] == 1
        found = client.rows("bronze.lived", where="metres > 5", columns=["station"])
        assert found.to_pylist() == [{"station": "Brest"}]
        assert client.rows("bronze.lived", as_of="three").num_rows == 3
        assert [one["name"] for one in client.snapshots("bronze.lived")] == ["three"]
        changed = client.change_table("bronze.lived", add={"sea": "string"})
        assert client.schema("bronze.lived", changed["schema_version"])["columns"][-1]["name"] == "sea"
        assert "bronze.lived" in list(client.tables("bronze"))
        assert first["snapshot_id"] == next(iter(client.snapshots("bronze.lived")))["snapshot_id"]
        client.drop_table("bronze.lived", purge=True)
        with pytest.raises(Problem) as gone:
            client.describe("bronze.lived")
        assert (gone.value.status, gone.value.kind) == (404, "not_found") and gone.value.instance

    def test_a_commit_is_proven_and_its_changes_are_followed(self, client: Client) -> None:
        client.create_table("gold.proven", COLUMNS)
        snapshot = client.insert("gold.proven", ROWS)["snapshot_id"]

        def committed() -> Any:
            return [one for one in client.commits("gold.proven") if one.get("snapshot_id") == snapshot]

        (commit,) = eventually(committed)
        proof = client.proof(snapshot_id=snapshot)
        keys = [VerifierKey.parse(key) for key in client.verifier_keys()]
        assert (
            verify(proof, read(proof).extra, keys).index == commit["index"] == client.commit(commit["index"])["index"]
        )
        (changes,) = client.changes("gold.proven", until=commit["sequence"])
        assert [change["op"] for change in changes["changes"]] == ["INSERT", "INSERT"]
        assert client.watermark("reports", "gold.proven") is None
        client.move_watermark("reports", "gold.proven", commit["sequence"])
        assert eventually(lambda: client.watermark("reports", "gold.proven")) == commit["sequence"]
        size = int(client.checkpoint().split(b"\n")[1])
        assert client.consistency(size)["new_size"] >= size
        assert len(client.tile(f"tile/0/000.p/{size}")) == 32 * size
        assert client.query("select count(*) as n from gold.proven")["n"].to_pylist() == [2]

    def test_a_file_is_sent_and_found(self, client: Client, cloud: EmbeddedCloud) -> None:
        digest = client.upload("bronze.sent", "a.csv", b"station,metres\nBrest,4.2\n")
        cloud.wait_until_idle()
        assert client.where_is(digest)["status"] == "committed"
        assert client.health()["status"] == "ok" and client.metrics()["tables"] >= 1 and client.openapi()


class TestCommand:
    @pytest.fixture
    def run(self, cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("STRANDLINE_ENDPOINT", cloud.addresses()["api"])
        monkeypatch.setenv("STRANDLINE_TOKEN", cloud.token("admin"))

        def run(*words: str, fails: type[Exception] | None = None) -> Any:
            result = CliRunner().invoke(app, ["-o", "json", "api", *words])
            if fails is not None:
                assert isinstance(result.exception, fails), result.exception
                return str(result.exception)
            assert result.exit_code == 0, (result.output, result.exception)
            return json.loads(result.stdout)

        return run

    def test_rows_go_in_from_a_file_and_come_out(self, run: Any, cloud: EmbeddedCloud, tmp_path: Path) -> None:
        rows = tmp_path / "rows.csv"
        rows.write_text("station,metres\nBrest,4.2\nNewlyn,3.1\n")
        run("create", "silver.cli", "--column", "station:string", "--column", "metres:double", "--key", "station")
        assert run("insert", "silver.cli", str(rows))["rows"] == 2
        assert run("upsert", "silver.cli", str(rows))["matched"] == 2
        assert run("delete", "silver.cli", "metres > 4", "--yes")["rows"] == 1
        assert run("rows", "silver.cli") == [{"station": "Newlyn", "metres": 3.1}]
        assert "silver.cli" in run("list", "silver") and run("describe", "silver.cli")["rows"] == 1
        digest = run("upload", "bronze.cli", str(rows))["sha256"]
        cloud.wait_until_idle()
        assert run("where", digest)["status"] == "committed"
        commits = eventually(lambda: [one for one in run("commits", "silver.cli") if one["operation"] == "append"])
        run("proof", str(commits[0]["index"]), "--to", str(tmp_path / "p.tlog-proof"))
        assert (tmp_path / "p.tlog-proof").read_bytes().startswith(b"c2sp.org/tlog-proof@v1")

    def test_problems_are_the_lakes_own_errors(self, run: Any, cloud: EmbeddedCloud) -> None:
        assert "silver.nothing" in run("describe", "silver.nothing", fails=NotFound)
        run("--token", "wrong", "list", fails=Denied)
        run("where", "0" * 64, fails=NotFound)
        assert "no.sql cannot be read" in run("query", "@no.sql", fails=Invalid)
        reader = cloud.token("reader:silver.*")
        assert run("--token", reader, "create", "silver.x", "--column", "a:long", fails=Denied)

    def test_nobody_at_the_endpoint(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("cli.connection.LONGEST_WAIT_S", 0.0)
        run("--endpoint", "http://127.0.0.1:1", "health", fails=Unavailable)


def test_many_callers_at_once_are_all_answered(client: Client, cloud: EmbeddedCloud) -> None:
    client.create_table("silver.busy", COLUMNS)
    client.insert("silver.busy", ROWS)
    endpoint, headers = cloud.addresses()["api"], {"Authorization": f"Bearer {cloud.token('admin')}"}
    paths = ("/tables/silver.busy", "/tables", "/timeline/checkpoint", "/tables/silver.busy/rows", "/health")
    seen: Counter[int] = Counter()
    lock, until = threading.Lock(), time.monotonic() + SECONDS

    def call(number: int) -> None:
        with httpx.Client(timeout=60) as http:
            while time.monotonic() < until:
                answer = http.get(endpoint + paths[number % len(paths)], headers=headers)
                number += 1
                with lock:
                    seen[answer.status_code] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {200} and seen[200] >= CALLERS
