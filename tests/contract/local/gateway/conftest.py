"""A gateway for each test, and one HTTP API on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.clock import ManualClock
from infra.local.gateway import Gateway
from infra.local.server import ApiServer
from tests.worlds.gateway import Deployment, Functions


@pytest.fixture
def functions() -> Functions:
    return Functions()


@pytest.fixture
def gateway(server: ApiServer, functions: Functions) -> Iterator[Gateway]:
    gateway = Gateway(server.endpoint, server.log, functions.invoke, ManualClock())
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def api(server: ApiServer, gateway: Gateway) -> Iterator[Deployment]:
    deployed = Deployment(server, gateway)
    yield deployed
    deployed.client.delete_api(ApiId=deployed.id)
