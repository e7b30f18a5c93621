"""EventBridge rules with an event pattern: deliver matching events to the rules' targets, without blocking PutEvents.

moto's pattern matching is used as it is. Its delivery is replaced: it runs in the caller's thread, also for DISABLED
rules and for rules that only have a schedule, with no account in the event and one constant id for all S3 events; and
a Lambda target makes PutEvents itself fail.
"""

from __future__ import annotations

import copy
import functools
import uuid
from datetime import UTC, datetime
from typing import Any

from moto.events.models import Rule
from moto.events.utils import _BASE_EVENT_MESSAGE

from infra.local.clock import Clock
from infra.local.eventbridge.inputs import shape_input
from infra.local.eventbridge.targets import Delivery, Targets

_moto_send_to_targets = Rule.send_to_targets


class Bus:
    """While started, receives every event from moto. One per process, like moto's state."""

    def __init__(self, targets: Targets, clock: Clock) -> None:
        self._targets = targets
        self._clock = clock

    def start(self) -> None:
        @functools.wraps(_moto_send_to_targets)
        def send_to_targets(rule: Rule, original_event: dict[str, Any], transform_input: bool = True) -> None:
            self._route(rule, original_event)

        Rule.send_to_targets = send_to_targets

    def stop(self) -> None:
        Rule.send_to_targets = _moto_send_to_targets

    def _route(self, rule: Rule, raw: dict[str, Any]) -> None:
        if raw["id"] == _BASE_EVENT_MESSAGE["id"]:
            raw["id"] = str(uuid.uuid4())  # in place: every rule must get the same id for one event
        event, ingestion_time = _as_sent(raw)
        if not _applies(rule, event):
            return
        for target in list(rule.targets):
            if _is_left_to_moto(target["Arn"]):
                single_target_rule = copy.copy(rule)
                single_target_rule.targets = [target]
                _moto_send_to_targets(single_target_rule, {"ingestion-time": raw["time"], **raw})
            else:
                self._send(rule.arn, target, event, ingestion_time)

    def _send(self, rule_arn: str, target: dict[str, Any], event: dict[str, Any], ingestion_time: str) -> None:
        text = shape_input(target, event, rule_arn, ingestion_time)
        self._targets.send(
            Delivery(
                origin=rule_arn,
                target=target,
                payload=lambda attempt: text,
                created=self._clock.now(),
                principal="events",
                attributes={"RULE_ARN": rule_arn},
            )
        )


def _applies(rule: Rule, event: dict[str, Any]) -> bool:
    """AWS: only an enabled rule with a pattern gets events, and AWS services send only to the default bus."""
    if rule.state == "DISABLED" or rule.event_pattern.dump() is None:
        return False
    if str(event["source"]).startswith("aws.") and rule.event_bus_name != "default":
        return False
    return bool(rule.event_pattern.matches_event(event))


def _is_left_to_moto(arn: str) -> bool:
    """Whether moto delivers to the target: a log group, an archive or an API destination. The lake has none."""
    return arn.startswith("arn:aws:logs:") or ":api-destination/" in arn or arn.endswith(":::")


def _as_sent(raw: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The event as targets get it, and its ingestion time. moto's event has times as numbers, and the ingestion time
    as a field."""
    event = {name: value for name, value in raw.items() if name != "ingestion-time"}
    event["time"] = _iso(raw["time"])
    return event, _iso(raw.get("ingestion-time", raw["time"]))


def _iso(instant: Any) -> str:
    if isinstance(instant, (int, float)):
        return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(instant)
