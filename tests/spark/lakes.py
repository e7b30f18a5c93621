"""The lake of the package's endpoint, for tests that run jobs in the package's session."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.core.settings import Settings
from catalog.lake import Lake, open_lake
from infra.local.endpoint import Endpoint


def open_with(endpoint: Endpoint, settings: Settings, patch: pytest.MonkeyPatch) -> Lake:
    """The lake as seen by a job that runs in this process."""
    for name, value in endpoint.environment("spark").items():
        patch.setenv(name, value)
    return open_lake(settings)


def rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    """The table's rows through the lake's own reader, in an order of their own."""
    records: list[dict[str, Any]] = lake.tables.scan(table).to_pylist()
    return sorted(records, key=repr)
