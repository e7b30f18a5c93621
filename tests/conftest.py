"""What all tests share: how they are dealt out to two workers, and how long a Hypothesis example may take."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent

# A loaded machine is no failing test: nothing here is timed.
settings.register_profile("strandline", deadline=None)
settings.load_profile("strandline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file stays on one worker, so that its cloud starts once; all of spark/ does, for its one session."""
    for item in items:
        path = item.path.relative_to(TESTS)
        group = path.parts[0] if path.parts[0] == "spark" else str(path)
        item.add_marker(pytest.mark.xdist_group(group))
