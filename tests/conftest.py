"""What all tests share: how they are dealt out to two workers, and how long a Hypothesis example may take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from hypothesis import settings

from infra.local.server import ApiServer

TESTS = Path(__file__).parent

# A loaded machine is no failing test: nothing here is timed.
settings.register_profile("strandline", deadline=None)
settings.load_profile("strandline")


# Minutes of waiting for time-outs, each test with a world of its own: they need not wait for each other.
SPREAD = {"timeline/test_timeline_faults.py"}


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file stays on one worker, so that its cloud starts once; all of spark/ does, for its one session."""
    for item in items:
        path = str(item.path.relative_to(TESTS))
        if path.startswith("spark/"):
            path = "spark"
        item.add_marker(pytest.mark.xdist_group(item.nodeid if path in SPREAD else path))


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
