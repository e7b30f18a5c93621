"""`strandline table`, as a person and a script use it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.lake import Lake
from tests.worlds.cli import answer, run, strandline
from tests.worlds.lake import running_lake

TIDES = (
    '{"station": "Brest", "metres": 1.5, "at": "2026-03-01T10:00:00Z"}\n'
    '{"station": "Newlyn", "metres": 2.5, "at": "2026-03-01T11:00:00Z"}\n'
    '{"station": "Dover", "metres": 3.5, "at": "2026-03-02T10:00:00Z"}\n'
)


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with running_lake() as made:
        yield made


@pytest.fixture
def table(lake: Lake) -> str:
    """Three tides, as the first test makes them with the command."""
    name, columns = new_name(), {"station": "string", "metres": "double", "at": "timestamptz"}
    lake.tables.create(name, columns, mode="mor", key=["station"], partition=["day(at)"], sort=["at desc"])
    lake.tables.insert(name, [json.loads(line) for line in TIDES.splitlines()])
    return name


def new_name() -> str:
    return f"silver.t{uuid4().hex[:10]}"


def metres(lake: Lake, table: str) -> dict[str, Any]:
    rows = lake.tables.scan(table).to_pylist()
    return {row["station"]: row["metres"] for row in rows}


def test_a_table_is_made_as_told_and_described_with_statistics(lake: Lake) -> None:
    table = new_name()
    words = ["--column", "station:string", "--column", "metres:double", "-c", "at:timestamptz", "--key", "station"]
    answer("table", "create", table, *words, "--mode", "mor", "--partition", "day(at)", "--sort", "at desc")
    answer("table", "insert", table, "-", "--format", "jsonl", stdin=TIDES)
    description = answer("table", "describe", table)
    assert (description["mode"], description["key"], description["partition"], description["sort"]) == (
        "mor",
        ["station"],
        ["day(at)"],
        ["at desc"],
    )
    assert (description["rows"], description["snapshots"], description["needs_compaction"]) == (3, 1, None)
    columns = {column["name"]: column for column in description["columns"]}
    assert columns["metres"] | {"doc": None} == {
        "name": "metres",
        "type": "double",
        "required": False,
        "doc": None,
        "low": 1.5,
        "high": 3.5,
        "nulls": 0,
    }
    assert columns["station"]["required"]
    shown = run("table", "describe", table).stdout
    assert "day(at)" in shown and "timestamptz" in shown and "3.5" in shown
    assert table in answer("table", "list") and table in answer("table", "list", "silver")


def test_columns_come_from_a_schema_file_or_from_another_file(lake: Lake, tmp_path: Path) -> None:
    simple, iceberg, parquet, text = (tmp_path / name for name in ("a.json", "b.json", "c.parquet", "d.csv"))
    simple.write_text('{"id": "long", "price": "decimal(9, 2)"}')
    assert answer("table", "create", new_name(), "--schema", str(simple))["columns"] == {
        "id": "long",
        "price": "decimal(9, 2)",
    }
    fields = [{"id": 7, "name": "id", "required": True, "type": "long"}]
    iceberg.write_text(json.dumps({"type": "struct", "schema-id": 3, "fields": fields}))
    assert answer("table", "create", new_name(), "--schema", str(iceberg))["columns"] == {"id": "long"}
    pq.write_table(
        pa.table({"n": pa.array([1], pa.int32()), "when": pa.array([0], pa.timestamp("us", "UTC"))}), parquet
    )
    assert answer("table", "create", new_name(), "--like", str(parquet))["columns"] == {
        "n": "long",
        "when": "timestamptz",
    }
    text.write_text("a,b\n1,x\n2.5,y\n")
    assert answer("table", "create", new_name(), "--like", str(text))["columns"] == {"a": "double", "b": "string"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the columns"),
        (["--column", "id:long", "--like", "x.csv"], "name the columns"),
        (["--column", "id"], "name:type"),
        (["--column", "id:tall"], "not an Iceberg type"),
        (["--column", "id:long", "--column", "id:string"], "twice"),
        (["--column", "id:long", "--key", "no"], "not in the schema"),
        (["--column", "id:long", "--partition", "day(id)"], "cannot partition"),
    ],
    ids=["no-columns", "two-ways", "no-type", "bad-type", "twice", "bad-key", "bad-partition"],
)
def test_a_table_that_cannot_be_is_refused_with_the_reason(lake: Lake, words: list[str], said: str) -> None:
    result = run("table", "create", new_name(), *words)
    assert isinstance(result.exception, Invalid) and said in result.exception.message


def test_rows_come_in_as_json_lines_csv_and_parquet(lake: Lake, table: str, tmp_path: Path) -> None:
    csv, parquet = tmp_path / "more.csv", tmp_path / "more.parquet"
    csv.write_text("station,metres,at\nCuxhaven,2.9,2026-03-03 00:00:00Z\n")
    assert answer("table", "insert", table, str(csv))["rows"] == 1
    pq.write_table(pa.table({"station": ["Aberdeen"], "metres": [3.6]}), parquet)
    assert answer("table", "insert", table, str(parquet))["rows"] == 1
    assert metres(lake, table) == {"Brest": 1.5, "Newlyn": 2.5, "Dover": 3.5, "Cuxhaven": 2.9, "Aberdeen": 3.6}


def test_the_same_token_writes_once(lake: Lake, table: str) -> None:
    more = '{"station": "Cuxhaven", "metres": 2.9}\n'
    first = answer("table", "insert", table, "-", "-f", "jsonl", "--token", "tuesday", stdin=more)
    again = answer("table", "insert", table, "-", "-f", "jsonl", "--token", "tuesday", stdin=more)
    assert (first["replayed"], again["replayed"]) == (False, True)
    assert first["snapshot_id"] == again["snapshot_id"] and len(metres(lake, table)) == 4


def test_an_upsert_replaces_by_key_and_says_how_many(lake: Lake, table: str) -> None:
    given = '{"station": "Brest", "metres": 6.9}\n{"station": "Cuxhaven", "metres": 2.9}\n'
    said = run("table", "upsert", table, "-", "--format", "jsonl", stdin=given).stdout
    assert "2 rows upserted, 1 of them replaced an existing row" in said
    assert metres(lake, table) == {"Brest": 6.9, "Newlyn": 2.5, "Dover": 3.5, "Cuxhaven": 2.9}


@pytest.mark.parametrize(
    ("format_", "given", "said"),
    [
        ("jsonl", '{"station": "A", "metres": 1}\n{"station": "B", "metres": "deep"}\n', ["line 2", "'metres'"]),
        ("jsonl", '{"station": "A"}\n{"station": \n', ["line 2"]),
        ("jsonl", '{"metres": 1}\n', ["row 0", "'station'", "required"]),
        ("jsonl", '{"station": "A", "depth": 1}\n', ["'depth'", "unknown column"]),
        ("csv", "station,metres\nA,1\nB,deep\n", ["row 3", "metres", "deep"]),
        ("csv", "station,metres\nA,1,2\n", ["row 2"]),
        ("parquet", "rubbish", ["Parquet"]),
    ],
    ids=["wrong-type", "cut-off", "missing", "unknown", "csv-type", "csv-columns", "no-parquet"],
)
def test_rows_that_do_not_fit_are_refused_with_row_and_column(
    lake: Lake, table: str, format_: str, given: str, said: list[str]
) -> None:
    result = run("table", "insert", table, "-", "--format", format_, stdin=given)
    assert isinstance(result.exception, Invalid), result.output
    assert all(word in result.exception.message for word in ["stdin", *said]), result.exception.message
    assert len(lake.tables.history(table)) == 1


def test_two_rows_of_one_key_in_an_upsert_are_refused(lake: Lake, table: str) -> None:
    given = "station,metres\nA,1\nB,2\nA,3\n"
    result = run("table", "upsert", table, "-", "--format", "csv", stdin=given)
    assert isinstance(result.exception, Invalid) and "rows 0 and 2 have the same key" in result.exception.message


def test_a_delete_says_how_many_and_asks_first(lake: Lake, table: str) -> None:
    refused = run("table", "delete", table, "--where", "metres > 2", stdin="n\n")
    assert refused.exit_code == 1 and "Delete 2 rows" in refused.output and len(metres(lake, table)) == 3
    result = run("-o", "json", "table", "delete", table, "--where", "metres > 2")
    assert isinstance(result.exception, Invalid) and "--yes" in result.exception.message
    assert run("table", "delete", table, "--where", "metres > 3", stdin="y\n").exit_code == 0
    assert answer("table", "delete", table, "--where", "metres > 2", "--yes")["rows"] == 1
    assert metres(lake, table) == {"Brest": 1.5}


def test_rows_are_deleted_by_key(lake: Lake, table: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone.csv"
    gone.write_text("station\nBrest\nDover\nNowhere\n")
    assert answer("table", "delete", table, "--keys", str(gone), "--yes")["rows"] == 2
    assert metres(lake, table) == {"Newlyn": 2.5}


def test_the_shape_changes_in_one_commit(lake: Lake, table: str) -> None:
    changed = answer(
        "table",
        "alter",
        table,
        "--add",
        "gauge:int",
        "--rename",
        "metres=level",
        "--partition",
        "none",
        "--mode",
        "hybrid",
    )
    assert list(changed["columns"]) == ["station", "level", "at", "gauge"]
    description = answer("table", "describe", table)
    assert (description["mode"], description["partition"]) == ("hybrid", [])
    assert answer("table", "alter", table, "--promote", "gauge:long", "--sort", "none")["columns"] == {
        "station": "string",
        "level": "double",
        "at": "timestamptz",
        "gauge": "long",
    }
    assert lake.tables.scan(table, columns=["level"]).column(0).to_pylist().count(1.5) == 1
    for words in (["--drop", "station"], ["--promote", "level:int"], ["--add", "level:long"], []):
        assert isinstance(run("table", "alter", table, *words).exception, Invalid), words
    assert list(answer("table", "alter", table, "--drop", "level")["columns"]) == ["station", "at", "gauge"]


def test_the_history_shows_what_each_commit_did_and_why(lake: Lake, table: str) -> None:
    run("table", "upsert", table, "-", "--format", "jsonl", stdin='{"station": "Brest", "metres": 6.9}\n')
    answer("table", "snapshot", table, "repaired")
    newest, first = answer("table", "history", table)
    assert (newest["added"], newest["deleted"], newest["mode"], newest["names"]) == (1, 1, "mor", "main repaired")
    assert (first["operation"], first["added"], first["deleted"], first["parent_id"]) == ("append", 3, 0, None)
    assert newest["parent_id"] == first["snapshot_id"]
    assert answer("table", "history", table, "--limit", "1") == [newest]
    assert "the table's mode" in run("table", "history", table).stdout


def test_a_named_snapshot_is_gone_back_to_and_expires_only_without_its_name(lake: Lake, table: str) -> None:
    named = answer("table", "snapshot", table, "before")["snapshot_id"]
    run("table", "delete", table, "--where", "metres > 2", "--yes")
    assert len(metres(lake, table)) == 1
    back = answer("table", "rollback", table, "before")
    assert back["snapshot_id"] == named and len(metres(lake, table)) == 3
    answer("table", "rollback", table, f"snapshot:{back['was']}")
    assert len(metres(lake, table)) == 1

    kept = answer("table", "expire", table, "--older-than", "2100-01-01", "--yes")
    assert kept["snapshots"] == []
    answer("table", "snapshot", table, "before", "--remove")
    waiting = answer("table", "expire", table, "--older-than", "0s", "--yes")
    assert (waiting["snapshots"], waiting["waiting"]) == ([], 1)  # nothing goes before the timeline has it
    assert "1 more wait for the timeline" in run("table", "expire", table, "--older-than", "0s", "--yes").stdout
    lake.sequencer.catch_up([table])
    gone = answer("table", "expire", table, "--older-than", "0s", "--yes")
    assert (gone["snapshots"], gone["waiting"]) == ([named], 0) and gone["objects"] > 0
    assert isinstance(run("table", "rollback", table, f"snapshot:{named}").exception, NotFound)
    assert isinstance(run("table", "expire", table, "--older-than", "soon", "--yes").exception, Invalid)


def test_compaction_merges_and_changes_no_row(lake: Lake, table: str) -> None:
    run("table", "upsert", table, "-", "--format", "jsonl", stdin='{"station": "Brest", "metres": 6.9}\n')
    assert answer("table", "describe", table)["pending_deletes"] == 1
    before = metres(lake, table)
    assert "files became" in answer("table", "compact", table)["reason"]
    assert answer("table", "describe", table)["pending_deletes"] == 0 and metres(lake, table) == before


def test_a_clone_has_the_rows_of_then_and_its_own_from_now_on(lake: Lake, table: str) -> None:
    first = answer("table", "history", table)[0]["snapshot_id"]
    run("table", "delete", table, "--where", "metres > 2", "--yes")
    copy = f"sandbox.t{uuid4().hex[:10]}"
    assert answer("table", "clone", table, copy, "--as-of", f"snapshot:{first}")["rows"] == 3
    run("table", "delete", copy, "--where", "station = 'Brest'", "--yes")
    assert set(metres(lake, copy)) == {"Newlyn", "Dover"} and set(metres(lake, table)) == {"Brest"}
    result = run("table", "drop", table, "--purge", "--yes")
    assert isinstance(result.exception, Conflict)
    assert run("table", "drop", copy, stdin="n\n").exit_code == 1
    assert answer("table", "drop", copy, "--yes", "--purge") == {"dropped": copy, "purged": True}
    assert copy not in answer("table", "list")


def test_a_clone_is_attested_like_any_commit_and_nothing_is_said_on_stderr(lake: Lake, table: str) -> None:
    copy = f"sandbox.t{uuid4().hex[:10]}"
    done = strandline("table", "clone", table, copy)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    metadata = lake.tables.load(copy).metadata
    staged = lake.s3.list_objects_v2(Bucket=lake.settings.bucket, Prefix=f"attest/{metadata.table_uuid}/")
    assert [one["Key"].rpartition("/")[2] for one in staged.get("Contents", ())] == [str(metadata.current_snapshot_id)]


def test_a_script_sees_errors_as_json_with_the_kinds_exit_code(lake: Lake, table: str) -> None:
    missing = strandline("-o", "json", "table", "describe", "silver.nothing")
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert json.loads(missing.stderr)["error"]["kind"] == "not_found"
    assert isinstance(run("table", "create", table, "--column", "id:long").exception, Conflict)
    bad = strandline("table", "insert", table, "-", "--format", "jsonl", stdin=b'{"station": 1}\n')
    assert bad.returncode == 2 and b"row 0, column 'station'" in bad.stderr


READS = ["list", "describe", "history"]
WRITES = ["create", "insert", "upsert", "delete", "alter", "snapshot", "rollback", "expire", "compact", "clone", "drop"]


@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_every_command_has_help_with_examples(name: str) -> None:
    assert f" {name} " in run("table", "--help").stdout
    shown = run("table", name, "--help")
    assert shown.exit_code == 0
    assert f"Examples: strandline table {name}" in " ".join(shown.stdout.split())
