"""The embedded cloud: every part started in order, the stacks deployed into it, and everything gone again at `stop`.

Which function listens to what is in the stacks; here is only how the parts that run them are put together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from types import TracebackType
from typing import Any, Self

from catalog.settings import PREFIX, variable_of
from infra.app import build_app
from infra.local.assembly import AppBuilder, Template, deploy, resources, synthesise
from infra.local.awslambda.service import LambdaService
from infra.local.clock import Clock, SystemClock
from infra.local.emr.runner import JobRunner
from infra.local.endpoint import Endpoint
from infra.local.eventbridge.agenda import Agenda
from infra.local.eventbridge.bus import Bus
from infra.local.eventbridge.schedules import Schedules
from infra.local.eventbridge.targets import Targets
from infra.local.gateway.server import Gateway
from infra.local.server import ApiServer
from infra.local.sqs.mappings import EventSourceMappings

_POLL_SECONDS = 0.05


class EmbeddedCloud:
    """A lake on loopback. One per process; as many processes as one likes.

    `port` is the AWS endpoint's (0: any). `clock` drives schedules and tokens, so a test can move it.
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
        # A request never waits for a function that is at its limit: AWS answers 503.
        invoke = partial(self.functions.invoke, wait=False)
        self.gateway = Gateway(self.endpoint, self.server.log, invoke, self.clock)
        self.jobs = JobRunner(self.endpoint)
        self.started_in = 0.0
        # What `stop` undoes, newest first; a start that fails half-way undoes as far as it came.
        self._undo: list[Callable[[], None]] = []

    def start(self) -> Self:
        """Up and deployed when it returns: about five seconds, most of them the CDK's."""
        began = time.monotonic()
        try:
            for part in (self.server, self.functions, self._agenda, self.bus, self.schedules, self.gateway):
                part.start()
                self._undo.append(part.stop)
            self._undo.append(self.jobs.stop)
            deploy(self.endpoint, templates_of(self._app), {"Issuer": self.gateway.issuer.url})
            # Last, so that nobody listens to half a lake.
            self.mappings.start()
            self._undo.append(self.mappings.stop)
            self.schedules.sync()
        except BaseException:
            self.stop()
            raise
        self.started_in = time.monotonic() - began
        return self

    def stop(self) -> None:
        """Nothing is left behind: no process, no thread that works, no file."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def environment(self, principal: str) -> dict[str, str]:
        """What makes a process use this lake as `principal`: the SDK's variables and the lake's own.

        The lake's own are read back from the deployed functions, so nothing is said twice.
        """
        found: dict[str, str] = {}
        for function in self.endpoint.client("lambda").list_functions()["Functions"]:
            found |= function.get("Environment", {}).get("Variables", {})
        lake = {key: value for key, value in found.items() if key.startswith(PREFIX)}
        lake.pop(variable_of("function"), None)
        return {**self.endpoint.environment(principal), **lake}

    def addresses(self) -> dict[str, str]:
        """`api` is the lake's own, where one is deployed."""
        found = {"aws": self.endpoint.url, "http": self.gateway.url, "issuer": self.gateway.issuer.url}
        for api_id in resources(self.endpoint, "AWS::ApiGatewayV2::Api").values():
            found["api"] = self.gateway.url_of(api_id)
        return found

    def token(self, *roles: str, subject: str = "person", **claims: Any) -> str:
        """A token the deployed API takes, good for a day. The issuer asks nobody for a password."""
        audience = self.gateway.audience()
        return self.gateway.issuer.token(subject, audience, roles=roles, expires_in=timedelta(days=1), **claims)

    def session(self) -> dict[str, str]:
        """Where the API is, and a token that may do everything there: for the command and the page, on this machine."""
        return {"endpoint": self.addresses()["api"], "token": self.token("admin")}

    def serve_page(self) -> None:
        """From now on the gateway's root is the lake's page."""
        self.gateway.page_session = self.session

    def status(self) -> dict[str, Any]:
        """What is deployed and how busy it is, for people and for `wait_until_idle`."""
        stacks = self.endpoint.client("cloudformation").describe_stacks()["Stacks"]
        workers = self.functions.workers()
        functions = self.endpoint.client("lambda").list_functions()["Functions"]
        return {
            "addresses": self.addresses(),
            "stacks": {stack["StackName"]: stack["StackStatus"] for stack in stacks},
            "functions": {
                f["FunctionName"]: f"{sum(w.busy for w in workers.get(f['FunctionName'], ()))} busy" for f in functions
            },
            "queues": {name: f"{waiting} waiting, {held} held" for name, (waiting, held) in self.queues().items()},
            "started_in_s": {"seconds": round(self.started_in, 1)},
        }

    def queues(self) -> dict[str, tuple[int, int]]:
        """`{queue: (messages waiting, messages a consumer holds)}`."""
        urls = resources(self.endpoint, "AWS::SQS::Queue").values()
        return {url.rsplit("/", 1)[1]: self._messages(url) for url in urls}

    def wait_until_idle(self, timeout: float = 180.0) -> None:
        """Until every message was worked off (dead letters aside) and no function runs."""
        listened = self._listened()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            # Functions are asked first, since that costs nothing, and last, since a message may have become a call.
            if not self._working() and not any(any(self._messages(url)) for url in listened) and not self._working():
                return
            time.sleep(_POLL_SECONDS)
        raise TimeoutError(f"the lake is still busy after {timeout:.0f} s: {self.queues()}")

    def _working(self) -> bool:
        return any(worker.busy for workers in self.functions.workers().values() for worker in workers)

    def _listened(self) -> list[str]:
        """The queues that functions listen to."""
        sqs = self.endpoint.client("sqs")
        mapped = self.endpoint.client("lambda").list_event_source_mappings()["EventSourceMappings"]
        names = {mapping["EventSourceArn"].rsplit(":", 1)[1] for mapping in mapped}
        return [sqs.get_queue_url(QueueName=name)["QueueUrl"] for name in sorted(names)]

    def _messages(self, url: str) -> tuple[int, int]:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self.endpoint.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return int(counts[names[0]]), int(counts[names[1]])

    def _control(self, what: str) -> Any:
        """`/_strandline/<what>` on the AWS endpoint: how another process on this machine finds the lake."""
        answers: dict[str, Callable[[], Any]] = {
            "environment": lambda: self.environment("person"),
            "status": self.status,
            "api": self.session,
            "pid": os.getpid,
        }
        return answers[what]() if what in answers else None


@cache
def templates_of(app: AppBuilder) -> tuple[Template, ...]:
    """Synthesis is the slow part of a start and the stacks do not change within a process."""
    return tuple(synthesise(app))
