"""Functions and event source mappings of the embedded cloud, and as many queues with both as a test asks for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from infra.local.awslambda.service import LambdaService
from infra.local.server import ApiServer
from infra.local.sqs.mappings import EventSourceMappings
from tests.handlers.deploy import deploy
from tests.worlds.queues import Line, arn

_lines = itertools.count()


@pytest.fixture(scope="module")
def service(server: ApiServer) -> Iterator[LambdaService]:
    service = LambdaService(server.endpoint)
    service.start()
    yield service
    service.stop()


@pytest.fixture(scope="module")
def mappings(service: LambdaService) -> Iterator[EventSourceMappings]:
    mappings = EventSourceMappings(service)
    mappings.start()
    yield mappings
    mappings.stop()


@pytest.fixture
def line(
    server: ApiServer,
    service: LambdaService,
    mappings: EventSourceMappings,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., Line]]:
    made: list[str] = []

    def create(
        *, fifo: bool = False, visibility: int = 30, max_receives: int = 0, variables: Any = None, **more: Any
    ) -> Line:
        name = f"q{next(_lines)}" + "".join(c for c in request.node.name.lower() if c.isalnum())[:50]
        suffix = ".fifo" if fifo else ""
        sqs, lambdas = server.endpoint.client("sqs"), server.endpoint.client("lambda")
        attributes = {"VisibilityTimeout": str(visibility)}
        if fifo:
            attributes |= {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        dead_letters = None
        if max_receives:
            dead_letters = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
            attributes["RedrivePolicy"] = json.dumps(
                {"deadLetterTargetArn": arn(f"{name}-dead"), "maxReceiveCount": max_receives}
            )
        url = sqs.create_queue(QueueName=name + suffix, Attributes=attributes)["QueueUrl"]
        server.endpoint.client("s3").create_bucket(Bucket=name)
        environment = {"Variables": {"BUCKET": name, **(variables or {})}}
        deploy(server.endpoint, name, "batches", Environment=environment)
        service.invoke(name, b"{}")  # a cold start may take longer than a test's short visibility time-out
        mapping = lambdas.create_event_source_mapping(EventSourceArn=arn(name + suffix), FunctionName=name, **more)[
            "UUID"
        ]
        mappings.sync()
        made.append(mapping)
        return Line(server, name, url, dead_letters, mapping)

    yield create
    for mapping in made:
        server.endpoint.client("lambda").delete_event_source_mapping(UUID=mapping)
    mappings.sync()
