"""One embedded cloud for all tests of its API."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from infra.local.cloud import EmbeddedCloud
from tests.e2e.api.caller import Api


@pytest.fixture(scope="package")
def cloud() -> Iterator[EmbeddedCloud]:
    with EmbeddedCloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def calling(cloud: EmbeddedCloud) -> Iterator[Callable[..., Api]]:
    with httpx.Client(timeout=60) as http:
        yield lambda token: Api(http, cloud.addresses()["api"], token)


@pytest.fixture(scope="module")
def api(cloud: EmbeddedCloud, calling: Callable[..., Api]) -> Api:
    return calling(cloud.token("admin"))
