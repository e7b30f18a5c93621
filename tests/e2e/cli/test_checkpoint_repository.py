"""`strandline timeline publish --git`: a public record of checkpoints, each of which extends the one before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.lake import Lake
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from catalog.timeline.log.publisher import Publisher
from infra.local.server import ApiServer
from tests.worlds.cli import answer, run
from tests.worlds.lake import ORIGIN, lake_on, sequence

TABLE = "sales.orders"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def lake(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "operator")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "operator@lake.example")
    with lake_on(server) as made:
        made.iceberg.create_namespace_if_not_exists("sales")
        if made.iceberg.table_exists(TABLE):
            made.iceberg.drop_table(TABLE)
        made.iceberg.create_table(TABLE, schema=ROWS.schema)
        sequence(made, TABLE)
        yield made


def grow(lake: Lake) -> bytes:
    lake.iceberg.load_table(TABLE).append(ROWS)
    sequence(lake, TABLE)
    return Publisher(lake.s3, lake.settings.bucket).published().note


def git(folder: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True).stdout


def test_each_checkpoint_is_a_commit_and_none_is_made_twice(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    notes = list[bytes]()
    for count in (1, 2):
        notes.append(grow(lake))
        assert answer("timeline", "publish", "--git", str(folder))["committed"] is True
        assert answer("timeline", "publish", "--git", str(folder))["committed"] is False
        assert len(git(folder, "log", "--format=%s").splitlines()) == count
    assert [git(folder, "show", f"{at}:checkpoint") for at in ("HEAD~1", "HEAD")] == notes
    assert git(folder, "status", "--porcelain") == b""


def test_a_job_without_an_identity_commits_under_the_commands_name(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    only_configured = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.useConfigOnly", "GIT_CONFIG_VALUE_0": "true"}
    for name, value in only_configured.items():
        monkeypatch.setenv(name, value)
    assert answer("timeline", "publish", "--git", str(tmp_path / "checkpoints"))["committed"] is True
    assert git(tmp_path / "checkpoints", "log", "--format=%an") == b"strandline\n"


def test_another_history_is_refused_and_the_record_stays(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    grow(lake)
    answer("timeline", "publish", "--git", str(folder))
    before = git(folder, "rev-parse", "HEAD")
    size = Checkpoint.parse((folder / "checkpoint").read_text().partition("\n\n")[0] + "\n").size
    signer = Ed25519Signer.generate(ORIGIN)
    for forged in (
        Checkpoint(ORIGIN, size, b"r" * 32).sign([signer]),
        Checkpoint(ORIGIN, size + 1000, b"r" * 32).sign([signer]),
        b"rubbish",
    ):
        (folder / "checkpoint").write_bytes(forged)
        git(folder, "commit", "-q", "-m", "another", "checkpoint")
        kept = git(folder, "rev-parse", "HEAD")
        grow(lake)
        refused = run("timeline", "publish", "--git", str(folder))
        assert refused.exception.kind.exit_code == 3, refused.exception
        assert git(folder, "rev-parse", "HEAD") == kept
        git(folder, "reset", "-q", "--hard", before.decode().strip())
    other = Checkpoint("other.example/lake", size, b"r" * 32).sign([Ed25519Signer.generate("other.example/lake")])
    (folder / "checkpoint").write_bytes(other)
    git(folder, "commit", "-q", "-m", "another", "checkpoint")
    assert run("timeline", "publish", "--git", str(folder)).exception.kind.exit_code == 2


def test_what_is_in_the_work_tree_alone_counts_for_nothing(lake: Lake, tmp_path: Path) -> None:
    """A run that ended between writing the file and committing it is simply repeated."""
    folder = tmp_path / "checkpoints"
    grow(lake)
    answer("timeline", "publish", "--git", str(folder))
    note = grow(lake)
    (folder / "checkpoint").write_bytes(note)
    assert answer("timeline", "publish", "--git", str(folder))["committed"] is True
    assert git(folder, "show", "HEAD:checkpoint") == note
