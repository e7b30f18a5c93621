"""Schedules and bus over one API server, on a clock that stands still, with Lambda played by a list."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.local.clock import ManualClock
from infra.local.endpoint import ACCOUNT, REGION
from infra.local.eventbridge.agenda import Agenda
from infra.local.eventbridge.bus import Bus
from infra.local.eventbridge.schedules import Schedules
from infra.local.eventbridge.targets import Targets
from infra.local.server import ApiServer

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:sweep"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/scheduler"


class RefusalError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(f"refused with {code}")
        self.code = code


class Cloud:
    """Schedules and bus over one API server, on a clock that stands still, with Lambda played by a list."""

    def __init__(self, server: ApiServer) -> None:
        self.client = server.endpoint.client
        self.clock = ManualClock(START)
        self.agenda = Agenda(self.clock)
        self.events: list[tuple[datetime, str, Any]] = []
        self.refusals: list[str] = []
        targets = Targets(server.endpoint, self.invoke_async, self.agenda)
        self.schedules = Schedules(server.endpoint, server.log, targets, self.agenda)
        self.bus = Bus(targets, self.clock)

    def invoke_async(self, function_name: str, payload: bytes, /) -> str:
        if self.refusals:
            raise RefusalError(self.refusals.pop(0))
        self.events.append((self.clock.now(), function_name, json.loads(payload)))
        return "request-id"

    def schedule(self, expression: str, target: dict[str, Any] | None = None, **more: Any) -> str:
        name = more.pop("Name", f"s-{uuid.uuid4().hex[:8]}")
        self.client("scheduler").create_schedule(
            Name=name,
            ScheduleExpression=expression,
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": FUNCTION, "RoleArn": ROLE, **(target or {})},
            **more,
        )
        self.sync()
        return str(name)

    def rule(self, expression: str, *targets: dict[str, Any], **more: Any) -> str:
        name = f"r-{uuid.uuid4().hex[:8]}"
        events = self.client("events")
        events.put_rule(Name=name, ScheduleExpression=expression, **more)
        events.put_targets(Rule=name, Targets=[{"Id": str(at), **one} for at, one in enumerate(targets)])
        self.sync()
        return name

    def queue(self, **attributes: str) -> tuple[str, str]:
        name = f"q-{uuid.uuid4().hex[:8]}" + (".fifo" if attributes else "")
        url = self.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return url, f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    def messages(self, url: str) -> list[dict[str, Any]]:
        answer = self.client("sqs").receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        return list(answer.get("Messages", []))

    def sync(self) -> None:
        self.schedules.sync()
        self.agenda.wait_until_idle()

    def move(self, step: timedelta) -> None:
        self.clock.advance(step)
        self.agenda.wait_until_idle()

    @property
    def times(self) -> list[str]:
        return [event["time"] for _, _, event in self.events]


def update(cloud: Cloud, name: str, **changes: Any) -> None:
    scheduler = cloud.client("scheduler")
    now = scheduler.get_schedule(Name=name)
    kept = {key: now[key] for key in ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target", "State")}
    scheduler.update_schedule(**{**kept, **changes})


def attributes(message: dict[str, Any]) -> dict[str, str]:
    return {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
