"""Lambda's asynchronous events: taken at once, run later, repeated twice, then sent to their destination."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.awslambda.models import LambdaFunction

from infra.local.awslambda.deployed import find_deployed
from infra.local.awslambda.invocation import FunctionNotFound, Invocation, Stopped, Throttled

if TYPE_CHECKING:
    from infra.local.awslambda.service import LambdaService

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AsyncEvent:
    function_name: str
    payload: bytes
    request_id: str
    trace_id: str | None = None
    attempts: int = 0  # finished ones


class AsyncEvents:
    """One waiting line per function, drained by as many threads as it may have workers."""

    def __init__(self, service: LambdaService, retry_delays: tuple[float, float]) -> None:
        self._service = service
        self._retry_delays = retry_delays
        self._waiting: dict[str, deque[AsyncEvent]] = defaultdict(deque)
        self._draining: Counter[str] = Counter()
        self._timers: set[threading.Timer] = set()
        self._lock = threading.Lock()
        self._stopping = False

    def submit(self, event: AsyncEvent) -> None:
        name = event.function_name
        with self._lock:
            if self._stopping:
                return
            self._waiting[name].append(event)
            if self._draining[name] >= self._service.max_workers:
                return
            self._draining[name] += 1
        threading.Thread(target=self._drain, args=(name,), name=f"async {name}", daemon=True).start()

    def stop(self) -> None:
        """What has not run yet is lost, as this cloud's memory is."""
        with self._lock:
            self._stopping = True
            self._waiting.clear()
            for timer in self._timers:
                timer.cancel()

    def _drain(self, name: str) -> None:
        while True:
            with self._lock:
                if not self._waiting[name]:
                    self._draining[name] -= 1
                    return
                event = self._waiting[name].popleft()
            try:
                self._run(event)
            except Exception:
                _log.exception("an asynchronous event of %s is lost", name)

    def _run(self, event: AsyncEvent) -> None:
        try:
            deployed = find_deployed(self._service.endpoint, event.function_name)
            done = self._service.invoke(
                event.function_name, event.payload, request_id=event.request_id, trace_id=event.trace_id
            )
        except Throttled:
            # Lambda keeps a throttled event for six hours, and the attempt does not count.
            self._later(self._retry_delays[0], event)
            return
        except (Stopped, FunctionNotFound):
            return  # the cloud ended, or the function was deleted with events still waiting
        config = _invoke_config(deployed)
        event = replace(event, attempts=event.attempts + 1)
        if done.function_error and event.attempts <= config.get("MaximumRetryAttempts", 2):
            self._later(self._retry_delays[min(event.attempts, 2) - 1], event)
        else:
            self._settle(event, done, deployed, config)

    def _later(self, delay: float, event: AsyncEvent) -> None:
        def again() -> None:
            with self._lock:
                self._timers.discard(timer)
            self.submit(event)

        timer = threading.Timer(delay, again)
        timer.daemon = True
        with self._lock:
            if self._stopping:
                return
            self._timers.add(timer)
        timer.start()

    def _settle(self, event: AsyncEvent, done: Invocation, deployed: LambdaFunction, config: dict[str, Any]) -> None:
        outcome = "OnFailure" if done.function_error else "OnSuccess"
        target = config.get("DestinationConfig", {}).get(outcome, {}).get("Destination")
        if target:
            self._send(target, json.dumps(_record(event, done, deployed)), {})
        dead_letters = getattr(deployed, "dead_letter_arn", None)
        if done.function_error and dead_letters:
            message = json.loads(done.payload).get("errorMessage", "")
            about = {"RequestID": event.request_id, "ErrorCode": "200", "ErrorMessage": message[:1024]}
            self._send(dead_letters, event.payload.decode(), about)

    def _send(self, arn: str, body: str, about: dict[str, str]) -> None:
        _, _, service, _, account, name = arn.split(":", 5)
        endpoint = self._service.endpoint
        if service == "sqs":
            attributes = {
                key: {"DataType": "Number" if key == "ErrorCode" else "String", "StringValue": value or "-"}
                for key, value in about.items()
            }
            endpoint.client("sqs", "lambda").send_message(
                QueueUrl=f"{endpoint.url}/{account}/{name}", MessageBody=body, MessageAttributes=attributes
            )
        elif service == "lambda":
            self._service.invoke_async(arn, body.encode())
        elif service == "events":
            kind = "Failure" if "functionError" in json.loads(body)["responseContext"] else "Success"
            entry = {
                "Source": "lambda",
                "DetailType": f"Lambda Function Invocation Result - {kind}",
                "Detail": body,
                "EventBusName": arn,
            }
            endpoint.client("events", "lambda").put_events(Entries=[entry])
        else:
            raise NotImplementedError(f"no asynchronous event can be sent to {arn} here")


def _invoke_config(deployed: LambdaFunction) -> dict[str, Any]:
    # moto appends each new configuration and answers with the oldest; AWS replaces
    return deployed.event_invoke_config[-1].config if deployed.event_invoke_config else {}


def _record(event: AsyncEvent, done: Invocation, deployed: LambdaFunction) -> dict[str, Any]:
    response: dict[str, Any] = {"statusCode": 200, "executedVersion": done.version}
    if done.function_error:
        response["functionError"] = done.function_error
    return {
        "version": "1.0",
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "requestContext": {
            "requestId": event.request_id,
            "functionArn": f"{deployed.function_arn}:{done.version}",
            "condition": "RetriesExhausted" if done.function_error else "Success",
            "approximateInvokeCount": event.attempts,
        },
        "requestPayload": json.loads(event.payload),
        "responseContext": response,
        "responsePayload": json.loads(done.payload) if done.payload else None,
    }
