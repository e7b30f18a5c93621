"""`strandline timeline` and `strandline proof`, as a person and a script use them."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.core.errors import Unavailable, Unverified
from catalog.lake import Lake
from catalog.merkle.checkpoint import open_checkpoint
from catalog.merkle.note import Ed25519Signer, VerifierKey
from catalog.merkle.tiles import ENTRIES, Tile, join_entries, split_entries
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.log import store_keys
from catalog.timeline.log.store import StoreReader
from cli.log_copies import _trimmed
from tests.worlds.cli import answer, run, strandline
from tests.worlds.lake import ORIGIN, running_lake

TABLE = "sales.orders"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    """A lake with one table of three leaves, sequenced in this process; the command finds it by its environment."""
    with running_lake() as made:
        made.iceberg.create_namespace("sales")
        table = made.iceberg.create_table(TABLE, schema=ROWS.schema)
        for _ in range(2):
            table.append(ROWS)
            made.sequencer.catch_up([TABLE])
        yield made


def vkey(lake: Lake) -> str:
    return answer("timeline", "head")["keys"][-1]


def test_the_log_shows_the_newest_leaves_first(lake: Lake) -> None:
    rows = answer("timeline", "log")
    assert [(row["index"], row["operation"], row["table"]) for row in rows] == [
        (2, "append", TABLE),
        (1, "append", TABLE),
        (0, "create", TABLE),
    ]
    assert answer("timeline", "log", TABLE, "--limit", "1") == rows[:1]
    shown = run("timeline", "log", TABLE).stdout
    assert "append" in shown and TABLE in shown


def test_an_unknown_table_is_said_with_its_exit_code(lake: Lake) -> None:
    done = strandline("-o", "json", "timeline", "log", "sales.nothing")
    assert done.returncode == 1 and done.stdout == b""
    assert json.loads(done.stderr)["error"]["kind"] == "not_found"


def test_the_head_is_the_signed_checkpoint_byte_for_byte(lake: Lake) -> None:
    note = run("timeline", "head").stdout_bytes
    key = VerifierKey.parse(vkey(lake))
    assert open_checkpoint(note, [key]).size == 3
    earlier = answer("timeline", "head", "--size", "2")
    assert earlier["size"] == 2 and open_checkpoint(earlier["checkpoint"].encode(), [key]).size == 2


def test_a_command_lets_go_of_the_timelines_reader(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would ask the store for news as long as the process lives: in a program that goes on, for ever."""
    opened, original = list[StoreReader](), StoreReader.open

    def remember(*arguments: Any) -> StoreReader:
        opened.append(original(*arguments))
        return opened[-1]

    monkeypatch.setattr(StoreReader, "open", remember)
    answer("timeline", "head")
    (reader,) = opened
    with pytest.raises(Unavailable, match="closed"):
        reader.get(store_keys.HEAD)


def test_a_proof_is_one_file_that_anybody_checks_with_the_key_alone(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "1.tlog-proof"
    made = answer("timeline", "prove", "1", "--to", str(file))
    assert made["index"] == 1 and made["bytes"] == file.stat().st_size <= 2048
    verdict = answer("proof", "verify", str(file), "--key", made["key"])
    assert (verdict["verified"], verdict["index"], verdict["size"], verdict["entry"]["table"]) == (True, 1, 3, TABLE)

    snapshot = verdict["entry"]["snapshot_id"]
    assert run("timeline", "prove", "--snapshot", snapshot, "--to", "-").stdout_bytes == file.read_bytes()

    entry, keys = tmp_path / "entry", tmp_path / "keys"
    entry.write_bytes(lake.timeline.source.entry(1, 3))
    keys.write_text(made["key"] + "\n")
    assert run("proof", "verify", str(file), "--key", f"@{keys}", "--entry", str(entry)).exit_code == 0
    entry.write_bytes(lake.timeline.source.entry(2, 3))
    assert strandline("proof", "verify", str(file), "--key", made["key"], "--entry", str(entry)).returncode == 3


@pytest.mark.parametrize("where", ["entry", "index", "hash", "checkpoint", "signature"])
def test_a_proof_with_one_wrong_character_fails_with_exit_code_3(lake: Lake, where: str, tmp_path: Path) -> None:
    proof = run("timeline", "prove", "1", "--to", "-").stdout_bytes
    lines = proof.split(b"\n")
    number = {"entry": 1, "index": 2, "hash": 3, "checkpoint": -5, "signature": -2}[where]
    line = lines[number]
    at = len(line) - 12 if where != "index" else len(line) - 1
    other = b"B" if line[at : at + 1] == b"A" else (b"0" if where == "index" else b"A")
    lines[number] = line[:at] + other + line[at + 1 :]
    file = tmp_path / "p"
    file.write_bytes(b"\n".join(lines))
    done = strandline("proof", "verify", str(file), "--key", vkey(lake))
    assert (done.returncode, done.stdout) == (3, b"") and b"unverified" in done.stderr


def test_another_key_and_a_missing_entry_are_refused(lake: Lake, tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_bytes(run("timeline", "prove", "0", "--to", "-").stdout_bytes)
    stranger = str(Ed25519Signer.generate(ORIGIN).verifier_key)
    assert strandline("proof", "verify", str(file), "--key", stranger).returncode == 3
    assert strandline("proof", "verify", str(file), "--key", "rubbish").returncode == 2
    file.write_bytes(lake.timeline.proof(0))
    assert strandline("proof", "verify", str(file), "--key", vkey(lake)).returncode == 2


def test_checking_a_proof_loads_nothing_of_the_lake_and_asks_nobody(lake: Lake) -> None:
    proof = run("timeline", "prove", "1", "--to", "-").stdout_bytes
    code = """
import socket, sys
socket.socket.connect = None
from cli.main import main
try:
    main()
except SystemExit as end:
    heavy = {"slatedb", "pyiceberg", "pyarrow", "boto3", "botocore", "datafusion", "moto", "aws_lambda_powertools"}
    ours = {name for name in sys.modules if name.startswith("catalog.timeline") or name.startswith("catalog.tables")}
    print(sorted(heavy & set(sys.modules)) + sorted(ours), end.code or 0)
"""
    command = [sys.executable, "-c", code, "-o", "json", "proof", "verify", "-", "--key", vkey(lake)]
    done = subprocess.run(command, input=proof, capture_output=True, timeout=300)
    verdict, modules = done.stdout.decode().splitlines()
    assert json.loads(verdict)["verified"] and modules == "[] 0", done


def test_verify_says_what_it_looked_at_and_goes_on_from_a_checkpoint(lake: Lake, tmp_path: Path) -> None:
    report = answer("timeline", "verify", "--deep")
    assert (report["verified"], report["leaves"], report["size"], report["faults"]) == (True, 3, 3, [])
    assert report["objects"] > 6
    kept = tmp_path / "last.checkpoint"
    kept.write_bytes(run("timeline", "head", "--size", "2").stdout_bytes)
    assert answer("timeline", "verify", "--since", str(kept))["leaves"] == 1
    assert answer("timeline", "verify", "--since", "3")["leaves"] == 0
    assert "Everything is as it was signed." in run("timeline", "verify").stdout


def test_verify_names_the_object_and_the_commit_and_ends_with_3(lake: Lake) -> None:
    table = lake.iceberg.load_table(TABLE)
    path = next(iter(table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).plan_files())).file.file_path
    where = dict(zip(("Bucket", "Key"), path.removeprefix("s3://").split("/", 1), strict=True))
    before = lake.s3.get_object(**where)["Body"].read()
    lake.s3.put_object(**where, Body=before[:-1] + b"?")
    try:
        assert strandline("timeline", "verify").returncode == 0
        done = strandline("timeline", "verify", "--deep")
        as_json = strandline("-o", "json", "timeline", "verify", "--deep")
    finally:
        lake.s3.put_object(**where, Body=before)
    assert done.returncode == as_json.returncode == 3
    said = done.stdout.decode()
    assert path in said and f"commit 1 of {TABLE}" in said and "1 faults." in said
    (fault,) = json.loads(as_json.stdout)["faults"]
    assert (fault["object"], fault["index"], fault["table"]) == (path, 1, TABLE)


def test_the_exported_log_is_whole_and_needs_no_lake(lake: Lake, tmp_path: Path) -> None:
    copied = answer("timeline", "export", str(tmp_path / "copy"))
    files = {
        p.relative_to(tmp_path / "copy").as_posix(): p.read_bytes()
        for p in (tmp_path / "copy").rglob("*")
        if p.is_file()
    }
    assert sorted(files) == ["checkpoint", "keys", "tile/0/000.p/3", "tile/entries/000.p/3"]
    assert (copied["size"], copied["objects"], copied["bytes"]) == (3, 4, sum(map(len, files.values())))
    entries = split_entries(Tile.parse("tile/entries/000.p/3"), files["tile/entries/000.p/3"])
    checkpoint = open_checkpoint(files["checkpoint"], [VerifierKey.parse(vkey(lake))])
    assert root(map(leaf_hash, entries)) == checkpoint.root

    tar = strandline("timeline", "export", "-").stdout
    with tarfile.open(fileobj=BytesIO(tar)) as archive:
        packed = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert packed == files and list(packed)[-1] == "checkpoint"


def test_a_partial_tile_that_was_pruned_meanwhile_is_cut_from_the_full_one() -> None:
    entries, hashes = [b"%d" % number for number in range(256)], b"".join(bytes([number]) * 32 for number in range(256))
    assert _trimmed(Tile(ENTRIES, 0, 3), join_entries(entries)) == join_entries(entries[:3])
    assert _trimmed(Tile(0, 0, 3), hashes) == hashes[:96]
    assert _trimmed(Tile(ENTRIES, 0, 3), join_entries(entries[:3])) == join_entries(entries[:3])
    with pytest.raises(Unverified):
        _trimmed(Tile(ENTRIES, 0, 3), join_entries(entries[:5]))


def test_compact_asks_the_sequencer_and_writes_nothing_itself(lake: Lake) -> None:
    sent = answer("timeline", "compact")
    (message,) = lake.client("sqs").receive_message(QueueUrl=lake.settings.moved_queue_url)["Messages"]
    assert json.loads(message["Body"]) == {"kind": "compact", "correlation_id": sent["correlation_id"]}


COMMANDS = [("timeline", name) for name in ("log", "head", "prove", "verify", "export", "compact")]


@pytest.mark.parametrize(("group", "name"), [*COMMANDS, ("proof", "verify")])
def test_every_command_has_help_with_examples(group: str, name: str) -> None:
    assert f" {name} " in run(group, "--help").stdout
    shown = run(group, name, "--help")
    assert shown.exit_code == 0
    assert f"Examples: strandline {group} {name}" in " ".join(shown.stdout.split())


def test_a_table_as_of_a_point_is_proven_and_checked_without_the_lake(lake: Lake, tmp_path: Path) -> None:
    file, key = tmp_path / "orders.as-of.json", vkey(lake)
    made = answer("timeline", "as-of", TABLE, "--at", "1", "--to", str(file))
    assert (made["table"], made["index"], made["key"]) == (TABLE, 1, key)
    checked = answer("proof", "as-of", str(file), "--table", TABLE, "--at", "1", "--key", key)
    assert checked == {"verified": True} | {
        name: made[name] for name in ("table", "table_uuid", "snapshot_id", "index")
    }
    asked = ["proof", "as-of", str(file), "--key", key]
    for lie in (["--table", TABLE, "--at", "2"], ["--table", "sales.other", "--at", "1"]):
        assert strandline(*asked, *lie).returncode == 3
    assert strandline(*asked, "--table", TABLE, "--at", "1", "--uuid", made["table_uuid"][::-1]).returncode == 3
    data = file.read_bytes()
    file.write_bytes(data.replace(b'"index":1,', b'"index":2,', 1))
    assert strandline(*asked, "--table", TABLE, "--at", "2").returncode == 3


def test_that_there_is_no_such_table_now_is_proven(lake: Lake, tmp_path: Path) -> None:
    file, head, key = tmp_path / "none.as-of.json", tmp_path / "head", vkey(lake)
    made = answer("timeline", "as-of", "sales.nothing", "--to", str(file))
    assert (made["table_uuid"], made["index"]) == (None, 2)
    shown = run("proof", "as-of", str(file), "--table", "sales.nothing", "--at", "2", "--key", key).stdout
    assert "There was no table sales.nothing at index 2." in shown
    head.write_bytes(run("timeline", "head").stdout_bytes)
    answer("timeline", "as-of", "sales.nothing", "--at", "2090-01-01", "--to", str(file))
    asked = ["proof", "as-of", str(file), "--table", "sales.nothing", "--at", "2090-01-01", "--key", key]
    refused = strandline(*asked)
    assert refused.returncode == 3 and b"newest checkpoint" in refused.stderr
    assert answer(*asked, "--checkpoint", str(head))["verified"] is True
    assert strandline("timeline", "as-of", TABLE, "--at", "snapshot:5").returncode == 2
