"""Delivery of an event to a target of a rule or schedule: retries, then sends to the dead-letter queue.

Supports functions, queues, event buses and Scheduler's universal targets. Any other target is an error.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from infra.local.awslambda.invocation import InvokeAsync, error_code, function_name_of, is_throttled
from infra.local.endpoint import Endpoint
from infra.local.eventbridge import sdk_calls
from infra.local.eventbridge.agenda import Agenda

_log = logging.getLogger(__name__)

# AWS backs off exponentially, with jitter, by unpublished numbers. No jitter here: tests compute the time of a retry.
_FIRST_RETRY = timedelta(seconds=1)
_LONGEST_RETRY = timedelta(minutes=10)


class UndeliverableError(Exception):
    """The target's type cannot receive events. Retries cannot succeed."""

    code = "InvalidParameterException"


@dataclass(frozen=True)
class Delivery:
    """One event for one target. `payload` is called for each attempt (1, 2, ...)."""

    origin: str  # ARN of the rule or schedule
    target: dict[str, Any]  # EventBridge's or Scheduler's: the fields read here are the same
    payload: Callable[[int], str]
    created: datetime
    principal: str
    attributes: dict[str, str] = field(default_factory=dict)  # of the dead letter, besides the error
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def max_retries(self) -> int:
        return int(self._policy.get("MaximumRetryAttempts", 185))

    @property
    def max_age(self) -> timedelta:
        return timedelta(seconds=int(self._policy.get("MaximumEventAgeInSeconds", 86400)))

    @property
    def _policy(self) -> dict[str, Any]:
        return self.target.get("RetryPolicy") or {}

    @property
    def dead_letter_arn(self) -> str | None:
        arn = self.target.get("DeadLetterConfig", {}).get("Arn")
        return str(arn) if arn else None


class Targets:
    """Delivers on the agenda's thread, in the order of sending: every target accepts an event quickly.

    A function is invoked asynchronously, as on AWS: once Lambda has accepted the event, Lambda's retries and
    destinations apply. The retries and dead letters here are for deliveries that a target rejected.
    """

    def __init__(self, endpoint: Endpoint, invoke_async: InvokeAsync, agenda: Agenda) -> None:
        self._endpoint = endpoint
        self._invoke_async = invoke_async
        self._agenda = agenda

    def send(self, delivery: Delivery) -> None:
        """Schedules the delivery and returns at once. Failures are not raised to the caller."""
        self._agenda.after(timedelta(0), lambda: self._attempt(delivery, attempt=1))

    def _attempt(self, delivery: Delivery, attempt: int) -> None:
        payload = delivery.payload(attempt)
        try:
            self._deliver(delivery, payload)
        except Exception as error:  # any error leads to a retry or a dead letter
            self._retry_or_give_up(delivery, attempt, payload, error)

    def _deliver(self, delivery: Delivery, payload: str) -> None:
        target = delivery.target
        arn: str = target["Arn"]
        if arn.startswith(sdk_calls.PREFIX):
            _raise_for_failed_entries(sdk_calls.call(self._endpoint, arn, payload, delivery.principal))
        elif ":function:" in arn:
            self._invoke_async(function_name_of(arn), payload.encode())
        elif arn.startswith("arn:aws:sqs:"):
            self._send_message(arn, payload, delivery.principal, **target.get("SqsParameters", {}))
        elif ":event-bus/" in arn:
            self._put_event(arn, target.get("EventBridgeParameters"), payload, delivery.principal)
        else:
            raise UndeliverableError(f"the embedded cloud cannot deliver events to {arn}")

    def _send_message(self, queue_arn: str, body: str, principal: str, **parameters: Any) -> None:
        sqs = self._endpoint.client("sqs", principal)
        url = sqs.get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=body, **parameters)

    def _put_event(self, bus_arn: str, kind: dict[str, str] | None, payload: str, principal: str) -> None:
        """A schedule's target has source and detail type (`kind`); a rule forwards those of the event it matched."""
        detail = payload
        if kind is None:
            event = json.loads(payload)
            kind = {"Source": event["source"], "DetailType": event["detail-type"]}
            detail = json.dumps(event["detail"])
        entry = {"EventBusName": bus_arn, "Detail": detail, **kind}
        _raise_for_failed_entries(self._endpoint.client("events", principal).put_events(Entries=[entry]))

    def _retry_or_give_up(self, delivery: Delivery, attempt: int, payload: str, error: Exception) -> None:
        retry_at = self._agenda.clock.now() + min(_FIRST_RETRY * 2 ** (attempt - 1), _LONGEST_RETRY)
        exhausted = None
        if attempt > delivery.max_retries:
            exhausted = "MaximumRetryAttempts"
        elif retry_at - delivery.created > delivery.max_age:
            exhausted = "MaximumEventAgeInSeconds"
        if _is_retryable(error) and not exhausted:
            self._agenda.at(retry_at, lambda: self._attempt(delivery, attempt + 1))
        else:
            self._give_up(delivery, attempt, payload, error, exhausted if _is_retryable(error) else None)

    def _give_up(self, delivery: Delivery, attempt: int, payload: str, error: Exception, exhausted: str | None) -> None:
        code, arn = error_code(error), delivery.target["Arn"]
        _log.warning("%s gave up on %s after %d attempts: %s %s", delivery.origin, arn, attempt, code, error)
        if delivery.dead_letter_arn is None:
            return
        values = delivery.attributes | {
            "ERROR_CODE": code,
            "ERROR_MESSAGE": str(error) or code,
            "RETRY_ATTEMPTS": str(attempt - 1),
            "TARGET_ARN": arn,
        }
        if exhausted:
            values["EXHAUSTED_RETRY_CONDITION"] = exhausted
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in values.items()}
        self._send_message(delivery.dead_letter_arn, payload, delivery.principal, MessageAttributes=attributes)


def _is_retryable(error: Exception) -> bool:
    """Whether a retry may succeed. AWS does not retry invalid calls and missing targets."""
    if isinstance(error, (UndeliverableError, sdk_calls.InvalidCallError)):
        return False
    if is_throttled(error):
        return True
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)) >= 500
    return error_code(error) not in ("ResourceNotFoundException", "LookupError", "KeyError")


def _raise_for_failed_entries(response: dict[str, Any]) -> None:
    """Batch calls respond 200 even if an entry failed; for a single event that is a failure."""
    if response.get("FailedEntryCount"):
        raise RuntimeError(f"the target rejected the event: {response.get('Entries', response)}")
