"""The embedded cloud: starts its services in order, deploys the stacks, and removes everything in `stop`.

The wiring of functions, queues and schedules is in the stacks; this module only assembles the services that run them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from types import TracebackType
from typing import Any, Self

from catalog.core.settings import PREFIX, ROLE_PREFIX, variable_of
from infra.app import build_app
from infra.local.assembly import AppBuilder, Template, deploy, resources, synthesise
from infra.local.authorization import Authorization
from infra.local.awslambda.service import LambdaService
from infra.local.clock import Clock, SystemClock
from infra.local.emr.runner import JobRunner
from infra.local.endpoint import Endpoint
from infra.local.eventbridge.agenda import Agenda
from infra.local.eventbridge.bus import Bus
from infra.local.eventbridge.schedules import Schedules
from infra.local.eventbridge.targets import Targets
from infra.local.gateway.server import Gateway
from infra.local.latency import Latency
from infra.local.server import ApiServer
from infra.local.sqs.mappings import EventSourceMappings

_POLL_SECONDS = 0.05


class EmbeddedCloud:
    """A lake on loopback. One per process.

    `port` is the AWS endpoint's (0: any). `clock` drives schedules and token expiry, so that a test can advance it.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        clock: Clock | None = None,
        app: AppBuilder = build_app,
        max_workers: int = 2,
    ) -> None:
        self.clock = clock or SystemClock()
        self._app = app
        self.server = ApiServer(port)
        self.server.control = self._control
        self.endpoint: Endpoint = self.server.endpoint
        self.functions = LambdaService(self.endpoint, max_workers=max_workers)
        self.mappings = EventSourceMappings(self.functions)
        self._agenda = Agenda(self.clock)
        targets = Targets(self.endpoint, self.functions.invoke_async, self._agenda)
        self.bus = Bus(targets, self.clock)
        self.schedules = Schedules(self.endpoint, self.server.log, targets, self._agenda)
        # A request does not wait for a function at its reserved concurrency: API Gateway responds 503.
        invoke = partial(self.functions.invoke, wait=False)
        self.gateway = Gateway(self.endpoint, self.server.log, invoke, self.clock)
        self.jobs = JobRunner(self.endpoint)
        self.started_in = 0.0
        # `stop` calls these, last first; when `start` fails, they stop what was started.
        self._undo: list[Callable[[], None]] = []

    def add_latency(self, seed: int = 0) -> Latency:
        """From now on every request to an AWS API takes as long as on AWS. Functions compute as fast as before."""
        self.server.latency = Latency(seed)
        return self.server.latency

    def start(self) -> Self:
        """Returns when all stacks are deployed: after about five seconds, most of them for CDK synthesis."""
        began = time.monotonic()
        try:
            for service in (self.server, self.functions, self._agenda, self.bus, self.schedules, self.gateway):
                service.start()
                self._undo.append(service.stop)
            self._undo.append(self.jobs.stop)
            deploy(self.endpoint, templates_of(self._app), {"Issuer": self.gateway.issuer.address})
            self.gateway.stand_for_pool()
            self.server.authorization = Authorization(self.endpoint, self.jobs.role_of)
            # Last, so that no function receives messages before every stack is deployed.
            self.mappings.start()
            self._undo.append(self.mappings.stop)
            self.schedules.sync()
        except BaseException:
            self.stop()
            raise
        self.started_in = time.monotonic() - began
        return self

    def stop(self) -> None:
        """Leaves no process, no working thread and no file behind."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def environment(self, principal: str) -> dict[str, str]:
        """The environment variables that make a process use this lake as `principal`: the SDK's and the lake's.

        The lake's are read from the deployed functions.
        """
        variables: dict[str, str] = {}
        for function in self.endpoint.client("lambda").list_functions()["Functions"]:
            variables |= function.get("Environment", {}).get("Variables", {})
        lake = {key: value for key, value in variables.items() if key.startswith(PREFIX)}
        lake.pop(variable_of("function"), None)
        return {**self.endpoint.environment(principal), **lake}

    def addresses(self) -> dict[str, str]:
        """The URLs of the AWS endpoint, the gateway and the issuer, and `api`, the lake's API if it is deployed."""
        urls = {"aws": self.endpoint.url, "http": self.gateway.url, "issuer": self.gateway.issuer.address}
        for api_id in resources(self.endpoint, "AWS::ApiGatewayV2::Api").values():
            urls["api"] = self.gateway.url_of(api_id)
        return urls

    def token(self, *roles: str, subject: str = "person", **claims: Any) -> str:
        """A token that the deployed API accepts, valid for a day. The issuer requires no password.

        `roles` are the lake's, such as `reader:gold.*`; the token has them with the deployed prefix.
        """
        audience = self.gateway.audience()
        claims = {"roles": tuple(f"{self._role_prefix()}{role}" for role in roles), **claims}
        return self.gateway.issuer.token(subject, audience, expires_in=timedelta(days=1), **claims)

    def session(self) -> dict[str, str]:
        """The API's URL and a token with the admin role, for the command and the page on this machine."""
        return {"endpoint": self.addresses()["api"], "token": self.token("admin")}

    def _role_prefix(self) -> str:
        variables = self.environment("person")
        return variables.get(variable_of("role_prefix"), ROLE_PREFIX)

    def serve_page(self) -> None:
        """Makes the gateway serve the lake's page at its root."""
        self.gateway.page_session = self.session

    def status(self) -> dict[str, Any]:
        """What is deployed and how busy it is, for display."""
        stacks = self.endpoint.client("cloudformation").describe_stacks()["Stacks"]
        workers = self.functions.workers()
        functions = self.endpoint.client("lambda").list_functions()["Functions"]
        return {
            "addresses": self.addresses(),
            "stacks": {stack["StackName"]: stack["StackStatus"] for stack in stacks},
            "functions": {
                f["FunctionName"]: f"{sum(w.busy for w in workers.get(f['FunctionName'], ()))} busy" for f in functions
            },
            "queues": {
                name: f"{visible} waiting, {in_flight} held" for name, (visible, in_flight) in self.queues().items()
            },
            "started_in_s": {"seconds": round(self.started_in, 1)},
        }

    def queues(self) -> dict[str, tuple[int, int]]:
        """`{queue: (visible messages, messages in flight)}`."""
        urls = resources(self.endpoint, "AWS::SQS::Queue").values()
        return {url.rsplit("/", 1)[1]: self._messages(url) for url in urls}

    def wait_until_idle(self, timeout: float = 180.0) -> None:
        """Blocks until all mapped queues are empty, dead letters aside, and no function runs. Raises TimeoutError."""
        mapped_queues = self._mapped_queues()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            # Workers are checked first because that costs no request, and last because a message may have become an
            # invocation meanwhile.
            if not (self._working() or any(any(self._messages(url)) for url in mapped_queues) or self._working()):
                return
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"the lake is still busy after {timeout:.0f} s: {self.queues()}")

    def _working(self) -> bool:
        return any(worker.busy for workers in self.functions.workers().values() for worker in workers)

    def _mapped_queues(self) -> list[str]:
        """The URLs of the queues that have an event source mapping."""
        sqs = self.endpoint.client("sqs")
        mappings = self.endpoint.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        names = {mapping["EventSourceArn"].rsplit(":", 1)[1] for mapping in mappings}
        return [sqs.get_queue_url(QueueName=name)["QueueUrl"] for name in sorted(names)]

    def _messages(self, url: str) -> tuple[int, int]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self.endpoint.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return int(counts[names[0]]), int(counts[names[1]])

    def _control(self, name: str) -> Any:
        """Serves `/_strandline/<name>` on the AWS endpoint, where other processes on this machine look up the lake."""
        documents: dict[str, Callable[[], Any]] = {
            "environment": lambda: self.environment("person"),
            "status": self.status,
            "api": self.session,
            "pid": os.getpid,
        }
        return documents[name]() if name in documents else None


@cache
def templates_of(app: AppBuilder) -> tuple[Template, ...]:
    """The synthesised templates, cached: synthesis takes most of a start, and an app does not change in a process."""
    return tuple(synthesise(app))
