"""What all tests share: how they are dealt out to the workers, and how long a Hypothesis example may take."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
import typer.testing
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from infra.local.server import ApiServer

# A loaded machine is no failing test: nothing here is timed.
settings.register_profile("strandline", deadline=None)
settings.load_profile("strandline")


# typer builds all commands anew for every call that a test makes.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# One Spark session, one cloud: a package that shares one stays on one worker.
TOGETHER = ("tests/spark/", "tests/e2e/api/", "tests/e2e/ingest/")
# Minutes of waiting for time-outs, each test with a world of its own: they need not wait for each other.
SPREAD = ("tests/contract/timeline/test_faults.py",)
LONGEST_FIRST = (
    "tests/spark/",
    "tests/e2e/",
    "tests/chaos/",
    "tests/simulation/",
    "tests/contract/timeline/",
    "tests/contract/",
    "tests/property/",
    "tests/",
)


class ByFile(LoadScopeScheduling):
    """A file stays on one worker, so that its cloud starts once.

    (xdist's own groups are no help: it writes them into a node's id, which pytest 9.2 does not let it.)
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(TOGETHER):
            return next(package for package in TOGETHER if nodeid.startswith(package))
        return nodeid if nodeid.startswith(SPREAD) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    config.option.loadscopereorder = False  # the order below stands
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes comes first, so that the workers end together."""
    items.sort(key=lambda item: next(at for at, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start)))


@pytest.fixture(autouse=True)
def _own_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3's default session keeps the credentials it saw first; each test is whoever its environment says."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """AWS in memory, new for each file: nothing of one reaches another."""
    server = ApiServer()
    server.start()
    yield server
    server.stop()
