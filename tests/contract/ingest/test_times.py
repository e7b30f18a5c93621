"""Times that no table can hold are quarantined with their row; the first and the last that it can hold are kept."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from functools import partial

import pyarrow as pa
import pytest

from catalog.core.errors import Invalid
from catalog.formats import ExportFormat, open_writer
from catalog.ingest import plan_files
from infra.local.server import ApiServer
from tests.worlds import times
from tests.worlds.ingest import IngestWorld

FILES = times.files_out_of_range()
ROWS = {
    ("declared.csv", "timestamp", "0000-12-31T23:59:59"): 3,
    ("declared.csv", "timestamp", "10000-01-01"): 3,
    ("declared.csv", "timestamptz", "9999-12-31T23:59:59-01:00"): 3,
    ("declared.csv", "timestamptz", "0001-01-01T00:00:00+01:00"): 3,
    ("declared.csv", "date", "0000-12-31"): 3,
    ("declared.csv", "date", "10000-01-01"): 3,
    ("declared.jsonl", "timestamp", "0000-12-31T23:59:59"): 1,
    ("declared.jsonl", "timestamp", "10000-01-01T00:00:00"): 1,
    ("declared.jsonl", "timestamptz", "9999-12-31T23:59:59-01:00"): 1,
    ("declared.jsonl", "date", "0000-12-31"): 1,
    ("declared.jsonl", "date", "10000-01-01"): 1,
    ("declared.json", "date", "-0001-01-01"): 1,
}
"""What a text of a declared column is refused for, by the row as its format counts them."""
FIRST = {"timestamp": "1970-01-01T00:00:00", "timestamptz": "1970-01-01T00:00:00Z", "date": "1970-01-01"}


@pytest.fixture(scope="module")
def world(server: ApiServer) -> IngestWorld:
    return IngestWorld.create(server)


def test_files_with_times_out_of_range_are_quarantined_with_their_row(world: IngestWorld) -> None:
    labels = {f"t{number}": label for number, label in enumerate(FILES)}
    dropped = {f"{table}/{FILES[label][0]}": FILES[label][1] for table, label in labels.items()}
    for label, outcome in zip(FILES, world.drop(dropped), strict=True):
        assert outcome.status == "quarantined", (label, outcome.status, outcome.error)
        assert outcome.error is not None and (outcome.error.row, outcome.error.column) == (1, "at"), label


def test_texts_of_declared_columns_out_of_range_are_quarantined_with_their_row(world: IngestWorld) -> None:
    files, tables = dict[str, bytes](), world.tables()
    for number, (name, type_, text) in enumerate(ROWS):
        tables.create(world.name(f"declared{number}"), {"at": type_})
        lines = [f'{{"at": "{value}"}}' for value in (FIRST[type_], text)]
        body = {"csv": f"at\n{FIRST[type_]}\n{text}\n", "jsonl": "\n".join(lines), "json": f"[{','.join(lines)}]"}
        files[f"declared{number}/{name}"] = body[name.rpartition(".")[2]].encode()
    for case, outcome in zip(ROWS, world.drop(files), strict=True):
        assert outcome.status == "quarantined", (case, outcome.status, outcome.error)
        assert outcome.error is not None and (outcome.error.row, outcome.error.column) == (ROWS[case], "at"), case


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00", "10000-01-01T00:00:00Z"])
def test_an_inferred_column_that_would_be_out_of_range_stays_text(world: IngestWorld, text: str) -> None:
    table = f"text{abs(hash(text))}"
    rows = ["2026-01-01T00:00:00Z", text]
    (outcome,) = world.drop({f"{table}/a.csv": "\n".join(["at", *rows]).encode()})
    assert outcome.status == "committed", outcome.error
    assert world.rows(table, "at") == sorted((row,) for row in rows)


def test_the_first_and_the_last_time_are_kept_exactly(world: IngestWorld) -> None:
    day = times.LAST_DAY
    files = {f"end{kind}/x.parquet": times.parquet(column) for kind, column in times.columns_at_the_ends().items()}
    files["endint96/x.parquet"] = times.int96(day, 86_399_999_999_000)
    files["wide/x.parquet"] = times.int96(120_600, 1000)
    outcomes = world.drop(files)
    assert [outcome.error for outcome in outcomes if outcome.status != "committed"] == []
    first, last = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
    assert world.rows("endtimestamp", "at") == [(first,), (last,)]
    assert world.rows("endtimestamptz", "at") == [(first.replace(tzinfo=UTC),), (last.replace(tzinfo=UTC),)]
    assert world.rows("enddate", "at") == [(date(1, 1, 1),), (date(9999, 12, 31),)]
    assert (last,) in world.rows("endint96", "at")
    assert (datetime(2300, 3, 12, 0, 0, 0, 1),) in world.rows("wide", "at")


def test_a_plan_and_an_export_say_so_too(world: IngestWorld) -> None:
    files = {f"{number}.parquet": body for number, (_, body) in enumerate(FILES.values())}
    openers = {name: partial(io.BytesIO, body) for name, body in files.items()}
    for name, opener in openers.items():
        made = plan_files(world.tables(), world.rules, world.name("planned"), {name: opener})
        assert [file.error is not None and "row 1, column 'at'" in file.error for file in made.files] == [True], name
    beyond = pa.record_batch({"at": times.columns_out_of_range()["after in us None"]})
    with pytest.raises(Invalid, match="has no form in JSON"):
        open_writer(ExportFormat.JSONL, io.BytesIO(), beyond.schema).write(beyond)
