"""Asynchronous invocation: Lambda queues events, retries them twice, then sends the result to a destination."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from moto.awslambda.models import LambdaFunction

from infra.local.awslambda.functions import find_deployed
from infra.local.awslambda.invocation import FunctionNotFound, Functions, Invocation, Stopped, Throttled

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AsyncEvent:
    function_name: str
    payload: bytes
    request_id: str
    trace_id: str | None = None
    attempts: int = 0  # finished attempts


class AsyncEvents:
    """A queue for each function, drained by as many threads as the function may have workers."""

    def __init__(self, service: Functions, retry_delays: tuple[float, float]) -> None:
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
        """Discards events that have not run yet."""
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
                _log.exception("lost an asynchronous event of %s", name)

    def _run(self, event: AsyncEvent) -> None:
        try:
            deployed = find_deployed(self._service.endpoint, event.function_name)
            invocation = self._service.invoke(
                event.function_name, event.payload, request_id=event.request_id, trace_id=event.trace_id
            )
        except Throttled:
            # Lambda keeps a throttled event for six hours, and does not count the attempt.
            self._submit_after(self._retry_delays[0], event)
            return
        except (Stopped, FunctionNotFound):
            return  # the cloud stopped, or the function was deleted while events waited
        config = _invoke_config(deployed)
        event = replace(event, attempts=event.attempts + 1)
        if invocation.function_error and event.attempts <= config.get("MaximumRetryAttempts", 2):
            self._submit_after(self._retry_delays[min(event.attempts, 2) - 1], event)
        else:
            self._send_result(event, invocation, deployed, config)

    def _submit_after(self, delay: float, event: AsyncEvent) -> None:
        def submit() -> None:
            with self._lock:
                self._timers.discard(timer)
            self.submit(event)

        timer = threading.Timer(delay, submit)
        timer.daemon = True
        with self._lock:
            if self._stopping:
                return
            self._timers.add(timer)
        timer.start()

    def _send_result(
        self, event: AsyncEvent, invocation: Invocation, deployed: LambdaFunction, config: dict[str, Any]
    ) -> None:
        outcome = "OnFailure" if invocation.function_error else "OnSuccess"
        destination = config.get("DestinationConfig", {}).get(outcome, {}).get("Destination")
        if destination:
            self._send(destination, json.dumps(_record(event, invocation, deployed)), {})
        dead_letter_arn = getattr(deployed, "dead_letter_arn", None)
        if invocation.function_error and dead_letter_arn:
            message = json.loads(invocation.payload).get("errorMessage", "")
            attributes = {"RequestID": event.request_id, "ErrorCode": "200", "ErrorMessage": message[:1024]}
            self._send(dead_letter_arn, event.payload.decode(), attributes)

    def _send(self, arn: str, body: str, attributes: dict[str, str]) -> None:
        _, _, service, _, account, name = arn.split(":", 5)
        endpoint = self._service.endpoint
        if service == "sqs":
            message_attributes = {
                key: {"DataType": "Number" if key == "ErrorCode" else "String", "StringValue": value or "-"}
                for key, value in attributes.items()
            }
            endpoint.client("sqs", "lambda").send_message(
                QueueUrl=f"{endpoint.url}/{account}/{name}", MessageBody=body, MessageAttributes=message_attributes
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
            raise NotImplementedError(f"the embedded cloud cannot send asynchronous events to {arn}")


def _invoke_config(deployed: LambdaFunction) -> dict[str, Any]:
    # moto appends each new configuration and returns the oldest; AWS replaces it
    return deployed.event_invoke_config[-1].config if deployed.event_invoke_config else {}


def _record(event: AsyncEvent, invocation: Invocation, deployed: LambdaFunction) -> dict[str, Any]:
    response: dict[str, Any] = {"statusCode": 200, "executedVersion": invocation.version}
    if invocation.function_error:
        response["functionError"] = invocation.function_error
    return {
        "version": "1.0",
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "requestContext": {
            "requestId": event.request_id,
            "functionArn": f"{deployed.function_arn}:{invocation.version}",
            "condition": "RetriesExhausted" if invocation.function_error else "Success",
            "approximateInvokeCount": event.attempts,
        },
        "requestPayload": json.loads(event.payload),
        "responseContext": response,
        "responsePayload": json.loads(invocation.payload) if invocation.payload else None,
    }
