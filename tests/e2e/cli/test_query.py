"""`strandline query` and `strandline sql`, as a person and a script use them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prompt_toolkit.document import Document
from typer.testing import CliRunner

from catalog.core.errors import Invalid, LakeError
from catalog.lake import Lake
from catalog.query.run import queries
from catalog.query.run.engine_limits import EngineLimits
from cli.main import app
from cli.shell import completer
from cli.shell_text import statements
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence

TABLE = "shore.tides"
ROWS = [
    {"id": 1, "station": "Brest", "metres": 4.5},
    {"id": 2, "station": "[Dover]", "metres": None},
    {"id": 3, "station": "Ushant", "metres": 7.25},
]


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    server = ApiServer()
    server.start()
    with lake_on(server) as made:
        made.tables.create(TABLE, {"id": "long", "station": "string", "metres": "double"})
        made.tables.insert(TABLE, ROWS[:2])
        sequence(made, TABLE)
        made.tables.insert(TABLE, ROWS[2:])
        sequence(made, TABLE)
        yield made
    server.stop()


def run(*words: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, list(words), input=stdin)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: exit codes as a shell sees them."""
    code = "from cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=300)


def test_two_columns_of_one_name_both_come_or_the_answer_is_refused(lake: Lake, tmp_path: Path) -> None:
    sql = f"SELECT a.id, b.id FROM {TABLE} a JOIN {TABLE} b ON b.id = a.id + 1 ORDER BY a.id"
    shown = run("query", sql).stdout.splitlines()
    assert [line.split() for line in shown[:3]] == [["id", "id"], ["1", "2"], ["2", "3"]]
    assert run("query", sql, "--format", "csv").stdout.splitlines() == ['"id","id"', "1,2", "2,3"]
    target = tmp_path / "pairs.parquet"
    for words in (["--format", "json"], ["--format", "parquet"], ["--out", str(target)]):
        refused = run("query", sql, *words)
        assert isinstance(refused.exception, Invalid) and "AS id_2" in str(refused.exception), words
        assert refused.stdout == "" and not target.exists()
    assert isinstance(run("-o", "json", "query", sql).exception, Invalid)


def test_rows_come_as_a_table_as_json_as_csv_and_as_parquet(lake: Lake, tmp_path: Path) -> None:
    sql = f"SELECT id, station, metres FROM {TABLE} ORDER BY id"
    shown = run("query", sql).stdout
    assert "[Dover]" in shown and "7.25" in shown and "3 rows" in shown
    lines = [json.loads(line) for line in run("query", sql, "--format", "json").stdout.splitlines()]
    assert lines == ROWS
    assert run("query", sql, "--format", "csv").stdout.splitlines()[:2] == ['"id","station","metres"', '1,"Brest",4.5']
    assert pq.read_table(BytesIO(run("query", sql, "--format", "parquet").stdout_bytes)).to_pylist() == ROWS
    target = tmp_path / "tides.parquet"
    assert run("query", sql, "--out", str(target)).exit_code == 0
    assert pq.read_table(target).to_pylist() == ROWS


def test_the_global_json_carries_the_receipt(lake: Lake) -> None:
    answer = json.loads(run("-o", "json", "query", f"SELECT count(*) AS n FROM {TABLE}").stdout)
    assert answer["columns"] == ["n"] and answer["rows"] == [{"n": 3}]
    receipt = answer["receipt"]
    assert (receipt["route"], receipt["checkpoint_size"]) == ("metadata", receipt["index"] + 1)
    snapshot = lake.tables.load(TABLE).current_snapshot()
    assert snapshot is not None and receipt["snapshots"] == {TABLE: str(snapshot.snapshot_id)}


def test_parameters_versions_and_stdin(lake: Lake) -> None:
    def rows(*words: str, stdin: str | None = None) -> Any:
        return json.loads(run("-o", "json", "query", *words, stdin=stdin).stdout)["rows"]

    by_name = f"SELECT id FROM {TABLE} WHERE station = $who AND id < $n"
    assert rows(by_name, "--param", "who=Brest", "--param", "n=9") == [{"id": 1}]
    assert rows("-", "--param", "1=3", stdin=f"SELECT station FROM {TABLE} WHERE id = $1") == [{"station": "Ushant"}]
    first = lake.timeline.head().checkpoint.size - 2
    assert rows(f"SELECT max(id) AS m FROM {TABLE}", "--as-of", str(first)) == [{"m": 2}]
    assert rows(f"SELECT max(id) AS m FROM {TABLE} VERSION AS OF {first}") == [{"m": 2}]
    assert rows(f"SELECT max(id) AS m FROM {TABLE}", "--fresh") == [{"m": 3}]


def test_explain_says_the_route_and_reads_nothing(lake: Lake) -> None:
    words = run("query", f"SELECT station FROM {TABLE} WHERE id = 1", "--explain").stdout
    assert words.startswith("route    lambda:") and "1 of 2 files" in words
    route = json.loads(run("-o", "json", "query", f"SELECT count(*) FROM {TABLE}", "--explain").stdout)
    assert route["route"] == "metadata"


def test_verify_ends_with_3_when_an_object_was_altered(lake: Lake) -> None:
    sql = f"SELECT sum(metres) AS s FROM {TABLE} WHERE id >= 0"
    good = run("query", sql, "--verify")
    assert good.exit_code == 0 and "objects checked" in good.stderr and "11.75" in good.stdout
    path = next(iter(lake.tables.plan_scan(TABLE).plan_files())).file.file_path
    where = dict(zip(("Bucket", "Key"), path.removeprefix("s3://").split("/", 1), strict=True))
    before = lake.s3.get_object(**where)["Body"].read()
    lake.s3.put_object(**where, Body=before[:99] + bytes([before[99] ^ 1]) + before[100:])
    try:
        done = command("-o", "json", "query", sql, "--verify")
    finally:
        lake.s3.put_object(**where, Body=before)
    assert done.returncode == 3 and done.stdout == ""
    assert json.loads(done.stderr)["error"]["subject"] == path


@pytest.mark.parametrize(
    ("sql", "code", "said"),
    [
        ("SELECT (1", 2, "column"),
        ("SELECT 1; DROP TABLE shore.tides", 2, "2 statements"),
        ("SELECT * FROM read_parquet('/etc/passwd')", 2, "only tables of the lake can be read"),
        ("SELECT metre FROM shore.tides", 2, "did you mean metres"),
        ("SELECT * FROM shore.tide", 1, "did you mean shore.tides"),
        ("SELECT station + interval '1 day' FROM shore.tides", 2, "VARCHAR"),
        ("SELECT 1 // 0", 2, "ivision by zero"),
    ],
    ids=["syntax", "several", "file", "column", "table", "types", "arithmetic"],
)
def test_bad_input_ends_with_its_code_and_a_reason(lake: Lake, sql: str, code: int, said: str) -> None:
    done = run("query", sql)
    assert isinstance(done.exception, LakeError) and done.stdout == ""
    assert done.exception.kind.exit_code == code and said in done.exception.message


def test_what_never_ends_is_ended_and_what_does_not_fit_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    large = "SELECT a.value, array_agg(b.value) FROM range(3000) a(value), range(3000) b(value) GROUP BY 1"
    # Memory runs out at once, however slow the machine: its deadline is far, so that only one of the two can be why.
    for sql, seconds, said in ((endless, 0.5, "took longer than"), (large, 300.0, "needs more than 16 MiB")):
        monkeypatch.setattr(
            queries, "EngineLimits", lambda memory_bytes, seconds=seconds: EngineLimits(16 << 20, seconds)
        )
        done = run("query", sql)
        assert isinstance(done.exception, Invalid) and said in done.exception.message and done.stdout == ""


def test_the_shell_writes_watches_and_shows_wide_rows(lake: Lake, tmp_path: Path) -> None:
    name = f"{TABLE}_shell"
    script = f"""CREATE TABLE {name} (id BIGINT, note VARCHAR); INSERT INTO {name} VALUES (1, 'a;b'), (2, NULL);
BEGIN;
UPDATE {name} SET note = 'c'
  WHERE id = 1;
INSERT INTO {name} VALUES (9, NULL); COMMIT;
DELETE FROM {name} WHERE id = 9
"""
    (tmp_path / "make.sql").write_text(script)
    made = run("sql", str(tmp_path / "make.sql"))
    assert made.exit_code == 0, made.output
    assert [word in made.stdout for word in ("CREATE TABLE", "INSERT", "UPDATE", "DELETE")] == [True] * 4
    lake.tables.insert(name, [{"id": 3, "note": "x" * 300}])
    sequence(lake, name)
    read = f"SELECT id, note FROM {name} ORDER BY id"
    shown = run("sql", "-c", r"\dt %_shell", "-c", r"\x", "-c", read, "-c", r"\watch 0.1 2").stdout
    assert name in shown and shown.count("-[ row 2 ]-") == 3, shown
    assert "note | NULL" in shown and "id   | 1" in shown and "note | c" in shown
    table = "".join(run("sql", "-c", read).stdout.split())
    assert "x" * 300 in table, "no value is cut off"
    delete = f"DELETE FROM {name}"
    for refused in (("-c", r"\asof 1", "-c", delete), ("-c", r"\watch"), ("-c", "SELECT"), ("absent.sql",)):
        assert run("sql", *refused).exit_code != 0, refused
    assert "help" in run("sql", stdin="help\nexit\nSELECT 1;\n").stdout
    left = lake.queries.run(f"SELECT count(*) AS n FROM {name}", fresh=True).table()
    assert left["n"].to_pylist() == [3]


def test_the_shell_reads_statements_over_lines_and_its_own_commands(lake: Lake) -> None:
    script = f"""\\d
\\d {TABLE}
SELECT count(*) AS n
FROM {TABLE};
\\timing
\\receipt
SELECT 41 + 1 AS answer;
\\explain SELECT station FROM {TABLE}
\\format csv
SELECT station FROM {TABLE} WHERE id = 1;
SELECT nothing FROM {TABLE};
\\nonsense
\\format json
SELECT 5 AS five;
\\q
SELECT 'unreached' AS never;
"""
    done = run("sql", stdin=script)
    assert done.exit_code == 1, "a script that failed somewhere says so at its end"
    shown = done.stdout
    for piece in (
        TABLE,
        "double",
        "42",
        " ms",
        "as of index",
        "route    lambda",
        '"Brest"',
        '{"five": 5}',
        "timing is on",
    ):
        assert piece in shown, piece
    assert "unreached" not in shown
    assert "no column nothing" in done.stderr and "not a command of the shell" in done.stderr


def test_statements_end_with_a_semicolon_and_an_interrupt_forgets_the_half_said() -> None:
    given = iter(["SELECT 1", KeyboardInterrupt(), "SELECT", "2;", "", "\\q", "SELECT 3"])

    def lines(more: bool) -> str:
        found = next(given, EOFError())
        if isinstance(found, BaseException):
            raise found
        return found

    assert list(statements(lines)) == ["SELECT\n2;", "\\q", "SELECT 3"]


def test_tables_columns_and_words_are_completed(lake: Lake) -> None:
    names = completer(lake)

    def complete(text: str) -> list[str]:
        return [completion.text for completion in names.get_completions(Document(text), None)]

    assert TABLE in complete("SELECT 1 FROM sho") and TABLE in complete("SELECT 1 FROM tid")
    assert complete(f"SELECT 1 FROM {TABLE} WHERE stat")[0] == "station"
    assert "SELECT" in complete("sel")


def test_a_search_is_a_query_too(lake: Lake) -> None:
    table = "shore.logs"
    lake.tables.create(table, {"id": "long", "text": "string"}, mode="mor", key=["id"])
    notes = ["the tide rises on the shore", "boil the rice and chop an onion"]
    lake.tables.insert(table, [{"id": number, "text": text} for number, text in enumerate(notes)])
    lake.vectors.create(table, "text")
    sequence(lake, table)
    sql = f"SELECT id FROM {table} ORDER BY embedding <-> $q LIMIT 1"
    answer = json.loads(run("-o", "json", "query", sql, "--param", "q=cooking").stdout)
    assert answer["rows"] == [{"id": 1}] and answer["receipt"]["searched"][f"{table}.text"]["behind"] is False
    explained = json.loads(run("-o", "json", "query", sql, "--param", "q=cooking", "--explain").stdout)
    assert explained["route"] == "lambda" and "never on Spark" in explained["reason"]
    by_words = run("query", f"SELECT id FROM {table} WHERE text @@ 'tides'", "--format", "json")
    assert json.loads(by_words.stdout) == {"id": 0}
    refused = command("query", f"SELECT id FROM {table} ORDER BY embedding <-> 'x'")
    assert refused.returncode != 0 and "needs a LIMIT" in refused.stderr
