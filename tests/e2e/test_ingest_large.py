"""Files too large to hold: read twice, committed in pieces, visible whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errors import Unavailable
from catalog.ingest import appends, flow
from catalog.ingest.outcomes import Outcome
from catalog.lake import Lake
from catalog.pipeline import formats, json_rows
from catalog.pipeline.landing import Landed
from catalog.pipeline.limits import Limits
from infra.local.cloud import EmbeddedCloud
from tests.e2e.flow import lake_of

LIMITS = Limits(row_bytes=2048)
BUCKET = "drops"  # nobody listens to this one: the test itself runs the flow


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud:
        yield cloud


@pytest.fixture
def lake(cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Everything is large, and a few rows are a block or a piece."""
    monkeypatch.setattr(flow, "HOLD_BYTES", 1)
    monkeypatch.setattr(appends, "PIECE_BYTES", 3000)
    monkeypatch.setattr(json_rows, "BLOCK_BYTES", 2048)
    monkeypatch.setattr(formats, "PARQUET_ROWS", 500)
    lake = lake_of(cloud, monkeypatch)
    lake.s3.create_bucket(Bucket=BUCKET)
    return lake


def ingest(lake: Lake, name: str, body: bytes) -> Outcome:
    key = f"landing/bronze/{name}"
    lake.s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    (outcome,) = flow.Ingest(lake.s3, lake.tables, LIMITS).run([Landed(BUCKET, key)])
    return outcome


def data_files(lake: Lake, table: str) -> int:
    answer = lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=f"tables/bronze/{table}/data/")
    return int(answer["KeyCount"])


def lines(count: int) -> bytes:
    return b"".join(b'{"id": %d, "text": "row %d"}\n' % (n, n) for n in range(count))


def parquet(count: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(count)}), sink, row_group_size=500)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("large_jsonl/a.jsonl", lines(2000)),
        ("large_csv/a.csv", b"id\n" + b"".join(b"%d\n" % n for n in range(2000))),
        ("large_parquet/a.parquet", parquet(2000)),
    ],
)
def test_a_large_file_is_one_commit_of_several_files_once(lake: Lake, name: str, body: bytes) -> None:
    table = name.partition("/")[0]
    first, again = ingest(lake, name, body), ingest(lake, name.replace("/a", "/b"), body)
    assert (first.status, again.status) == ("committed", "duplicate")
    assert sorted(lake.tables.scan(f"bronze.{table}")["id"].to_pylist()) == list(range(2000))
    assert len(lake.tables.history(f"bronze.{table}")) == 1
    assert data_files(lake, table) > 1


@pytest.mark.parametrize(
    ("table", "last", "reason"),
    [
        ("spoilt_value", b'{"id": "no number"}\n', "line 2001, column 'id': it changed from number to string"),
        ("spoilt_column", b'{"id": 1, "typo": 1}\n', "unknown column 'typo'"),
        ("spoilt_key", b'{"text": "no id"}\n', "row 2000, column 'id': it is required"),
    ],
)
def test_a_fault_in_the_last_row_leaves_nothing(lake: Lake, table: str, last: bytes, reason: str) -> None:
    lake.tables.create(f"bronze.{table}", {"id": "long", "text": "string"}, key=["id"])
    outcome = ingest(lake, f"{table}/a.jsonl", lines(2000) + last)
    assert outcome.status == "quarantined" and outcome.error is not None
    assert reason in outcome.error.message
    assert lake.tables.scan(f"bronze.{table}").num_rows == 0
    assert data_files(lake, table) == 0


def test_a_csv_column_that_turns_out_to_be_text_is_text_from_the_start(lake: Lake) -> None:
    values = [f"{n}.50" for n in range(1000)] + ["n/a"]
    assert ingest(lake, "turns/a.csv", ("price\n" + "\n".join(values)).encode()).status == "committed"
    assert sorted(lake.tables.scan("bronze.turns")["price"].to_pylist()) == sorted(values)


def test_what_the_lake_could_not_do_is_not_the_files_fault(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unavailable("Glue is away")

    with monkeypatch.context() as patch:
        patch.setattr(flow, "append_in_pieces", refuse)
        outcome = ingest(lake, "later/a.jsonl", lines(10))
    assert (outcome.status, outcome.report) == ("failed", None)
    assert ingest(lake, "later/a.jsonl", lines(10)).status == "committed"
    (gone,) = flow.Ingest(lake.s3, lake.tables).run([Landed(BUCKET, "landing/bronze/later/never.jsonl")])
    assert gone.status == "gone"
