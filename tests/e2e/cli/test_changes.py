"""`strandline changes`: the feed as people and scripts read it, and a feed file checked by somebody without a lake."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.lake import Lake
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from cli import changes as command
from tests.worlds.cli import answer, run
from tests.worlds.lake import running_lake

TABLE = "silver.tides"
STRANGER = Ed25519Signer.generate("strandline.test/lake")


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """Leaves of the table: 0 create, 1 three inserts, 2 a tag, 3 an upsert of two, 4 a compaction, 5 a delete."""
    with running_lake() as made:
        tables = made.tables
        tables.create(TABLE, {"station": "string", "metres": "double"}, mode="mor", key=["station"])
        made.sequencer.catch_up([TABLE])
        for write in (
            lambda: tables.insert(
                TABLE, [{"station": s, "metres": m} for s, m in (("A", 1.0), ("B", 2.0), ("C", 3.0))]
            ),
            lambda: tables.snapshot(TABLE, "first"),
            lambda: tables.upsert(TABLE, [{"station": "B", "metres": 2.5}, {"station": "D", "metres": 4.0}]),
            lambda: tables.compact(TABLE),
            lambda: tables.delete(TABLE, "station = 'A'"),
        ):
            write()
            made.sequencer.catch_up([TABLE])
        yield made


@pytest.fixture(scope="module")
def vkey(lake: Lake) -> str:
    return str(answer("timeline", "head")["keys"][-1])


def sets(said: str) -> list[dict[str, Any]]:
    """The heads of a feed in JSON lines, with their changes."""
    change_sets: list[dict[str, Any]] = []
    for line in map(json.loads, said.splitlines()):
        if "format" in line:
            change_sets.append(line | {"changes": []})
        else:
            change_sets[-1]["changes"].append(line)
    return change_sets


def test_people_see_what_changed_commit_by_commit(lake: Lake) -> None:
    said = run("changes", TABLE).stdout.splitlines()
    rows = [line for line in said if line.startswith("  ")]
    assert rows == [
        '  + {"station": "A", "metres": 1.0}',
        '  + {"station": "B", "metres": 2.0}',
        '  + {"station": "C", "metres": 3.0}',
        '  ~ {"station": "B", "metres": [2.0, 2.5]}',
        '  + {"station": "D", "metres": 4.0}',
        '  - {"station": "A", "metres": 1.0}',
    ]
    assert [line.split(" · ")[-1] for line in said if line.startswith("leaf")] == [
        "3 changes",
        "2 changes",
        "0 changes",
        "1 changes",
    ]
    assert said[-1] == "6 changes in 4 commits, verified up to leaf 5."


def test_a_feed_begins_and_ends_where_it_is_told(lake: Lake) -> None:
    def ops(*words: str) -> list[str]:
        result = run("-o", "json", "changes", TABLE, *words)
        assert result.exit_code == 0, result.exception
        return [change["op"] for one in sets(result.stdout) for change in one["changes"]]

    snapshot = lake.tables.history(TABLE)[-1].snapshot_id
    assert ops("--since", "first", "--limit", "2") == ["UPDATE", "INSERT"]
    assert ops("--since", f"snapshot:{snapshot}", "--until", "sequence:3") == ["UPDATE", "INSERT"]
    assert ops("--since", "now") == []
    assert isinstance(run("changes", TABLE, "--since", "2100-01-01").exception, Invalid)
    assert isinstance(run("changes", TABLE, "--since", "nothing").exception, NotFound)


def test_a_feed_is_verified_as_it_is_shown(lake: Lake, vkey: str) -> None:
    said = run("changes", TABLE, "--verify", "--key", vkey)
    assert said.exit_code == 0 and said.stdout.endswith("6 changes in 4 commits, verified up to leaf 5.\n")
    stranger = str(Ed25519Signer.generate("strandline.test/cli").verifier_key)
    refused = run("changes", TABLE, "--verify", "--key", stranger)
    assert isinstance(refused.exception, Unverified) and "+ {" not in refused.stdout


@pytest.fixture(scope="module", params=["jsonl", "arrows"])
def kept(lake: Lake, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("feed") / f"feed.{request.param}"
    made = answer("changes", TABLE, "--out", str(file))
    assert (made["commits"], made["changes"]) == (4, 6) and [p.name for p in file.parent.iterdir()] == [file.name]
    return file


def test_a_kept_feed_is_checked_with_the_key_alone(kept: Path, vkey: str) -> None:
    verify = ("changes", "verify", str(kept), "--key", vkey, "--table", TABLE)
    verdict = answer(*verify, "--since", "sequence:-1", "--until", "sequence:5")
    uuid = verdict.pop("table_uuid")
    assert verdict == {"verified": True, "table": TABLE, "since": -1, "reached": 5, "commits": 4, "changes": 6}
    said = " ".join(run(*verify).stdout.split())
    assert f"{TABLE} (uuid {uuid}): 6 changes in 4 commits" in said
    assert answer(*verify, "--uuid", uuid)["table"] == answer(*verify[:-2], "--uuid", uuid)["table"] == TABLE
    other = "00000000-0000-0000-0000-000000000001"
    for words in (["--since", "sequence:0"], ["--until", "sequence:6"], ["--uuid", other], ["--table", "silver.other"]):
        assert isinstance(run(*verify, *words).exception, Unverified), words
    assert isinstance(run(*verify[:-2]).exception, Invalid), "the table must be said"


@pytest.mark.parametrize("suffix", ["jsonl", "arrows"])
def test_another_tables_commits_do_not_pass_for_this_ones(lake: Lake, vkey: str, tmp_path: Path, suffix: str) -> None:
    """Leaves 0 to 3 of one table, then 4 and 5 of another: each holds, and so does the order of the numbers."""
    other, tables = f"silver.others_{suffix}", lake.tables
    tables.create(other, {"station": "string", "metres": "double"}, key=["station"])
    for station in "VWXYZ":
        tables.insert(other, [{"station": station, "metres": 1.0}])
    lake.sequencer.catch_up([other])
    first, rest, spliced = (tmp_path / f"{name}.{suffix}" for name in ("first", "rest", "spliced"))
    answer("changes", TABLE, "--until", "sequence:3", "--out", str(first))
    answer("changes", other, "--since", "sequence:3", "--out", str(rest))
    spliced.write_bytes(first.read_bytes() + rest.read_bytes())

    def verify(file: Path, table: str) -> Any:
        return run("changes", "verify", str(file), "--key", vkey, "--table", table)

    assert verify(first, TABLE).exit_code == verify(rest, other).exit_code == 0
    for file, table in ((spliced, TABLE), (spliced, other), (rest, TABLE)):
        assert isinstance(verify(file, table).exception, Unverified)
    if suffix == "jsonl":
        rest.write_text(rest.read_text().replace(f'"table": "{other}"', f'"table": "{TABLE}"'))
        assert isinstance(verify(rest, TABLE).exception, Unverified)


def test_checking_a_feed_opens_no_lake_asks_nobody_and_ends_with_its_exit_code(
    lake: Lake, vkey: str, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "feed.jsonl", tmp_path / "cut.jsonl"
    answer("changes", TABLE, "--since", "first", "--out", str(whole))
    cut.write_text("".join(whole.read_text().splitlines(keepends=True)[:-1]))
    code = """
import socket, sys
socket.socket.connect = None
from cli.main import main
_, key, *files = sys.argv
for file in files:
    sys.argv = ["strandline", "-o", "json", "changes", "verify", file, "--key", key, "--table", "silver.tides"]
    try:
        main()
    except SystemExit as end:
        print(sorted({"slatedb", "pyiceberg", "boto3", "moto"} & set(sys.modules)), end.code or 0, flush=True)
"""
    words = [sys.executable, "-c", code, vkey, str(whole), str(cut)]
    done = subprocess.run(words, capture_output=True, timeout=300)
    verdict, *ends = done.stdout.decode().splitlines()
    assert json.loads(verdict)["verified"] and ends == ["[] 0", "[] 3"], done
    assert json.loads(done.stderr)["error"]["kind"] == "unverified"


def test_a_feed_that_was_tampered_with_ends_with_exit_code_3(lake: Lake, vkey: str, tmp_path: Path) -> None:
    file = tmp_path / "feed.jsonl"
    answer("changes", TABLE, "--out", str(file))
    lines = file.read_text().splitlines(keepends=True)
    first, second = [number for number, line in enumerate(lines) if '"format"' in line][:2]
    altered = lines[first + 1].replace("1.0", "1.1")
    forgeries = {
        "dropped": lines[: first + 1] + lines[first + 2 :],
        "altered": [*lines[: first + 1], altered, *lines[first + 2 :]],
        "repeated": [*lines[: first + 2], lines[first + 1], *lines[first + 2 :]],
        "moved": [*lines[: first + 1], lines[first + 2], lines[first + 1], *lines[first + 3 :]],
        "commit dropped": [*lines[:second], *lines[second + 3 :]],
        "commit repeated": [*lines[:second], *lines[:second], *lines[second:]],
        "commits swapped": [*lines[second : second + 3], *lines[:second], *lines[second + 3 :]],
    }
    for what, forged in forgeries.items():
        file.write_text("".join(forged))
        result = run("changes", "verify", str(file), "--key", vkey, "--table", TABLE)
        assert isinstance(result.exception, Unverified), what


def test_a_feed_begins_and_ends_at_an_index_of_the_timeline(lake: Lake) -> None:
    """Index 0 is the table's creation; another table's leaf in between belongs to no place of this one."""
    index = {leaf.sequence: index for index, leaf in lake.timeline.commits_since(TABLE)}
    whole = sets(run("-o", "json", "changes", TABLE, "--since", str(index[0]), "--verify").stdout)
    assert [len(one["changes"]) for one in whole] == [3, 2, 0, 1]
    part = sets(run("-o", "json", "changes", TABLE, "--since", str(index[1]), "--until", str(index[4])).stdout)
    assert [len(one["changes"]) for one in part] == [2, 0]
    size = lake.timeline.head().checkpoint.size
    assert isinstance(run("changes", TABLE, "--since", str(size)).exception, NotFound)
    assert isinstance(run("changes", TABLE, "--since", "@0").exception, Invalid)


def test_a_part_of_a_commit_passes_only_where_parts_were_asked_for(lake: Lake, vkey: str, tmp_path: Path) -> None:
    file = tmp_path / "feed.arrow"
    answer("changes", TABLE, "--limit", "2", "--out", str(file))
    verify = ("changes", "verify", str(file), "--key", vkey, "--table", TABLE)
    result = run(*verify)
    assert isinstance(result.exception, Unverified) and "2 of 3 changes" in result.exception.message
    assert answer(*verify, "--partial")["changes"] == 2


def test_a_feed_extends_the_checkpoint_that_was_kept(lake: Lake, vkey: str, tmp_path: Path) -> None:
    old, other, file = tmp_path / "kept", tmp_path / "other", tmp_path / "feed.jsonl"
    old.write_bytes(lake.timeline.head(2).note)
    other.write_bytes(Checkpoint(lake.settings.origin, 2, bytes(32)).sign([STRANGER]))
    verify = ("changes", "verify", str(file), "--key", vkey, "--table", TABLE, "--kept")
    answer("changes", TABLE, "--out", str(file))
    plain = run(*verify, str(old))
    assert isinstance(plain.exception, Unverified) and "extends" in plain.exception.message
    answer("changes", TABLE, "--out", str(file), "--kept", str(old))
    assert answer(*verify, str(old))["verified"]
    for command_line in ((*verify, str(other)), ("changes", TABLE, "--kept", str(other))):
        assert isinstance(run(*command_line).exception, Unverified)


def test_what_the_lake_says_is_verified_unless_it_is_told_not_to(lake: Lake) -> None:
    stranger = ("--key", str(STRANGER.verifier_key))
    refused = run("changes", TABLE, *stranger)
    assert isinstance(refused.exception, Unverified) and refused.stdout == ""
    assert run("changes", TABLE, "--no-verify", *stranger).exit_code == 0


def test_what_is_no_feed_is_refused(vkey: str, tmp_path: Path) -> None:
    file = tmp_path / "feed"
    for content in (b"", b"{}\n", b"rubbish", b'{"format": "strandline/changes@v1"}\n'):
        file.write_bytes(content)
        result = run("changes", "verify", str(file), "--key", vkey, "--table", TABLE)
        assert isinstance(result.exception, Unverified), content
    none = run("changes", "verify", str(tmp_path / "none"), "--key", vkey, "--table", TABLE)
    assert isinstance(none.exception, Invalid) and "cannot be read" in none.exception.message
    assert isinstance(run("changes", TABLE, "--format", "xml").exception, Invalid)


def test_arrow_on_stdout_is_readable_by_any_arrow_reader(lake: Lake) -> None:
    said = run("changes", TABLE, "--since", "first", "--until", "sequence:3", "--format", "arrow").stdout_bytes
    table = pa.ipc.open_stream(said).read_all()
    assert table["op"].to_pylist() == ["UPDATE", "INSERT"]


def test_a_followed_feed_shows_what_is_committed_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "POLL_S", 0.05)
    name = "silver.followed"
    lake.tables.create(name, {"id": "long"}, key=["id"])
    lake.tables.insert(name, [{"id": 1}])
    lake.sequencer.catch_up([name])
    waiting, pause = threading.Event(), command.time.sleep

    def sleep(seconds: float) -> None:
        waiting.set()
        pause(seconds)

    monkeypatch.setattr(command.time, "sleep", sleep)

    def write() -> None:
        waiting.wait(60)  # everything that was there is shown
        lake.tables.insert(name, [{"id": 2}])
        lake.tables.snapshot(name, "between")
        lake.tables.delete(name, "id = 1")
        lake.sequencer.catch_up([name])

    writer = threading.Thread(target=write)
    writer.start()
    said = run("-o", "json", "changes", name, "--follow", "--limit", "3", "--verify")
    writer.join()
    assert said.exit_code == 0, said.exception
    assert [change["op"] for one in sets(said.stdout) for change in one["changes"]] == ["INSERT", "INSERT", "DELETE"]


@pytest.mark.parametrize("name", ["feed", "verify"])
def test_every_command_has_help_with_examples(name: str) -> None:
    shown = run("changes", name, "--help")
    assert shown.exit_code == 0 and "Examples: strandline changes" in " ".join(shown.stdout.split())
