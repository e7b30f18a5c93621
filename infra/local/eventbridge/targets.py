"""Brings an event to a target of a rule or schedule: tries, tries again, gives up into the dead-letter queue.

Knows functions, queues, event buses and Scheduler's universal targets. Any other target is an error.
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

from infra.local.awslambda.invoking import InvokeAsync, error_code, function_name_of, is_throttled
from infra.local.endpoint import Endpoint
from infra.local.eventbridge import sdk_calls
from infra.local.eventbridge.agenda import Agenda

_log = logging.getLogger(__name__)

# AWS backs off exponentially, with jitter, by unpublished numbers. No jitter here: a test must know
# the instant.
_FIRST_RETRY = timedelta(seconds=1)
_LONGEST_RETRY = timedelta(minutes=10)


class UndeliverableError(Exception):
    """No retry can help: the target is of a kind, or in a state, that takes no events."""

    code = "InvalidParameterException"


@dataclass(frozen=True)
class Delivery:
    """One event on its way to one target. `payload` is asked again for each attempt (1, 2, ...)."""

    origin: str  # ARN of the rule or schedule
    target: dict[str, Any]  # in the form of EventBridge, or of Scheduler: they agree in what is read here
    payload: Callable[[int], str]
    born: datetime
    principal: str
    attributes: dict[str, str] = field(default_factory=dict)  # what a dead letter says besides the error
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def retries(self) -> int:
        return int(self._policy.get("MaximumRetryAttempts", 185))

    @property
    def oldest(self) -> timedelta:
        return timedelta(seconds=int(self._policy.get("MaximumEventAgeInSeconds", 86400)))

    @property
    def _policy(self) -> dict[str, Any]:
        return self.target.get("RetryPolicy") or {}

    @property
    def dead_letters(self) -> str | None:
        arn = self.target.get("DeadLetterConfig", {}).get("Arn")
        return str(arn) if arn else None


class Targets:
    """Delivers on the agenda's thread, strictly in the order of sending: no target needs long to take one.

    A function is invoked asynchronously, as on AWS: once Lambda has taken the event, retries and destinations
    are Lambda's affair. Retries and dead letters here are for targets that refused.
    """

    def __init__(self, endpoint: Endpoint, invoke_async: InvokeAsync, agenda: Agenda) -> None:
        self._endpoint = endpoint
        self._invoke_async = invoke_async
        self._agenda = agenda

    def send(self, delivery: Delivery) -> None:
        """Books the delivery and returns at once; nothing is raised to the caller."""
        self._agenda.after(timedelta(0), lambda: self._attempt(delivery, attempt=1))

    def _attempt(self, delivery: Delivery, attempt: int) -> None:
        payload = delivery.payload(attempt)
        try:
            self._deliver(delivery, payload)
        except Exception as error:  # whatever it is, it decides between a retry and a dead letter
            self._failed(delivery, attempt, payload, error)

    def _deliver(self, delivery: Delivery, payload: str) -> None:
        target = delivery.target
        arn: str = target["Arn"]
        if arn.startswith(sdk_calls.PREFIX):
            _refuse_failed_entries(sdk_calls.call(self._endpoint, arn, payload, delivery.principal))
        elif ":function:" in arn:
            self._invoke_async(function_name_of(arn), payload.encode())
        elif arn.startswith("arn:aws:sqs:"):
            self._send_message(arn, payload, delivery.principal, **target.get("SqsParameters", {}))
        elif ":event-bus/" in arn:
            self._put_event(arn, target.get("EventBridgeParameters"), payload, delivery.principal)
        else:
            raise UndeliverableError(f"the embedded cloud has no target like {arn}")

    def _send_message(self, queue_arn: str, body: str, principal: str, **more: Any) -> None:
        sqs = self._endpoint.client("sqs", principal)
        url = sqs.get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=body, **more)

    def _put_event(self, bus_arn: str, kind: dict[str, str] | None, payload: str, principal: str) -> None:
        """A schedule says what kind of event its input is (`kind`); a rule forwards the event it got."""
        detail = payload
        if kind is None:
            event = json.loads(payload)
            kind = {"Source": event["source"], "DetailType": event["detail-type"]}
            detail = json.dumps(event["detail"])
        entry = {"EventBusName": bus_arn, "Detail": detail, **kind}
        _refuse_failed_entries(self._endpoint.client("events", principal).put_events(Entries=[entry]))

    def _failed(self, delivery: Delivery, attempt: int, payload: str, error: Exception) -> None:
        retry = self._agenda.clock.now() + min(_FIRST_RETRY * 2 ** (attempt - 1), _LONGEST_RETRY)
        exhausted = None
        if attempt > delivery.retries:
            exhausted = "MaximumRetryAttempts"
        elif retry - delivery.born > delivery.oldest:
            exhausted = "MaximumEventAgeInSeconds"
        if _may_pass(error) and not exhausted:
            self._agenda.at(retry, lambda: self._attempt(delivery, attempt + 1))
        else:
            self._bury(delivery, attempt, payload, error, exhausted if _may_pass(error) else None)

    def _bury(self, delivery: Delivery, attempt: int, payload: str, error: Exception, exhausted: str | None) -> None:
        code, arn = error_code(error), delivery.target["Arn"]
        _log.warning("%s gave up on %s after %d tries: %s %s", delivery.origin, arn, attempt, code, error)
        if delivery.dead_letters is None:
            return
        told = delivery.attributes | {
            "ERROR_CODE": code,
            "ERROR_MESSAGE": str(error) or code,
            "RETRY_ATTEMPTS": str(attempt - 1),
            "TARGET_ARN": arn,
        }
        if exhausted:
            told["EXHAUSTED_RETRY_CONDITION"] = exhausted
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in told.items()}
        self._send_message(delivery.dead_letters, payload, delivery.principal, MessageAttributes=attributes)


def _may_pass(error: Exception) -> bool:
    """Whether another try may succeed. AWS gives up at once on what is wrong with the call, and on
    what is gone."""
    if isinstance(error, (UndeliverableError, sdk_calls.InvalidCallError)):
        return False
    if is_throttled(error):
        return True
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)) >= 500
    return error_code(error) not in ("ResourceNotFoundException", "LookupError", "KeyError")


def _refuse_failed_entries(answer: dict[str, Any]) -> None:
    """Batch calls answer 200 and name the entries that failed; to one event that is a failure."""
    if answer.get("FailedEntryCount"):
        raise RuntimeError(f"the target refused the event: {answer.get('Entries', answer)}")
