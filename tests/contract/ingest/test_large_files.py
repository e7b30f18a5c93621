"""Files too large to hold: read twice, committed in pieces, visible whole or not at all."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.core.errors import Unavailable
from catalog.formats import json as json_format
from catalog.formats import parquet as parquet_format
from catalog.formats.limits import FormatLimits
from catalog.ingest import commit
from catalog.ingest import ingest as ingest_module
from catalog.ingest.outcomes import Outcome
from catalog.ingest.s3_events import LandedFile
from infra.local.server import ApiServer
from tests.worlds.ingest import IngestWorld

LIMITS = FormatLimits(row_bytes=2048)


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> IngestWorld:
    """Everything is large, and a few rows are a block or a piece."""
    monkeypatch.setattr(ingest_module, "HOLD_BYTES", 1)
    monkeypatch.setattr(commit, "PIECE_BYTES", 3000)
    monkeypatch.setattr(json_format, "BLOCK_BYTES", 2048)
    monkeypatch.setattr(parquet_format, "BATCH_ROWS", 500)
    return IngestWorld.create(server)


def ingest(world: IngestWorld, name: str, body: bytes) -> Outcome:
    (outcome,) = world.drop({name: body}, LIMITS)
    return outcome


def data_files(world: IngestWorld, table: str) -> int:
    return len(world.objects(f"tables/{world.namespace}/{table}/data/"))


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
    ids=["jsonl", "csv", "parquet"],
)
def test_a_large_file_is_one_commit_of_several_files_once(world: IngestWorld, name: str, body: bytes) -> None:
    table = name.partition("/")[0]
    landed = world.put(name, body)
    (first,), (again,) = (world.ingest(limits=LIMITS).run([landed]) for _ in range(2))
    assert (first.status, again.status) == ("committed", "duplicate")
    assert sorted(world.tables().scan(world.name(table))["id"].to_pylist()) == list(range(2000))
    assert len(world.tables().history(world.name(table))) == 1
    assert data_files(world, table) > 1


@pytest.mark.parametrize(
    ("table", "last", "reason"),
    [
        ("spoilt_value", b'{"id": "no number"}\n', "line 2001, column 'id': it changed from number to string"),
        ("spoilt_column", b'{"id": 2001, "typo": 1}\n', "unknown column 'typo'"),
        ("spoilt_key", b'{"text": "no id"}\n', "row 2000, column 'id': it is required"),
        ("doubled_key", b'{"id": 7}\n', "row 2000: rows 7 and 2000 have the same key"),
    ],
)
def test_a_fault_in_the_last_row_leaves_nothing(world: IngestWorld, table: str, last: bytes, reason: str) -> None:
    world.tables().create(world.name(table), {"id": "long", "text": "string"}, key=["id"])
    outcome = ingest(world, f"{table}/a.jsonl", lines(2000) + last)
    assert outcome.status == "quarantined" and outcome.error is not None
    assert reason in outcome.error.message
    assert world.tables().scan(world.name(table)).num_rows == 0
    assert data_files(world, table) == 0


def test_a_csv_column_that_turns_out_to_be_text_is_text_from_the_start(world: IngestWorld) -> None:
    values = [f"{n}.50" for n in range(1000)] + ["n/a"]
    assert ingest(world, "turns/a.csv", ("price\n" + "\n".join(values)).encode()).status == "committed"
    assert sorted(world.tables().scan(world.name("turns"))["price"].to_pylist()) == sorted(values)


def test_what_the_lake_could_not_do_is_not_the_files_fault(world: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise Unavailable("Glue is away")

    with monkeypatch.context() as patch:
        patch.setattr(ingest_module, "append_large_file", refuse)
        outcome = ingest(world, "later/a.jsonl", lines(10))
    assert (outcome.status, outcome.report) == ("failed", None)
    (record,) = world.ledger.find(str(outcome.digest))
    assert (record.state, record.reason) == ("failed", "Glue is away")
    assert ingest(world, "later/a.jsonl", lines(10)).status == "committed"
    (gone,) = world.ingest().run([LandedFile(world.bucket, f"landing/{world.namespace}/later/never.jsonl")])
    assert gone.status == "gone"
