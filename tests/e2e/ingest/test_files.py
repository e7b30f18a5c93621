"""A file dropped into the bucket is in its table and in the timeline, once, whatever its name and however it comes."""

from __future__ import annotations

import gzip
import io
import json
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.ingest.rules import Rule, RuleStore
from catalog.lake import Lake
from infra.local.cloud import EmbeddedCloud

Drops = dict[str, bytes]


def drop(cloud: EmbeddedCloud, lake: Lake, files: Drops) -> None:
    for key, body in files.items():
        lake.s3.put_object(Bucket=lake.settings.bucket, Key=f"landing/bronze/{key}", Body=body)
    cloud.wait_until_idle()
    assert not {name: counts for name, counts in cloud.queues().items() if any(counts)}


def rows(lake: Lake, table: str, *columns: str) -> list[tuple[Any, ...]]:
    records = lake.tables.scan(f"bronze.{table}").select(list(columns)).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in records)


def reports(lake: Lake, prefix: str) -> list[dict[str, Any]]:
    answer = lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=f"quarantine/{prefix}/")
    keys = [item["Key"] for item in answer.get("Contents", ()) if item["Key"].endswith(".json")]
    return [json.loads(lake.s3.get_object(Bucket=lake.settings.bucket, Key=key)["Body"].read()) for key in keys]


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "body", "columns", "expected"),
    [
        ("a.jsonl", b'{"id": 1, "at": "2026-01-01"}\n{"id": 2}\n', "id at", [(1, date(2026, 1, 1)), (2, None)]),
        ("a.json", b'[{"id": 1}, {"id": 2.5}]', "id", [(1.0,), (2.5,)]),
        ("a.csv", b"id,code,ok\n1,007,true\n2,008,false\n", "id code ok", [(1, "007", True), (2, "008", False)]),
        ("a.csv.gz", gzip.compress(b"id,name\n1,x\n", mtime=0), "id name", [(1, "x")]),
        ("a.parquet", parquet(pa.table({"id": [1, 2]})), "id", [(1,), (2,)]),
        ("a.txt", b"one\ntwo\n", "line text", [(1, "one"), (2, "two")]),
        ("a.md", b"---\ntags: [sea]\n---\n# Tide\nsee [[Moon]]\n", "title tags links", [("Tide", ["sea"], ["Moon"])]),
        ("a.md.gz", gzip.compress(b"# Neap\n", mtime=0), "title tags", [("Neap", [])]),
    ],
)  # fmt: skip
def test_a_file_becomes_rows_and_a_leaf(
    cloud: EmbeddedCloud, lake: Lake, name: str, body: bytes, columns: str, expected: list[tuple[Any, ...]]
) -> None:
    table = "kind_" + name.replace(".", "_")
    drop(cloud, lake, {f"{table}/{name}": body})
    assert rows(lake, table, *columns.split()) == expected
    head = lake.tables.history(f"bronze.{table}")[0]
    _, leaf = lake.timeline.find(head.snapshot_id)
    assert leaf.table == f"bronze.{table}"


def test_a_file_that_is_put_again_as_it_was_makes_rows_once(cloud: EmbeddedCloud, lake: Lake) -> None:
    body = b'{"id": 1}\n'
    drop(cloud, lake, {"once/a.jsonl": body})
    drop(cloud, lake, {"once/a.jsonl": body})
    drop(cloud, lake, {"once/d.jsonl": b'{"id": 2}\n'})
    assert rows(lake, "once", "id") == [(1,), (2,)]


def test_every_key_has_its_rows_whatever_its_bytes(cloud: EmbeddedCloud, lake: Lake) -> None:
    drop(cloud, lake, {"copies/c1/x.md": b"# Same\n", "copies/c2/x.md": b"# Same\n"})
    assert rows(lake, "copies", "path") == [("c1/x.md",), ("c2/x.md",)]


def test_a_file_that_was_replaced_and_comes_back_counts(cloud: EmbeddedCloud, lake: Lake) -> None:
    RuleStore(lake.s3, lake.settings.bucket, lake.tables).set("bronze.vault", Rule(key=("path",)))
    for body in (b"# A\n", b"# B\n", b"# A\n"):
        drop(cloud, lake, {"vault/x.md": body})
    assert rows(lake, "vault", "path", "title") == [("x.md", "A")]


def test_a_name_is_a_label_whatever_is_in_it(cloud: EmbeddedCloud, lake: Lake) -> None:
    names = ["a b+c %20 100%.jsonl", "élan/日本 🌊.jsonl", "a..b/..c.jsonl", 'quote"&=?#.jsonl']
    drop(cloud, lake, {f"names/{name}": json.dumps({"name": name}).encode() for name in names})
    assert rows(lake, "names", "name") == sorted((name,) for name in names)


def test_a_bad_file_is_kept_aside_and_the_others_go_in(cloud: EmbeddedCloud, lake: Lake) -> None:
    drop(cloud, lake, {"mixed/first.jsonl": b'{"id": 1}\n'})
    bad = {
        "mixed/syntax.jsonl": b'{"id": 2}\n{"id":',
        "mixed/column.jsonl": b'{"id": 3}\n{"id": 4, "typo": 1}\n',
        "mixed/type.csv": b"id\n5\nsix\n",
        "mixed/what.exe": b"MZ",
    }
    drop(cloud, lake, {**bad, "mixed/good.csv": b"id\n7\n", "mixed/good.jsonl": b'{"id": 8}\n'})
    assert rows(lake, "mixed", "id") == [(1,), (7,), (8,)]
    by_source = {report["source"].removeprefix("landing/bronze/"): report for report in reports(lake, "bronze/mixed")}
    assert set(by_source) == set(bad)
    assert by_source["mixed/syntax.jsonl"]["position"] == {"line": 2}
    assert "typo" in by_source["mixed/column.jsonl"]["reason"]
    assert by_source["mixed/type.csv"]["position"] == {"row": 3, "column": "id"}
    for name, report in by_source.items():
        kept = lake.s3.get_object(Bucket=lake.settings.bucket, Key=report["kept_as"])["Body"].read()
        assert kept == bad[name]


def test_a_file_that_was_mended_goes_in(cloud: EmbeddedCloud, lake: Lake) -> None:
    drop(cloud, lake, {"mended/a.jsonl": b'{"id": 1}\n{"id"'})
    drop(cloud, lake, {"mended/a.jsonl": b'{"id": 1}\n{"id": 2}\n'})
    assert rows(lake, "mended", "id") == [(1,), (2,)]


def test_a_key_that_names_no_table_is_kept_aside(cloud: EmbeddedCloud, lake: Lake) -> None:
    lake.s3.put_object(Bucket=lake.settings.bucket, Key="landing/stray.jsonl", Body=b'{"id": 1}\n')
    lake.s3.put_object(Bucket=lake.settings.bucket, Key="landing/nowhere/t/a.jsonl", Body=b'{"id": 1}\n')
    cloud.wait_until_idle()
    (stray,) = reports(lake, "unplaced")
    assert "names no table" in stray["reason"] and stray["source"] == "landing/stray.jsonl"
    (nowhere,) = reports(lake, "nowhere/t")
    assert "no namespace 'nowhere'" in nowhere["reason"]


def test_many_small_files_are_few_commits(cloud: EmbeddedCloud, lake: Lake) -> None:
    drop(cloud, lake, {"many/0.jsonl": b'{"id": 0}\n'})
    drop(cloud, lake, {f"many/{n}.jsonl": f'{{"id": {n}}}\n'.encode() for n in range(1, 21)})
    assert rows(lake, "many", "id") == [(n,) for n in range(21)]
    assert len(lake.tables.history("bronze.many")) < 20
