"""Runs the deployed schedules: those of EventBridge Scheduler, and EventBridge rules with a ScheduleExpression.

The definitions are in moto. This module reads them, computes each schedule's next tick, and sends to its targets.

Laws: every tick fires once, in order of time, also when the clock jumps over several (rate and cron alike, since AWS
would have fired them). A schedule counts from when it was first read, or when its timing last changed. A schedule
that is disabled or deleted before its tick does not fire. A flexible time window fires at its start.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.local.endpoint import ACCOUNT, REGION, Endpoint
from infra.local.eventbridge import expressions
from infra.local.eventbridge.agenda import Agenda
from infra.local.eventbridge.inputs import shape_input
from infra.local.eventbridge.targets import Delivery, Targets
from infra.local.requests import RequestLog
from infra.local.writes import WriteWatch

_log = logging.getLogger(__name__)
_CHECK_EVERY = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True)
class Definition:
    """One enabled schedule as it is deployed now."""

    arn: str
    expression: str
    timezone: str
    targets: tuple[dict[str, Any], ...]
    start: datetime | None = None
    end: datetime | None = None
    is_rule: bool = False
    delete_after: bool = False

    @property
    def timing(self) -> tuple[object, ...]:
        """The fields that, when changed, restart the schedule."""
        return self.expression, self.timezone, self.start, self.end


@dataclass
class _Running:
    definition: Definition
    expression: expressions.Expression
    anchor: datetime
    tick: datetime | None


class Schedules:
    """Fires the deployed schedules.

    Calls `sync` on start, and again, before a tick and once a second, when the request log shows a change.
    """

    def __init__(self, endpoint: Endpoint, log: RequestLog, targets: Targets, agenda: Agenda) -> None:
        self._endpoint = endpoint
        self._targets = targets
        self._agenda = agenda
        self._watch = WriteWatch(log, "scheduler", "events")
        self._running: dict[str, _Running] = {}
        self._lock = threading.RLock()
        self._stopped = False

    def start(self) -> None:
        self.sync()
        self._agenda.after(_CHECK_EVERY, self._check)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._running.clear()

    def sync(self) -> None:
        """Reads the deployed schedules. Raises ValueError that names every expression AWS would reject.

        A test with a manual clock calls this between creating a schedule and advancing the clock, so that the schedule
        counts from the earlier time.
        """
        with self._lock:
            self._watch.changed()  # before reading, so that a change made meanwhile is noticed next time
            deployed = {definition.arn: definition for definition in (*self._schedules(), *self._rules())}
            for arn in self._running.keys() - deployed.keys():
                del self._running[arn]
            problems = [problem for definition in deployed.values() if (problem := self._update(definition))]
        if problems:
            raise ValueError("; ".join(problems))

    def _check(self) -> None:
        if self._stopped:
            return
        self._agenda.after(_CHECK_EVERY, self._check)  # first, so that checks continue when `sync` raises
        if self._watch.changed():
            self.sync()

    def _update(self, definition: Definition) -> str | None:
        """Starts or updates one schedule; returns the problem when its expression is invalid."""
        current = self._running.get(definition.arn)
        if current and current.definition.timing == definition.timing:
            current.definition = definition
            return None
        try:
            expression = expressions.parse(definition.expression, definition.timezone)
        except (ValueError, LookupError) as error:  # LookupError: an unknown time zone
            return f"{definition.arn}: {error}"
        running = _first(definition, expression, self._agenda.clock.now())
        self._running[definition.arn] = running
        self._plan_tick(running)
        return None

    def _plan_tick(self, running: _Running) -> None:
        tick, end = running.tick, running.definition.end
        if tick is not None and (end is None or tick <= end):
            self._agenda.at(tick, lambda: self._fire(running, tick))
        elif running.definition.delete_after:
            _, group, name = running.definition.arn.rsplit("/", 2)
            self._endpoint.client("scheduler", "scheduler").delete_schedule(GroupName=group, Name=name)

    def _fire(self, running: _Running, tick: datetime) -> None:
        with self._lock:
            if self._watch.changed():
                self.sync()
            if self._running.get(running.definition.arn) is not running:
                return  # disabled, deleted or restarted since the tick was planned
            for target in running.definition.targets:
                self._targets.send(_delivery(running.definition, target, tick))
            running.tick = running.expression.next(tick, running.anchor)
            self._plan_tick(running)

    def _schedules(self) -> list[Definition]:
        scheduler = self._endpoint.client("scheduler")
        definitions = []
        for page in scheduler.get_paginator("list_schedules").paginate():
            for summary in page["Schedules"]:
                if summary["State"] == "ENABLED":
                    schedule = scheduler.get_schedule(GroupName=summary["GroupName"], Name=summary["Name"])
                    definitions.append(_from_scheduler(schedule))
        return definitions

    def _rules(self) -> list[Definition]:
        """Rules with a ScheduleExpression, which AWS allows only on the default bus."""
        events = self._endpoint.client("events")
        definitions = []
        for page in events.get_paginator("list_rules").paginate():
            for rule in page["Rules"]:
                if rule.get("ScheduleExpression") and rule["State"] != "DISABLED":
                    pages = events.get_paginator("list_targets_by_rule").paginate(Rule=rule["Name"])
                    targets = tuple(target for page in pages for target in page["Targets"])
                    expression = rule["ScheduleExpression"]
                    definitions.append(Definition(rule["Arn"], expression, "UTC", targets, is_rule=True))
        return definitions


def _from_scheduler(schedule: dict[str, Any]) -> Definition:
    return Definition(
        arn=schedule["Arn"],
        expression=schedule["ScheduleExpression"],
        timezone=schedule.get("ScheduleExpressionTimezone") or "UTC",
        targets=(schedule["Target"],),
        start=_utc(schedule.get("StartDate")),
        end=_utc(schedule.get("EndDate")),
        delete_after=schedule.get("ActionAfterCompletion") == "DELETE",
    )


def _first(definition: Definition, expression: expressions.Expression, now: datetime) -> _Running:
    """AWS: a schedule's rate fires at its start date, or at once without one; a rule's rate after one period.

    A cron or at() that is due exactly now does not fire; only a future start date may itself be a tick.
    """
    anchor = definition.start or now
    begins = definition.start is not None and definition.start > now
    at_once = isinstance(expression, expressions.Rate) and not definition.is_rule and definition.start is None
    after = anchor - _INSTANT if begins or at_once else now
    return _Running(definition, expression, anchor, expression.next(after, anchor))


def _delivery(definition: Definition, target: dict[str, Any], tick: datetime) -> Delivery:
    execution_id = str(uuid.uuid4())
    time = tick.strftime("%Y-%m-%dT%H:%M:%SZ")
    if definition.is_rule:
        event = _scheduled_event(execution_id, "aws.events", time, definition.arn, {})
        text = shape_input(target, event, definition.arn, time)
        return Delivery(definition.arn, target, lambda attempt: text, tick, "events", {"RULE_ARN": definition.arn})

    # Without an Input, a templated target gets this notification, whose detail is a string.
    template = target.get("Input") or json.dumps(
        _scheduled_event(execution_id, "aws.scheduler", time, definition.arn, "{}")
    )

    def payload(attempt: int) -> str:
        context = {"schedule-arn": definition.arn, "scheduled-time": time, "execution-id": execution_id}
        text: str = template
        for name, value in {**context, "attempt-number": str(attempt)}.items():
            text = text.replace(f"<aws.scheduler.{name}>", value)
        return text

    attributes = {
        "SCHEDULE_ARN": definition.arn,
        "SCHEDULED_TIME": time,
        "EXECUTION_ID": execution_id,
        "IS_PAYLOAD_TRUNCATED": "false",
    }
    return Delivery(definition.arn, target, payload, tick, "scheduler", attributes)


def _scheduled_event(id: str, source: str, time: str, arn: str, detail: Any) -> dict[str, Any]:
    return {
        "version": "0",
        "id": id,
        "detail-type": "Scheduled Event",
        "source": source,
        "account": ACCOUNT,
        "time": time,
        "region": REGION,
        "resources": [arn],
        "detail": detail,
    }


def _utc(instant: datetime | None) -> datetime | None:
    return instant.astimezone(UTC) if instant else None
