"""Functions of the embedded cloud, with a service for each file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.local.awslambda.service import LambdaService
from infra.local.server import ApiServer
from tests.handlers.deploy import deploy


@pytest.fixture(scope="module")
def service(server: ApiServer) -> Iterator[LambdaService]:
    service = LambdaService(server.endpoint, retry_delays=(0.01, 0.02))
    service.start()
    yield service
    service.stop()


@pytest.fixture
def function(server: ApiServer, request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Deploys a handler under the test's own name, and deletes it at the end."""
    name = request.node.name.split("[")[0][:60]

    def create(handler: str, **more: Any) -> str:
        deploy(server.endpoint, name, handler, **more)
        return name

    yield create
    server.endpoint.client("lambda").delete_function(FunctionName=name)


@pytest.fixture
def bucket(server: ApiServer, request: pytest.FixtureRequest) -> str:
    name = "b" + "".join(c for c in request.node.name.lower() if c.isalnum())[:50]
    server.endpoint.client("s3").create_bucket(Bucket=name)
    return name
