"""Ingestion as its operators see it: bad inputs by the dozen, metrics, rules, dead letters, and where a file is now."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from catalog.core import metrics
from catalog.ingest.ledger import Ledger
from catalog.ingest.rules import Rule, RuleStore
from catalog.lake import Lake
from infra.local.cloud import EmbeddedCloud
from tests.unit.formats.test_media import PNG
from tests.waiting import wait_until
from tests.worlds.cli import answer, run
from tests.worlds.ingest_cases import CASES, GOOD, RULE


def emitted_metrics(cloud: EmbeddedCloud, function: str = "ingest") -> list[dict[str, Any]]:
    lines = cloud.functions.logs(f"strandline-dev-{function}")
    return [json.loads(line) for line in lines if line.startswith("{") and '"_aws"' in line]


def test_bad_inputs_by_the_dozen_harm_nothing(cloud: EmbeddedCloud, lake: Lake) -> None:
    cases = [case for case in CASES if not case.limits]
    assert len(cases) >= 60
    bucket, before = lake.settings.bucket, len(emitted_metrics(cloud))
    RuleStore(lake.s3, bucket, lake.tables).set("silver.ruled", RULE)
    for table, (name, body) in GOOD.items():
        lake.s3.put_object(Bucket=bucket, Key=f"landing/silver/{table}/{name}", Body=body)
    cloud.wait_until_idle(120)
    for case in cases:
        lake.s3.put_object(Bucket=bucket, Key=f"landing/silver/{case.table}/{case.name}", Body=case.body)
    cloud.wait_until_idle(120)
    assert not {name: counts for name, counts in cloud.queues().items() if any(counts)}, "nothing is a dead letter"
    ledger = Ledger(lake.s3, bucket)
    for case in cases:
        records = ledger.find(sha256(case.body).hexdigest())
        (record,) = [r for r in records if r.key == f"landing/silver/{case.table}/{case.name}"]
        assert record.state == "quarantined", case
        report = json.loads(lake.s3.get_object(Bucket=bucket, Key=str(record.report))["Body"].read())
        assert report["source"] == record.key and report["reason"] == record.reason
    for table in GOOD:
        assert lake.tables.scan(f"silver.{table}").num_rows == 1, table
    told = emitted_metrics(cloud)[before:]
    counted = {name: sum(int(entry[name][0]) for entry in told) for name in ("FilesQuarantined", "FilesCommitted")}
    assert counted == {"FilesQuarantined": len(cases), "FilesCommitted": len(GOOD)}
    lake.verifier.verify().check()


def test_a_batch_tells_its_metrics_on_stdout(cloud: EmbeddedCloud, lake: Lake) -> None:
    before = len(emitted_metrics(cloud))
    lake.s3.put_object(Bucket=lake.settings.bucket, Key="landing/bronze/measured/a.csv", Body=b"id\n1\n2\n")
    cloud.wait_until_idle()
    (entry,) = [line for line in emitted_metrics(cloud)[before:] if line["FilesCommitted"] == [1]]
    assert entry["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Strandline" and entry["service"] == "ingest"
    names = ("FilesCommitted", "FilesDuplicate", "FilesQuarantined", "FilesFailed", "Rows", "Bytes")
    assert [entry[name] for name in names] == [[1], [0], [0], [0], [2], [7]]
    assert entry["Duration"][0] > 0
    # An alarm finds a figure by all of its dimensions, and no other way.
    (dimensions,) = entry["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
    assert set(dimensions) == {"service", "stage"} and entry["stage"] == "dev"


def test_the_sequencer_tells_how_far_behind_it_was(cloud: EmbeddedCloud, lake: Lake) -> None:
    before = len(emitted_metrics(cloud, "sequencer"))
    lake.s3.put_object(Bucket=lake.settings.bucket, Key="landing/bronze/sequenced/a.csv", Body=b"id\n1\n")
    cloud.wait_until_idle()
    told = [entry for entry in emitted_metrics(cloud, "sequencer")[before:] if metrics.LEAVES in entry]
    assert sum(entry[metrics.LEAVES][0] for entry in told) >= 1
    assert all(0 <= entry[metrics.LAG][0] < 3_600_000 for entry in told)
    assert not any(metrics.UNSEQUENCED in entry or metrics.UNVERIFIED in entry for entry in told)
    assert {(entry["service"], entry["stage"]) for entry in told} == {("sequencer", "dev")}


def test_put_sees_files_into_their_table(cloud: EmbeddedCloud, lake: Lake, tmp_path: Path) -> None:
    good, copy, bad, picture = (tmp_path / name for name in ("a b.jsonl", "copy.jsonl", "bad.jsonl", "p.png"))
    good.write_bytes(b'{"id": 7401}\n')  # bytes that no other test of this lake lets in
    bad.write_bytes(b'{"id": 1}\n{"id":')
    picture.write_bytes(PNG)
    (row,) = answer("ingest", "put", str(good), "bronze.put")
    assert (row["state"], row["rows"]) == ("committed", 1)
    copy.write_bytes(good.read_bytes())
    result = run("-o", "json", "ingest", "put", str(copy), str(bad), "bronze.put")
    assert result.exit_code == 1
    second, third = json.loads(result.stdout)
    assert (second["state"], third["state"], third["position"]) == ("committed", "quarantined", {"line": 2})
    (media,) = answer("ingest", "put", str(picture), "bronze.raw_media")
    assert media["state"] == "committed"

    (status,) = answer("ingest", "status", row["key"])
    assert (status["state"], status["table"], status["snapshot_id"]) == ("committed", "bronze.put", row["snapshot_id"])
    both = answer("ingest", "status", row["digest"])
    assert [(r["state"], r["key"]) for r in both] == [("committed", row["key"]), ("committed", second["key"])]
    (kept,) = answer("ingest", "status", third["key"])
    assert kept["report"].startswith("quarantine/bronze/put/")
    assert run("ingest", "status", "0" * 64).exit_code == 1
    assert run("ingest", "status", "landing/bronze/put/never.jsonl").exit_code == 1
    assert "committed" in run("ingest", "status", row["digest"]).stdout


def test_put_keeps_the_paths_of_files(
    cloud: EmbeddedCloud, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A vault has notes of one name in many folders."""
    answer("ingest", "rule", "set", "bronze.vault_put", "--key", "path")
    monkeypatch.chdir(tmp_path)
    for folder in ("c1", "c2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.md").write_text("# Same\n")
    done = answer("ingest", "put", "c1/x.md", "./c2/x.md", "bronze.vault_put")
    keys = [f"landing/bronze/vault_put/{folder}/x.md" for folder in ("c1", "c2")]
    assert [(row["state"], row["key"]) for row in done] == [("committed", key) for key in keys]
    paths = lake.tables.scan("bronze.vault_put")["path"].to_pylist()
    assert sorted(paths) == ["c1/x.md", "c2/x.md"]
    (below,) = answer("ingest", "put", str(tmp_path / "c1" / "x.md"), "bronze.vault_put", "--root", str(tmp_path))
    assert below["key"] == keys[0]
    refused = run("ingest", "put", "c1/x.md", "./c1/x.md", "bronze.vault_put")
    assert refused.exit_code != 0 and "would both be" in str(refused.exception)
    outside = run("ingest", "put", "c1/x.md", "bronze.vault_put", "--root", "c2")
    assert outside.exit_code != 0 and "is not below" in str(outside.exception)


def test_rules_are_set_and_followed(cloud: EmbeddedCloud, lake: Lake, tmp_path: Path) -> None:
    words = ("--column", "id:long", "--column", "v:string", "--key", "id", "--unknown", "ignore")
    made = answer("ingest", "rule", "set", "bronze.ruled", *words)
    assert made["columns"] == {"id": "long", "v": "string"} and made["key"] == ["id"]
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_bytes(b'{"id": 1, "v": "a"}\n')
    second.write_bytes(b'{"id": 1, "v": "b", "x": 0}\n')
    for file in (first, second):
        answer("ingest", "put", str(file), "bronze.ruled")
    assert lake.tables.scan("bronze.ruled").to_pylist() == [{"id": 1, "v": "b"}]
    file = tmp_path / "rule.json"
    file.write_text(Rule(unknown="evolve").model_dump_json())
    assert answer("ingest", "rule", "set", "bronze.ruled", "--file", str(file))["unknown"] == "evolve"
    assert answer("ingest", "rule", "get", "bronze.ruled")["unknown"] == "evolve"
    assert "bronze.ruled" in [rule["table"] for rule in answer("ingest", "rule", "list", "bronze")]
    answer("ingest", "rule", "remove", "bronze.ruled")
    assert run("ingest", "rule", "get", "bronze.ruled").exit_code == 1
    assert run("ingest", "rule", "set", "bronze.ruled", "--column", "id").exit_code != 0


def test_dead_letters_are_shown_and_brought_back(cloud: EmbeddedCloud, lake: Lake) -> None:
    sqs, queue = lake.client("sqs"), str(lake.settings.landed_queue_url)
    attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["RedrivePolicy"])["Attributes"]
    name = json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"].rpartition(":")[2]
    dead = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    landed = {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": lake.settings.bucket}, "object": {}}}
    lake.s3.put_object(Bucket=lake.settings.bucket, Key="landing/bronze/late/a.csv", Body=b"id\n1\n")
    cloud.wait_until_idle()
    lake.tables.drop("bronze.late")  # as if it had never come through: the message is all there is
    landed["s3"]["object"] = {"key": "landing/bronze/late/a.csv"}  # type: ignore[index]
    for body in (json.dumps({"Records": [landed]}), "not from S3"):
        sqs.send_message(QueueUrl=dead, MessageBody=body)

    shown = answer("ingest", "redrive", "--dry-run")
    assert sorted((tuple(letter["keys"]), bool(letter["reason"])) for letter in shown) == [
        ((), True),
        (("landing/bronze/late/a.csv",), False),
    ]
    assert cloud.queues()[name][0] == 2, "they are only looked at"
    assert len(answer("ingest", "redrive", "--limit", "1")) == 1
    assert len(answer("ingest", "redrive")) == 1
    assert cloud.queues()[name] == (0, 0)
    wait_until(
        lambda: "bronze.late" in lake.tables.list("bronze") and lake.tables.scan("bronze.late").num_rows == 1,
        "the file's row in its table",
    )
    assert "0 sent back" in run("ingest", "redrive").stdout
