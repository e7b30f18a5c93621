"""One trip through the whole lake, looked at twice: nothing touches local disk, and each role allows what it did and
no other write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.cloud import EmbeddedCloud
from infra.local.permissions import Policies, RequestedAction
from tests.e2e.file_trace import strace, written_files
from tests.e2e.flow import commit_and_wait
from tests.e2e.privilege import DELETES, WRITES, asked_by, asked_for_it, excesses, function_roles

FUNCTIONS = ("ingest", "sequencer", "api", "public", "canary")  # and the starter, which schedules invoke: test_jobs.py
traced = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (CI installs it)")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace"


@pytest.fixture(scope="module")
def cloud(trace: Path) -> Iterator[EmbeddedCloud]:
    """A cloud after the trip; every function was on the way."""
    cloud = EmbeddedCloud()
    if shutil.which("strace"):
        cloud.functions.spawner.prefix = strace(str(trace))
    with cloud, pytest.MonkeyPatch.context() as patch:
        commit_and_wait(cloud, patch)
        deployed = [f["FunctionName"] for f in cloud.endpoint.client("lambda").list_functions()["Functions"]]
        idle = [name for name in deployed if not any("END RequestId" in line for line in cloud.functions.logs(name))]
        assert not idle, f"the flow of this test never reaches {idle}: extend it in tests/e2e/flow.py"
        yield cloud


@pytest.fixture(scope="module")
def roles(cloud: EmbeddedCloud) -> dict[str, Policies]:
    return function_roles(cloud)


@traced
def test_no_function_makes_or_writes_a_file(cloud: EmbeddedCloud, trace: Path) -> None:
    lines = trace.read_text(errors="replace").splitlines()
    assert any("catalog/" in line for line in lines), "the trace saw no function at all"
    assert list(written_files(lines)) == []


class TestLeastPrivilege:
    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_a_role_allows_all_that_was_asked_under_it(
        self, cloud: EmbeddedCloud, roles: dict[str, Policies], function: str
    ) -> None:
        asked = asked_by(cloud, f"function/strandline-dev-{function}")
        usual = {"s3:GetObject"}
        if function != "public":
            usual |= {"glue:GetTable"} | ({"s3:PutObject"} if function != "canary" else set())
        assert usual <= {one.action for one in asked}
        denied = [one for one in [*asked, *asked_for_it(cloud, function)] if not roles[function].allows(one)]
        assert sorted(denied) == []

    @pytest.mark.parametrize("function", FUNCTIONS)
    def test_a_role_allows_no_write_outside_its_prefixes(
        self, cloud: EmbeddedCloud, roles: dict[str, Policies], function: str
    ) -> None:
        assert excesses(cloud, function, roles[function]) == []

    def test_every_function_is_looked_at(self, roles: dict[str, Policies]) -> None:
        assert {*FUNCTIONS, "starter"} == roles.keys() == WRITES.keys() - {"job"} == DELETES.keys() - {"job"}

    def test_only_the_sequencer_may_sign(self, cloud: EmbeddedCloud, roles: dict[str, Policies]) -> None:
        (secret,) = cloud.endpoint.client("secretsmanager").list_secrets()["SecretList"]
        read = RequestedAction("secretsmanager:GetSecretValue", secret["ARN"])
        assert [name for name, policies in roles.items() if policies.allows(read)] == ["sequencer"]

    def test_a_policy_that_allows_less_would_show(self, cloud: EmbeddedCloud, roles: dict[str, Policies]) -> None:
        """And one that allows more: a check that cannot fail would be worth nothing."""
        asked = asked_by(cloud, "function/strandline-dev-sequencer")
        assert not all(roles["ingest"].allows(one) for one in asked)
        allow = {"Effect": "Allow", "Action": "s3:Put*", "Resource": "arn:aws:s3:::*"}
        assert excesses(cloud, "ingest", Policies((*roles["ingest"].statements, allow)))


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
