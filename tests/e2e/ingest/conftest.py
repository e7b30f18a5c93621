"""One embedded cloud for all tests of ingestion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.cloud import EmbeddedCloud


@pytest.fixture(scope="package")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud:
        yield cloud
