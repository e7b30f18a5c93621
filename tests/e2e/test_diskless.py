"""Nothing touches local disk: every deployed function runs under a trace of what it does to files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra.local.cloud import EmbeddedCloud
from tests.e2e.file_trace import strace, written_files
from tests.e2e.flow import commit_and_wait


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (CI installs it)")
def test_no_function_makes_or_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "trace"
    cloud = EmbeddedCloud()
    cloud.functions.spawner.prefix = strace(str(trace))
    with cloud:
        commit_and_wait(cloud, monkeypatch)
        deployed = [f["FunctionName"] for f in cloud.endpoint.client("lambda").list_functions()["Functions"]]
        idle = [name for name in deployed if not any("END RequestId" in line for line in cloud.functions.logs(name))]
        assert not idle, f"the flow of this test never reaches {idle}: extend it in tests/e2e/flow.py"
    lines = trace.read_text(errors="replace").splitlines()
    assert any("catalog/" in line for line in lines), "the trace saw no function at all"
    assert list(written_files(lines)) == []


class TestTheTraceItself:
    """A check that cannot fail would be worth nothing."""

    @pytest.mark.parametrize(
        ("line", "found"),
        [
            ('7 openat(AT_FDCWD, "/tmp/x", O_RDWR|O_CREAT|O_EXCL, 0600) = 3', ["openat /tmp/x"]),
            ('7 openat(AT_FDCWD, "/tmp/x", O_WRONLY|O_CREAT|O_TRUNC, 0600) = -1 EACCES (Permission denied)', []),
            ('7 openat(AT_FDCWD, "/usr/lib/x.so", O_RDONLY|O_CLOEXEC) = 3', []),
            ('7 openat(AT_FDCWD, "/dev/null", O_RDWR) = 3', []),
            ('7 openat(AT_FDCWD, "/dev/shm/spill", O_RDWR|O_CREAT, 0600) = 3', ["openat /dev/shm/spill"]),
            ('7 openat(AT_FDCWD, "/tmp", O_RDWR|O_TMPFILE, 0600) = 3', ["openat /tmp"]),
            ('7 mkdir("/root/.cache", 0777) = 0', ["mkdir /root/.cache"]),
            ('7 mkdir("/root/.cache", 0777) = -1 EEXIST (File exists)', []),
            ('7 renameat2(AT_FDCWD, "/a", AT_FDCWD, "/b", 0) = 0', ["renameat2 /b"]),
        ],
    )
    def test_one_call(self, line: str, found: list[str]) -> None:
        assert list(written_files([line])) == found

    def test_a_call_that_was_interrupted(self) -> None:
        lines = [
            '7 openat(AT_FDCWD, "/tmp/x", O_RDWR|O_CREAT, 0600 <unfinished ...>',
            '8 openat(AT_FDCWD, "/etc/hosts", O_RDONLY) = 4',
            "7 <... openat resumed>) = 3",
        ]
        assert list(written_files(lines)) == ["openat /tmp/x"]
