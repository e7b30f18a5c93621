"""The canary asks every kind of read and proof, and a read that breaks is named; it writes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.canary import SEQUENCED_WITHIN_MS, Survey, survey
from catalog.lake import Lake
from catalog.timeline.log.store import StoreReader
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence

OF_TIMELINE = ["tables", "checkpoint", "proof", "consistency"]
OF_TABLE = ["describe", "rows", "query fresh", "sequenced", "as-of proof", "query", "query as of", "query verified",
            "commits", "changes", "row proof"]  # fmt: skip
TABLE = "silver.tides"


@pytest.fixture
def own_server() -> Iterator[ApiServer]:
    """The canary reads every table of the catalog, so it needs a catalog without other tests' tables."""
    server = ApiServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def lake(own_server: ApiServer) -> Iterator[Lake]:
    with lake_on(own_server) as lake:
        yield lake


def asked(lake: Lake, now_ms: int | None = None) -> Survey:
    return survey(lake.settings, now_ms or time.time_ns() // 1_000_000, 60)


def filled(lake: Lake) -> None:
    lake.tables.create(TABLE, {"station": "string", "metres": "double"}, key=["station"])
    lake.tables.insert(TABLE, [{"station": "Brest", "metres": 4.2}, {"station": "Newlyn", "metres": 3.1}])
    sequence(lake, TABLE)
    lake.tables.upsert(TABLE, [{"station": "Brest", "metres": 6.9}])
    sequence(lake, TABLE)


def failures(found: Survey) -> dict[str, str]:
    return {read.name: read.error.message for read in found.failed if read.error}


def test_every_kind_of_read_is_asked_and_answered(lake: Lake) -> None:
    filled(lake)
    found = asked(lake)
    assert [read.name for read in found.reads] == [*OF_TIMELINE, *OF_TABLE, "search"]
    assert failures(found) == {} and found.left_out == 0


def test_an_empty_lake_has_nothing_that_fails(lake: Lake) -> None:
    assert failures(asked(lake)) == {}
    lake.tables.create(TABLE, {"station": "string"})
    assert failures(asked(lake)) == {}
    sequence(lake, TABLE)
    assert failures(asked(lake)) == {}


def test_it_writes_nothing(lake: Lake, own_server: ApiServer) -> None:
    filled(lake)
    mark = own_server.log.mark()
    assert asked(lake).reads
    assert all(action.split()[1].startswith(("GET", "HEAD", "Get", "List")) for action in own_server.log.counts(mark))


def test_reads_of_the_timeline_that_break_are_named(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a compaction whose files the reader cannot read: the tables themselves are well."""
    filled(lake)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("target_bytes_to_fetch > 0")

    monkeypatch.setattr(StoreReader, "scan", broken)
    found = failures(asked(lake))
    assert {"query", "query as of", "commits", "changes"} <= found.keys()
    assert not {"rows", "describe"} & found.keys()


def test_a_changed_byte_is_found_by_the_verified_query(lake: Lake) -> None:
    filled(lake)
    bucket = lake.settings.bucket
    for entry in lake.s3.list_objects_v2(Bucket=bucket, Prefix="tables/silver.db/tides")["Contents"]:
        if entry["Key"].endswith(".parquet"):
            body = lake.s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
            lake.s3.put_object(Bucket=bucket, Key=entry["Key"], Body=body[:10] + bytes([body[10] ^ 1]) + body[11:])
    assert "query verified" in failures(asked(lake))


def test_a_commit_that_is_not_sequenced_in_time_is_named(lake: Lake) -> None:
    filled(lake)
    lake.tables.insert(TABLE, [{"station": "Cork", "metres": 2.0}])
    now_ms = time.time_ns() // 1_000_000
    assert failures(asked(lake, now_ms)) == {}
    assert list(failures(asked(lake, now_ms + SEQUENCED_WITHIN_MS + 60_000))) == ["sequenced"]


def test_every_table_is_read_sooner_or_later(lake: Lake) -> None:
    names = [f"silver.t{number}" for number in range(6)]
    for name in names:
        lake.tables.create(name, {"id": "long"})
    sequence(lake, *names)
    seen = {read.table for now_ms in range(12) for read in asked(lake, now_ms).reads}
    assert seen == {None, *names}


def test_a_run_without_time_leaves_reads_out_and_says_so(lake: Lake) -> None:
    filled(lake)
    assert survey(lake.settings, 0, 0.0).left_out > 0
