"""`strandline import` and `strandline export`: files into tables once, and back out as they were."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.lake import Lake
from cli import imports
from tests.worlds.cli import answer, run, strandline
from tests.worlds.lake import running_lake

FULL = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": ["Brest", "", None],
        "metres": pa.array([1.5, -0.0, None]),
        "price": pa.array([Decimal("12.30"), None, Decimal("-0.05")], pa.decimal128(9, 2)),
        "day": pa.array([date(2026, 3, 1), None, date(1969, 12, 31)]),
        "at": pa.array([datetime(2026, 3, 1, 10, 0, 0, 123456, UTC), None, datetime(1960, 1, 1, tzinfo=UTC)]),
        "open": [True, False, None],
    }
)


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with running_lake() as made:
        yield made


def new_name() -> str:
    return f"silver.t{uuid4().hex[:10]}"


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = lake.tables.scan(table).to_pylist()
    return sorted(records, key=lambda row: json.dumps(row, default=str))


def numbers(first: int, count: int) -> str:
    return "id,name\n" + "".join(f"{n},name {n}\n" for n in range(first, first + count))


def test_a_directory_becomes_a_table_in_one_commit(lake: Lake, tmp_path: Path) -> None:
    table, folder = new_name(), tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text(numbers(0, 3))
    (folder.parent / "b.jsonl.gz").write_bytes(gzip.compress(b'{"id": 3, "name": "three"}\n'))
    (folder.parent / "notes.md").write_text("passed over")
    (folder.parent / ".hidden.csv").write_text("passed over")
    pq.write_table(pa.table({"id": [4], "name": ["four"]}), folder.parent / "c.parquet")
    done = answer("import", str(tmp_path / "in"), table)
    assert (done["created"], done["rows"]) == (True, 5)
    assert {Path(file["file"]).name: file["status"] for file in done["files"]} == dict.fromkeys(
        ["a.csv", "b.jsonl.gz", "c.parquet"], "imported"
    )
    assert sorted(row["id"] for row in rows(lake, table)) == [0, 1, 2, 3, 4]
    assert len(lake.tables.history(table)) == 1


def test_what_was_imported_is_not_imported_again(lake: Lake, tmp_path: Path) -> None:
    table, first, same, more = new_name(), tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"
    first.write_text(numbers(0, 3))
    same.write_text(numbers(0, 3))
    done = answer("import", str(first), str(same), str(first), table)
    assert [file["status"] for file in done["files"]] == ["imported", "imported", "present"]
    more.write_text(numbers(3, 2))
    again = answer("import", str(tmp_path), table)
    assert [file["status"] for file in again["files"]] == ["present", "present", "imported"]
    assert again["rows"] == 2 and len(rows(lake, table)) == 8


def test_a_file_that_was_changed_and_changed_back_is_imported_again(lake: Lake, tmp_path: Path) -> None:
    table, file = new_name(), tmp_path / "a.jsonl"
    for name in ("one", "two", "one"):
        file.write_text(json.dumps({"id": 1, "name": name}))
        assert answer("import", str(file), table, "--upsert", "--key", "id")["files"][0]["status"] == "imported"
    assert [(row["id"], row["name"]) for row in rows(lake, table)] == [(1, "one")]
    assert answer("import", str(file), table, "--upsert")["files"][0]["status"] == "present"


def test_a_faulty_file_is_refused_whole_and_keeps_no_other_out(lake: Lake, tmp_path: Path) -> None:
    table, good, bad, worse = new_name(), tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.jsonl"
    good.write_text(numbers(0, 3))
    answer("import", str(good), table)
    bad.write_text("id,name\n7,seven\neight,eight\n")
    worse.write_text('{"id": 9}\n{"id": "x"}\n')
    good.write_text(numbers(10, 2))
    done = strandline("-o", "json", "import", str(tmp_path), table)
    assert done.returncode == 2, done.stderr
    status = {Path(file["file"]).name: file for file in json.loads(done.stdout)["files"]}
    assert [status[name]["status"] for name in sorted(status)] == ["imported", "refused", "refused"]
    assert "b.csv" in status["b.csv"]["error"] and "row 3, column 'id'" in status["b.csv"]["error"]
    assert "line 2, column 'id'" in status["c.jsonl"]["error"]
    assert sorted(row["id"] for row in rows(lake, table)) == [0, 1, 2, 10, 11]
    bad.write_text("id,name\n7,seven\n8,eight\n")
    mended = run("import", str(bad), table)
    assert mended.exit_code == 0 and "2 rows imported" in mended.stdout


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_large_file_goes_in_piece_by_piece_and_is_visible_at_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(imports, "SMALL_FILE_BYTES", 1000)
    table, file = new_name(), tmp_path / f"large.{kind}"
    if kind == "csv":
        file.write_text(numbers(0, 5000))
    else:
        pq.write_table(pa.table({"id": range(5000), "name": [f"name {n}" for n in range(5000)]}), file)
    assert answer("import", str(file), table)["rows"] == 5000
    assert len(lake.tables.history(table)) == 1 and lake.tables.scan(table).num_rows == 5000
    assert answer("import", str(file), table)["files"][0]["status"] == "present"

    file.with_name("bad.csv").write_text(numbers(5000, 3000) + "x,y\n")
    refused = run("-o", "json", "import", str(file.with_name("bad.csv")), table)
    assert refused.exit_code == 2 and "row 3002, column 'id'" in json.loads(refused.stdout)["files"][0]["error"]
    assert lake.tables.scan(table).num_rows == 5000


@pytest.mark.parametrize("hold", [0, 1 << 20], ids=["in-pieces", "held"])
def test_an_import_by_key_replaces_in_one_commit(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hold: int
) -> None:
    monkeypatch.setattr(imports, "SMALL_FILE_BYTES", hold)
    table, first, second = new_name(), tmp_path / "a.jsonl", tmp_path / "b.csv"
    first.write_text('{"id": 1, "name": "one"}\n{"id": 2, "name": "two"}\n')
    answer("import", str(first), table, "--key", "id", "--mode", "mor")
    second.write_text("id,name\n2,new\n3,new\n")
    assert answer("import", str(second), table, "--upsert")["rows"] == 2
    assert [(row["id"], row["name"]) for row in rows(lake, table)] == [(1, "one"), (2, "new"), (3, "new")]
    assert answer("import", str(second), table, "--upsert")["files"][0]["status"] == "present"
    assert len(lake.tables.history(table)) == 2

    second.write_text("id,name\n5,a\n6,b\n5,c\n")
    refused = run("-o", "json", "import", str(second), table, "--upsert")
    assert refused.exit_code == 2 and "have the same key" in json.loads(refused.stdout)["files"][0]["error"]
    keyless = new_name()
    answer("import", str(first), keyless)
    assert isinstance(run("import", str(second), keyless, "--upsert").exception, Invalid)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl", "t.csv.gz", "t.jsonl.zst"])
def test_what_is_exported_comes_back_the_same(lake: Lake, tmp_path: Path, name: str) -> None:
    table, copy, file = new_name(), new_name(), tmp_path / name
    lake.tables.create(table, FULL.schema, key=["id"])
    lake.tables.create(copy, FULL.schema, key=["id"])
    lake.tables.insert(table, FULL)
    done = answer("export", table, str(file))
    assert (done["rows"], done["files"], done["bytes"]) == (3, 1, file.stat().st_size)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert answer("import", str(file), copy)["rows"] == 3
    assert rows(lake, copy) == rows(lake, table) == sorted(FULL.to_pylist(), key=lambda r: json.dumps(r, default=str))


BYTES = {
    "id": "long",
    "raw": "binary",
    "four": "fixed[4]",
    "who": "uuid",
    "parts": pa.list_(pa.binary()),
    "inner": pa.struct([("seal", pa.binary()), ("name", pa.string())]),
}


def test_bytes_and_uuids_come_back_from_json_lines(lake: Lake, tmp_path: Path) -> None:
    table, back, file = new_name(), new_name(), tmp_path / "t.jsonl"
    given: list[dict[str, Any]] = [
        {
            "id": 1,
            "raw": bytes(range(256)),
            "four": b"\0\xff\n\x22",
            "who": uuid4(),
            "parts": [b"", b"aGk="],
            "inner": {"seal": b"\xfe", "name": "aGk="},
        },
        {"id": 2, "raw": b"", "four": None, "who": None, "parts": [], "inner": None},
        {"id": 3, "raw": None, "four": b"abcd", "who": uuid4(), "parts": None, "inner": {"seal": None, "name": ""}},
    ]
    for name in (table, back):
        lake.tables.create(name, BYTES)
    lake.tables.insert(table, given)
    answer("export", table, str(file))
    assert answer("import", str(file), back)["files"][0]["status"] == "imported"
    assert rows(lake, back) == rows(lake, table)
    for wrong, said in (('{"id": 4, "raw": "a b"}', "'raw'"), ('{"id": 4, "who": "not-one"}', "'who'")):
        file.write_text('{"id": 3, "raw": null}\n' + wrong + "\n")
        result = run("-o", "json", "import", str(file), back)
        assert result.exit_code == 2 and f"row 1, column {said}" in result.output, result.output
    assert len(rows(lake, back)) == 3


def test_an_export_is_of_then_and_of_what_was_asked_for(lake: Lake, tmp_path: Path) -> None:
    table, file = new_name(), tmp_path / "t.jsonl"
    lake.tables.create(table, {"id": "long", "name": "string"}, mode="mor", key=["id"])
    before = lake.tables.insert(table, [{"id": n, "name": f"n{n}"} for n in range(6)])
    lake.tables.delete(table, "id < 3")
    assert answer("export", table, str(file), "--as-of", f"snapshot:{before.snapshot_id}")["rows"] == 6
    assert answer("export", table, str(file), "--overwrite")["rows"] == 3
    assert answer("export", table, str(file), "--overwrite", "--limit", "2")["rows"] == 2
    said = run("export", table, "-", "--format", "jsonl", "--where", "id > 4", "--columns", "name").stdout
    assert said == '{"name": "n5"}\n'
    assert isinstance(run("export", table, str(file)).exception, Conflict)
    assert isinstance(run("export", table, str(tmp_path / "t.xml")).exception, Invalid)
    assert isinstance(run("export", table, "-", "--format", "csv", "--as-of", "1999-01-01").exception, NotFound)


def test_a_directory_gets_parts_and_an_older_export_gives_way(lake: Lake, tmp_path: Path) -> None:
    table, folder = new_name(), f"{tmp_path / 'out'}/"
    lake.tables.create(table, {"id": "long"})
    for start in (0, 40, 80):
        lake.tables.insert(table, [{"id": n} for n in range(start, start + 40)])
    assert answer("export", table, folder, "--rows-per-file", "25")["files"] == 5
    parts = sorted(Path(folder).iterdir())
    assert [pq.read_metadata(part).num_rows for part in parts] == [25, 25, 25, 25, 20]
    assert sorted(pa.concat_tables(map(pq.read_table, parts))["id"].to_pylist()) == list(range(120))
    assert isinstance(run("export", table, folder).exception, Conflict)
    answer("export", table, folder, "--overwrite", "--rows-per-file", "120")
    assert [part.name for part in Path(folder).iterdir()] == ["part-00000.parquet"]


def test_an_empty_table_is_an_empty_file_with_its_columns(lake: Lake, tmp_path: Path) -> None:
    table = new_name()
    lake.tables.create(table, {"id": "long", "name": "string"})
    answer("export", table, str(tmp_path / "t.parquet"))
    answer("export", table, str(tmp_path / "t.csv"))
    answer("export", table, f"{tmp_path}/parts/")
    assert pq.read_table(tmp_path / "t.parquet").column_names == ["id", "name"]
    assert (tmp_path / "t.csv").read_text() == '"id","name"\n'
    assert pq.read_metadata(tmp_path / "parts" / "part-00000.parquet").num_rows == 0


def test_csv_refuses_what_it_cannot_hold_before_it_writes(lake: Lake, tmp_path: Path) -> None:
    table = new_name()
    lake.tables.create(table, pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
    lake.tables.insert(table, [{"id": 1, "tags": ["a"]}])
    result = run("export", table, str(tmp_path / "t.csv"))
    assert isinstance(result.exception, Invalid) and "'tags'" in result.exception.message
    assert not list(tmp_path.iterdir())
    assert answer("export", table, str(tmp_path / "t.jsonl"))["rows"] == 1
    assert json.loads((tmp_path / "t.jsonl").read_text()) == {"id": 1, "tags": ["a"]}


@pytest.mark.parametrize("name", ["import", "export"])
def test_every_command_has_help_with_examples(name: str) -> None:
    shown = run(name, "--help")
    assert shown.exit_code == 0
    assert f"Examples: strandline {name}" in " ".join(shown.stdout.split())
