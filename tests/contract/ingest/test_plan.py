"""What files would become, what became of them, and the way back from quarantine."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import date
from typing import BinaryIO

import pytest

from catalog.core.errors import NotFound
from catalog.ingest import IngestPlan, Rule, find_report, list_quarantined, list_records, plan_files, retry_file
from infra.local.server import ApiServer
from tests.worlds.ingest import IngestWorld


@pytest.fixture
def world(server: ApiServer) -> IngestWorld:
    return IngestWorld.create(server)


def opener(body: bytes) -> Callable[[], BinaryIO]:
    return lambda: io.BytesIO(body)


def plan(world: IngestWorld, table: str, files: dict[str, bytes]) -> IngestPlan:
    openers = {name: opener(body) for name, body in files.items()}
    return plan_files(world.tables(), world.rules, world.name(table), openers)


def test_a_plan_shows_what_ingestion_then_does_and_writes_nothing(world: IngestWorld) -> None:
    files = {"a.csv": b"id;day;code\n1;13/04/2026;7\n2;01/02/2026;1\n", "b.csv": b"id;day;code\n3;02/02/2026;x\n"}
    before = world.objects("")
    made = plan(world, "t", files)
    assert world.objects("") == before and not made.exists and made.key == ()
    planned = {column.name: (column.type, column.source) for column in made.columns}
    assert planned == {"id": ("long", "rows"), "day": ("date", "rows"), "code": ("string", "rows")}
    doubts = {column.name: column.doubt for column in made.columns if column.doubt}
    assert list(doubts) == ["code"] and "'x' in row 2 is not" in doubts["code"]
    assert [(file.name, file.rows, file.error) for file in made.files] == [("a.csv", 2, None), ("b.csv", 1, None)]
    dialect = made.files[0].dialect
    assert dialect is not None and (dialect.delimiter, dialect.encoding) == (";", "utf-8")
    assert made.sample[0] == {"id": 1, "day": date(2026, 4, 13), "code": "7"}
    world.drop({f"t/{name}": body for name, body in files.items()})
    fields = world.tables().load(world.name("t")).schema().fields
    assert {field.name: (str(field.field_type), "rows") for field in fields} == planned


def test_a_plan_for_a_table_says_which_file_would_be_rejected(world: IngestWorld) -> None:
    world.rules.set(world.name("t"), Rule(columns={"id": "long"}, key=("id",)))
    world.drop({"t/a.csv": b"id\n1\n"})
    made = plan(world, "t", {"x.csv": b"id\n1\nx\n", "new.csv": b"id,n\n2,3\n", "ok.csv": b"id\n2\n", "no.csv": b""})
    errors = {file.name: file.error for file in made.files}
    assert made.exists and made.key == ("id",) and errors["ok.csv"] is errors["no.csv"] is None
    assert "row 3, column 'id': 'x'" in str(errors["x.csv"]) and "column 'n': unknown column" in str(errors["new.csv"])
    assert [(column.name, column.source) for column in made.columns] == [("id", "table")]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.md", "a.txt", "a.bin"])
def test_an_empty_file_is_nothing_and_no_error(world: IngestWorld, name: str) -> None:
    (outcome,) = world.drop({f"t/{name}": b""})
    assert (outcome.status, outcome.error, outcome.rows) == ("empty", None, 0)
    assert outcome.digest is not None and world.ledger.find(outcome.digest)[0].state == "empty"
    assert not world.objects("quarantine/")
    with pytest.raises(NotFound):
        world.tables().load(world.name("t"))


def test_empty_files_do_not_keep_others_out(world: IngestWorld) -> None:
    outcomes = world.drop({"t/a.csv": b"id\n", "t/b.csv": b"id\n1\n", "t/c.jsonl": b"\n"})
    assert [outcome.status for outcome in outcomes] == ["empty", "committed", "empty"]
    assert world.rows("t", "id") == [(1,)]


def test_a_quarantined_file_is_listed_explained_and_ingested_again(world: IngestWorld) -> None:
    s3, key = world.client("s3"), f"landing/{world.namespace}/t/prices.csv"
    (outcome,) = world.drop({"t/prices.csv": "id,city\n1,Malmö\n".encode("latin-1")})
    assert outcome.status == "quarantined", "its table was never created"
    (report,) = list_quarantined(s3, world.bucket, world.name("t"))
    assert report["source"] == key and "not UTF-8" in report["reason"]
    assert list_quarantined(s3, world.bucket) == [report] == [find_report(s3, world.bucket, key)]
    world.rules.set(world.name("t"), Rule.model_validate({"csv": {"encoding": "latin-1"}}))
    version = retry_file(s3, world.bucket, key)
    (again,) = world.ingest().run([outcome.landed.__class__(world.bucket, key, version)])
    assert again.status == "committed" and world.rows("t", "id", "city") == [(1, "Malmö")]
    assert [record.state for record in list_records(s3, world.bucket, world.name("t"))] == ["committed", "quarantined"]
    with pytest.raises(NotFound, match="is not in quarantine"):
        retry_file(s3, world.bucket, key)
