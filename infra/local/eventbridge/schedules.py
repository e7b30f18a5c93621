"""Schedules that really fire: EventBridge Scheduler's, and EventBridge rules with a ScheduleExpression.

The definitions live in moto. Here they are read, their next tick is known, and the event goes to `targets`.

Laws: every tick fires, once, in the order of the instants, also when the clock jumps over many (rate and cron
alike: AWS would not have slept). A schedule counts from when it was first seen, or last changed in its
timing. One that was disabled or deleted before its tick does not fire. Flexible windows fire at their start.
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
_LOOK_EVERY = timedelta(seconds=1)
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
        """What, when changed, makes the schedule count anew."""
        return self.expression, self.timezone, self.start, self.end


@dataclass
class _Running:
    definition: Definition
    expression: expressions.Expression
    anchor: datetime
    tick: datetime | None


class Schedules:
    """Fires what is deployed. `sync` reads the deployed schedules; it is called on start, and again by itself
    before a tick fires and once a second when the request log shows that somebody changed one.
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
        self._agenda.after(_LOOK_EVERY, self._look)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            self._running.clear()

    def sync(self) -> None:
        """Reads what is deployed. Raises ValueError naming every expression that AWS would not have taken.

        A test on a manual clock calls this between creating a schedule and moving the clock, so that the
        schedule counts from before the move.
        """
        with self._lock:
            self._watch.changed()  # marks the log before reading: a change made meanwhile is seen next time
            deployed = {found.arn: found for found in (*self._schedules(), *self._rules())}
            for arn in self._running.keys() - deployed.keys():
                del self._running[arn]
            problems = [problem for found in deployed.values() if (problem := self._take(found))]
        if problems:
            raise ValueError("; ".join(problems))

    def _look(self) -> None:
        if self._stopped:
            return
        self._agenda.after(_LOOK_EVERY, self._look)  # first, so that a failing read is not the last one
        if self._watch.changed():
            self.sync()

    def _take(self, found: Definition) -> str | None:
        known = self._running.get(found.arn)
        if known and known.definition.timing == found.timing:
            known.definition = found
            return None
        try:
            expression = expressions.parse(found.expression, found.timezone)
        except (ValueError, LookupError) as error:  # LookupError: a time zone that does not exist
            return f"{found.arn}: {error}"
        running = _first(found, expression, self._agenda.clock.now())
        self._running[found.arn] = running
        self._book(running)
        return None

    def _book(self, running: _Running) -> None:
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
                return  # disabled, deleted or given another timing since it was booked
            for target in running.definition.targets:
                self._targets.send(_delivery(running.definition, target, tick))
            running.tick = running.expression.next(tick, running.anchor)
            self._book(running)

    def _schedules(self) -> list[Definition]:
        scheduler = self._endpoint.client("scheduler")
        found = []
        for page in scheduler.get_paginator("list_schedules").paginate():
            for brief in page["Schedules"]:
                if brief["State"] == "ENABLED":
                    whole = scheduler.get_schedule(GroupName=brief["GroupName"], Name=brief["Name"])
                    found.append(_from_scheduler(whole))
        return found

    def _rules(self) -> list[Definition]:
        """Rules with a schedule: AWS has them on the default bus only."""
        events = self._endpoint.client("events")
        found = []
        for page in events.get_paginator("list_rules").paginate():
            for rule in page["Rules"]:
                if rule.get("ScheduleExpression") and rule["State"] != "DISABLED":
                    pages = events.get_paginator("list_targets_by_rule").paginate(Rule=rule["Name"])
                    targets = tuple(target for page in pages for target in page["Targets"])
                    expression = rule["ScheduleExpression"]
                    found.append(Definition(rule["Arn"], expression, "UTC", targets, is_rule=True))
        return found


def _from_scheduler(whole: dict[str, Any]) -> Definition:
    return Definition(
        arn=whole["Arn"],
        expression=whole["ScheduleExpression"],
        timezone=whole.get("ScheduleExpressionTimezone") or "UTC",
        targets=(whole["Target"],),
        start=_utc(whole.get("StartDate")),
        end=_utc(whole.get("EndDate")),
        delete_after=whole.get("ActionAfterCompletion") == "DELETE",
    )


def _first(found: Definition, expression: expressions.Expression, now: datetime) -> _Running:
    """AWS: a schedule's rate fires at its start date, or at once without one; a rule's rate after one period.

    A cron or at() that is due this very instant is past; only a start date to come may itself be a tick.
    """
    anchor = found.start or now
    begins = found.start is not None and found.start > now
    at_once = isinstance(expression, expressions.Rate) and not found.is_rule and found.start is None
    after = anchor - _INSTANT if begins or at_once else now
    return _Running(found, expression, anchor, expression.next(after, anchor))


def _delivery(found: Definition, target: dict[str, Any], tick: datetime) -> Delivery:
    execution = str(uuid.uuid4())
    time = tick.strftime("%Y-%m-%dT%H:%M:%SZ")
    if found.is_rule:
        event = _scheduled_event(execution, "aws.events", time, found.arn, {})
        text = shape_input(target, event, found.arn, time)
        return Delivery(found.arn, target, lambda attempt: text, tick, "events", {"RULE_ARN": found.arn})

    # Without an input a templated target gets this notification, whose detail is a string.
    given = target.get("Input") or json.dumps(_scheduled_event(execution, "aws.scheduler", time, found.arn, "{}"))

    def payload(attempt: int) -> str:
        context = {"schedule-arn": found.arn, "scheduled-time": time, "execution-id": execution}
        text: str = given
        for name, value in {**context, "attempt-number": str(attempt)}.items():
            text = text.replace(f"<aws.scheduler.{name}>", value)
        return text

    told = {
        "SCHEDULE_ARN": found.arn,
        "SCHEDULED_TIME": time,
        "EXECUTION_ID": execution,
        "IS_PAYLOAD_TRUNCATED": "false",
    }
    return Delivery(found.arn, target, payload, tick, "scheduler", told)


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
