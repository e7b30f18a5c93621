"""EventBridge rules with a pattern: who gets an event, in which form, and without holding up whoever put it.

moto matches patterns well and is left to it. It also delivers, but in the caller's thread, to DISABLED rules
and to rules that only have a schedule, with no account in the event and one constant id on all of S3's; and a
Lambda target makes PutEvents itself fail. So what follows the match is done here.
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

_moto_delivers = Rule.send_to_targets


class Bus:
    """While started, moto hands every event here. moto's state is one per process, and so is the bus."""

    def __init__(self, targets: Targets, clock: Clock) -> None:
        self._targets = targets
        self._clock = clock

    def start(self) -> None:
        @functools.wraps(_moto_delivers)
        def send_to_targets(rule: Rule, original_event: dict[str, Any], transform_input: bool = True) -> None:
            self._route(rule, original_event)

        Rule.send_to_targets = send_to_targets

    def stop(self) -> None:
        Rule.send_to_targets = _moto_delivers

    def _route(self, rule: Rule, raw: dict[str, Any]) -> None:
        if raw["id"] == _BASE_EVENT_MESSAGE["id"]:
            raw["id"] = str(uuid.uuid4())  # in place: every rule must see the same id for one event
        event, ingested = _as_sent(raw)
        if not _concerns(rule, event):
            return
        for target in list(rule.targets):
            if _left_to_moto(target["Arn"]):
                alone = copy.copy(rule)
                alone.targets = [target]
                _moto_delivers(alone, {"ingestion-time": raw["time"], **raw})
            else:
                self._send(rule.arn, target, event, ingested)

    def _send(self, rule_arn: str, target: dict[str, Any], event: dict[str, Any], ingested: str) -> None:
        text = shape_input(target, event, rule_arn, ingested)
        self._targets.send(
            Delivery(
                origin=rule_arn,
                target=target,
                payload=lambda attempt: text,
                born=self._clock.now(),
                principal="events",
                attributes={"RULE_ARN": rule_arn},
            )
        )


def _concerns(rule: Rule, event: dict[str, Any]) -> bool:
    """AWS: only an enabled rule with a pattern gets events; AWS's own services speak on the default
    bus only."""
    if rule.state == "DISABLED" or rule.event_pattern.dump() is None:
        return False
    if str(event["source"]).startswith("aws.") and rule.event_bus_name != "default":
        return False
    return bool(rule.event_pattern.matches_event(event))


def _left_to_moto(arn: str) -> bool:
    """Log groups, archives and API destinations: moto does them, and the lake has none."""
    return arn.startswith("arn:aws:logs:") or ":api-destination/" in arn or arn.endswith(":::")


def _as_sent(raw: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The event as a target sees it, and when the bus took it in: moto keeps times as numbers, in
    one field more."""
    event = {name: value for name, value in raw.items() if name != "ingestion-time"}
    event["time"] = _iso(raw["time"])
    return event, _iso(raw.get("ingestion-time", raw["time"]))


def _iso(instant: Any) -> str:
    if isinstance(instant, (int, float)):
        return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(instant)
