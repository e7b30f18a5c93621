"""The Python client against the deployed API; and many callers at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

from catalog.merkle.note import VerifierKey
from catalog.merkle.proof import read, verify
from infra.local.cloud import EmbeddedCloud
from strandline.client import Client, Problem
from tests.e2e.api.caller import COLUMNS, ROWS
from tests.waiting import wait_until

CALLERS, CALLS = 16, 20


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
        rows = client.rows("bronze.lived", where="metres > 5", columns=["station"])
        assert rows.to_pylist() == [{"station": "Brest"}]
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

        (commit,) = wait_until(committed, "the insert in the timeline")
        proof = client.proof(snapshot_id=snapshot)
        keys = [VerifierKey.parse(key) for key in client.verifier_keys()]
        assert (
            verify(proof, read(proof).extra, keys).index == commit["index"] == client.commit(commit["index"])["index"]
        )
        (changes,) = client.changes("gold.proven", until=f"sequence:{commit['sequence']}")
        assert [change["op"] for change in changes["changes"]] == ["INSERT", "INSERT"]
        assert client.watermark("reports", "gold.proven") is None
        client.move_watermark("reports", "gold.proven", commit["sequence"])
        mark = wait_until(lambda: client.watermark("reports", "gold.proven"), "the watermark to be set")
        assert mark == commit["sequence"]
        size = int(client.checkpoint().split(b"\n")[1])
        assert client.consistency(size)["new_size"] >= size
        assert len(client.tile(f"tile/0/000.p/{size}")) == 32 * size
        counted = "select count(*) as n from gold.proven"
        assert client.query(counted)["n"].to_pylist() == [2]
        assert client.query(counted, as_of=commit["index"], verify=True)["n"].to_pylist() == [2]

    def test_a_file_is_sent_and_found(self, client: Client, cloud: EmbeddedCloud) -> None:
        digest = client.upload("bronze.sent", "a.csv", b"station,metres\nBrest,4.2\n")
        cloud.wait_until_idle()
        assert client.where_is(digest)["status"] == "committed"
        assert client.health()["status"] == "ok" and client.metrics()["tables"] >= 1 and client.openapi()


def test_many_callers_at_once_are_all_answered(client: Client, cloud: EmbeddedCloud) -> None:
    client.create_table("silver.busy", COLUMNS)
    client.insert("silver.busy", ROWS)
    endpoint, headers = cloud.addresses()["api"], {"Authorization": f"Bearer {cloud.token('admin')}"}
    paths = ("/tables/silver.busy", "/tables", "/timeline/checkpoint", "/tables/silver.busy/rows", "/health")
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def call(caller: int) -> None:
        with httpx.Client(timeout=60) as http:
            for number in range(caller, caller + CALLS):
                answer = http.get(endpoint + paths[number % len(paths)], headers=headers)
                with lock:
                    seen[answer.status_code] += 1

    threads = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {200: CALLERS * CALLS}
