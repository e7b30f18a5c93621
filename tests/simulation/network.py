"""Requests: each takes virtual time there and back, is a scheduling point twice, and may meet a fault.

A fault is drawn for each attempt by its number in its process, so that one that is left out when a failure is
minimised does not move the others. The client repeats what botocore's standard mode repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from tests.simulation.scheduler import Killed, Process, World

KINDS = (
    "lost",  # never arrives
    "unanswered",  # done, but the response is lost
    "late",  # done, after the client has given up
    "doubled",  # done twice; the client gets the second response
    "throttled",
    "slow",
    "killed before",
    "killed after",
    "frozen",  # the process stops for longer than its messages are invisible, before the request is sent
    "frozen after",  # ... after the request is done, before the response is read
    "clock back",
    "clock ahead",
    "outage",  # the service does not answer this process for a while
)
Faults = Mapping[tuple[str, int], str]
"""(process, number of its request) -> the fault."""

TIMEOUT_S = 5.0
RETRYABLE = ("SlowDown", "ThrottlingException", "Throttling", "InternalError")


@dataclass
class Plan:
    """Which faults a run meets: those given, or those that its seed draws."""

    world: World
    given: Faults | None = None
    rate: float = 0.0
    kinds: tuple[str, ...] = KINDS
    met: dict[tuple[str, int], str] = field(default_factory=dict)
    active: bool = True

    def draw(self, process: Process, number: int) -> str | None:
        if not self.active or process.name.startswith("oracle"):
            return None
        if self.given is not None:
            fault = self.given.get((process.name, number))
        else:
            random = self.world.random("fault", process.name, number)
            fault = random.choice(self.kinds) if random.random() < self.rate else None
        if fault is not None:
            self.met[process.name, number] = fault
        return fault


class Network:
    """Carries requests between processes and services."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world, self.plan = world, plan
        self._outages: dict[tuple[str, str], float] = {}
        self.log: Callable[[Process, str, Any], None] = lambda process, what, result: None

    def request(self, what: str, apply: Callable[[], Any], *, attempts: int = 3) -> Any:
        """Sends a request from the current process. `apply` is what it does at the service, at one moment."""
        process = self.world.task().process
        error: Exception | None = None
        for attempt in range(attempts):
            if attempt:
                self.world.sleep(0.05 * 2**attempt)
            try:
                return self._attempt(process, what, apply)
            except ReadTimeoutError as lost:
                error = lost
            except ClientError as refused:
                if refused.response["Error"]["Code"] not in RETRYABLE:
                    raise
                error = refused
        assert error is not None
        raise error

    def _attempt(self, process: Process, what: str, apply: Callable[[], Any]) -> Any:
        world = self.world
        process.check()
        process.requests += 1
        number = process.requests
        random = world.random("latency", process.name, number)
        there, back = random.expovariate(1 / 0.015), random.expovariate(1 / 0.015)
        fault = self.plan.draw(process, number)
        world.note(process, f"{number:4} {what}{f'  <- {fault}' if fault else ''}")
        service = what.split(" ")[0]
        if fault == "outage":
            self._outages[process.name, service] = world.now + random.choice((3.0, 12.0, 40.0))
        if self._outages.get((process.name, service), 0.0) > world.now:
            fault = "lost"
        self._before(process, fault, random)
        if fault == "throttled":
            world.sleep(there)
            raise client_error("SlowDown", 503, what)
        if fault in ("lost", "late"):
            if fault == "late":
                world.at(world.now + TIMEOUT_S + random.uniform(0, 20), lambda: _quietly(apply))
            world.sleep(TIMEOUT_S)
            raise ReadTimeoutError(endpoint_url=f"https://{service}", error="simulated")
        world.sleep(there * (100 if fault == "slow" else 1))
        if fault == "doubled":
            _quietly(apply)
            world.sleep(back)
        try:
            return self._done(apply)
        finally:
            self._after(process, fault, random)
            world.sleep(TIMEOUT_S if fault == "unanswered" else back)
            if fault == "unanswered":
                raise ReadTimeoutError(endpoint_url=f"https://{service}", error="simulated")

    def _done(self, apply: Callable[[], Any]) -> Any:
        return apply()

    def _before(self, process: Process, fault: str | None, random: Any) -> None:
        if fault == "killed before":
            process.kill()
            raise Killed(process.name)
        if fault == "frozen":
            self._freeze(process, random)
        if fault in ("clock back", "clock ahead"):
            seconds = random.choice((0.5, 5.0, 50.0, 5000.0))
            process.clock_offset += -seconds if fault == "clock back" else seconds

    def _after(self, process: Process, fault: str | None, random: Any) -> None:
        if fault == "killed after":
            process.kill()
            raise Killed(process.name)
        if fault == "frozen after":
            self._freeze(process, random)

    def _freeze(self, process: Process, random: Any) -> None:
        process.frozen_until = self.world.now + random.choice((2.0, 25.0, 70.0, 400.0))


def _quietly(apply: Callable[[], Any]) -> None:
    """A request whose response nobody reads."""
    try:
        apply()
    except ClientError:
        pass


def client_error(code: str, status: int, operation: str, message: str = "simulated") -> ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, operation)  # type: ignore[arg-type]
