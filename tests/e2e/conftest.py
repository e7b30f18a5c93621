"""The embedded cloud, once for each file that asks for it, and the lake in it as somebody outside sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from catalog.lake import Lake
from infra.local.cloud import EmbeddedCloud
from tests.e2e.flow import lake_of


@pytest.fixture(scope="module")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud:
        yield cloud


@pytest.fixture
def lake(cloud: EmbeddedCloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    with closing(lake_of(cloud, monkeypatch)) as lake:
        yield lake
