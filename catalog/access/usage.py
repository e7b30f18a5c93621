"""What each caller has used, counted where all instances of the function see it, and the limits on it.

One DynamoDB item per caller and clock hour has every counter. So one UpdateItem both counts a request and returns what
the caller has used; a query sends a second one when it ends. A job on Spark is counted by its estimate, and settled by
what it used. Items expire by themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from typing import Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError

from catalog.access.callers import Caller
from catalog.access.roles import Level
from catalog.core.clients import client_for
from catalog.core.errors import Invalid
from catalog.core.settings import Settings

log = logging.getLogger(__name__)

HOUR_S, MINUTE_S = 3600, 60
_LOST = "ConditionalCheckFailedException"
LEASE_S = 30
"""Longer than a function may run: after that, a query that did not end its lease has died."""


@dataclass(frozen=True, slots=True)
class CallerLimits:
    """The limits of one caller. The last three are for each clock hour, in UTC."""

    requests_per_minute: float
    queries_at_once: float
    query_seconds: float
    scanned_bytes: float
    spark_vcpu_hours: float


LIMITS: dict[str, CallerLimits] = {
    "none": CallerLimits(60, 0, 0, 0, 0),
    "reader": CallerLimits(1_200, 4, 1_800, 200e9, 4),
    "writer": CallerLimits(6_000, 4, 3_600, 500e9, 8),
    "admin": CallerLimits(60_000, 8, 14_400, 5e12, 64),
}
"""By the highest level of any of the caller's roles."""
_ROLES = {None: "none", Level.READ: "reader", Level.WRITE: "writer", Level.ADMIN: "admin"}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a caller has used: in this minute, at this moment, and in this hour."""

    requests: int = 0
    running: int = 0
    query_seconds: float = 0.0
    scanned_bytes: int = 0
    spark_vcpu_hours: float = 0.0
    reserved: tuple[Reservation, ...] = ()
    """Of Spark jobs whose use is not known yet: part of `spark_vcpu_hours` by their estimates."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A Spark job of a caller, counted by its estimate until it is settled. `hour`: that of the item which has it."""

    query_id: str
    vcpu_ms: int
    hour: int

    @property
    def member(self) -> str:
        return f"{self.query_id}={self.vcpu_ms}"


@dataclass(frozen=True, slots=True)
class Excess:
    """A limit that is reached: the reason, and when to try again."""

    reason: str
    retry_after_s: int


@dataclass(slots=True)
class Measured:
    """What a query used; whoever runs it fills it in."""

    scanned_bytes: int = 0
    spark_vcpu_seconds: float = 0.0
    """By estimate, of the job that the query became."""
    spark_query_id: str | None = None


def limits_by_role(settings: Settings) -> dict[str, CallerLimits]:
    """The default limits with those of the settings in their place. Invalid for an unknown role or limit."""
    limits, names = dict(LIMITS), {field.name for field in fields(CallerLimits)}
    for role, changed in settings.limits.items():
        if role not in limits or not changed.keys() <= names:
            raise Invalid(
                f"limits of {role}: use the roles {', '.join(LIMITS)} and the limits {', '.join(sorted(names))}"
            )
        limits[role] = replace(limits[role], **changed)
    return limits


class UsageMeter:
    """Counts the callers' usage in a table. When DynamoDB does not respond, `count` returns no usage, and requests are
    served: a lake whose counters are away is not away itself."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        assert settings.limits_table is not None
        self._table, self._clock = settings.limits_table, clock
        self._limits = limits_by_role(settings)
        # A counter that hangs must not delay its request for long.
        self._dynamodb = client_for(settings, "dynamodb", read_timeout_s=1.0, connect_timeout_s=0.5, retries=1)

    def limits(self, caller: Caller) -> CallerLimits:
        levels = [role.level for role in caller.roles if role.level > Level.ERASE]
        return self._limits[_ROLES[max(levels, default=None)]]

    def count(self, caller: Caller) -> Excess | None:
        """Counts a request, with one UpdateItem; an Excess if it is beyond the caller's limit."""
        usage, limits = (
            self._update(caller, self._clock(), "ADD #minute :one", {":one": {"N": "1"}}),
            self.limits(caller),
        )
        if usage.requests > limits.requests_per_minute:
            wait = MINUTE_S - int(self._clock()) % MINUTE_S
            return Excess(f"{limits.requests_per_minute:g} requests a minute are allowed", wait)
        return None

    @contextmanager
    def query(self, caller: Caller) -> Iterator[tuple[Excess | None, Usage, Measured]]:
        """Counts a request that is a query, which ends with the block: two UpdateItems. The Excess, if the query is
        beyond a limit: then do not run it."""
        began, measured = self._clock(), Measured()
        lease = {"SS": [f"{int((began + LEASE_S) * 1000)}.{uuid4().hex[:12]}"]}
        counted = {":one": {"N": "1"}, ":lease": lease}
        usage = self._update(caller, began, "ADD #minute :one, leases :lease", counted)
        try:
            yield self._excess(caller, usage), usage, measured
        finally:
            used = {
                ":ms": {"N": str(max(0, round((self._clock() - began) * 1000)))},
                ":bytes": {"N": str(measured.scanned_bytes)},
                ":lease": lease,
            }
            # In the item in which it began, where its lease is.
            self._update(caller, began, "ADD query_ms :ms, scanned :bytes DELETE leases :lease", used)
            if measured.spark_query_id is not None:
                vcpu_ms = round(measured.spark_vcpu_seconds * 1000)
                self._reserve(caller, Reservation(measured.spark_query_id, vcpu_ms, int(began) // HOUR_S))

    def settle(self, caller: Caller, used: Callable[[str], float | None]) -> Usage:
        """Counts each of the caller's Spark jobs by what it used in place of its estimate, once that is known, and
        returns the caller's usage. `used`: a query's id -> its vCPU-hours, or None.

        Jobs of this hour and of the one before: none runs longer than an hour. A job that used more than its estimate
        is counted in the present hour for what exceeds it. One request for each hour, and one or two for each job.
        """
        now = self._clock()
        usage, before = (self._update(caller, then, "", {}) for then in (now, now - HOUR_S))
        for run in (*usage.reserved, *before.reserved):
            hours = used(run.query_id)
            if hours is None or not self._release(caller, run):
                continue  # not known yet, or settled by another instance
            difference = round(hours * HOUR_S * 1000) - run.vcpu_ms
            if run.hour == int(now) // HOUR_S or difference > 0:
                self._update(caller, now, "ADD vcpu_ms :vcpu", {":vcpu": {"N": str(difference)}})
        return self._update(caller, now, "", {})

    def _reserve(self, caller: Caller, run: Reservation) -> None:
        """Counts a Spark job by its estimate. Once: a request that is repeated gets the same job."""
        values = {":vcpu": {"N": str(run.vcpu_ms)}, ":run": {"SS": [run.member]}, ":member": {"S": run.member}}
        condition = {"ConditionExpression": "NOT contains(runs, :member)"}
        self._send(caller, run.hour, "ADD vcpu_ms :vcpu, runs :run", values, {}, **condition)

    def _release(self, caller: Caller, run: Reservation) -> bool:
        """Removes a reservation; False if it is gone already, so that each is settled once."""
        values = {":run": {"SS": [run.member]}, ":member": {"S": run.member}}
        condition = {"ConditionExpression": "contains(runs, :member)"}
        return self._send(caller, run.hour, "DELETE runs :run", values, {}, **condition) is not None

    def spark_is_used_up(self, caller: Caller, usage: Usage) -> Excess | None:
        limit = self.limits(caller).spark_vcpu_hours
        if usage.spark_vcpu_hours < limit:
            return None
        return Excess(f"{limit:g} vCPU-hours on Spark are allowed in an hour", self._until_next_hour())

    def _excess(self, caller: Caller, usage: Usage) -> Excess | None:
        limits = self.limits(caller)
        if usage.requests > limits.requests_per_minute:
            wait = MINUTE_S - int(self._clock()) % MINUTE_S
            return Excess(f"{limits.requests_per_minute:g} requests a minute are allowed", wait)
        if usage.running > limits.queries_at_once:
            return Excess(f"{limits.queries_at_once:g} queries at once are allowed", 2)
        if usage.query_seconds >= limits.query_seconds:
            return Excess(
                f"{limits.query_seconds:g} seconds of queries are allowed in an hour", self._until_next_hour()
            )
        if usage.scanned_bytes >= limits.scanned_bytes:
            gigabytes = limits.scanned_bytes / 1e9
            return Excess(f"{gigabytes:g} GB read by queries are allowed in an hour", self._until_next_hour())
        return None

    def _until_next_hour(self) -> int:
        return HOUR_S - int(self._clock()) % HOUR_S

    def _update(self, caller: Caller, now: float, expression: str, values: Mapping[str, Any]) -> Usage:
        hour, minute = divmod(int(now), HOUR_S)
        names = {"#minute": f"m{minute // MINUTE_S}"} if "#minute" in expression else {}
        item = self._send(caller, hour, expression, values, names)
        if item is None:
            return Usage()
        alive = [lease for lease in item.get("leases", {}).get("SS", ()) if int(lease.partition(".")[0]) > now * 1000]
        return Usage(
            requests=_number(item, f"m{minute // MINUTE_S}"),
            running=len(alive),
            query_seconds=_number(item, "query_ms") / 1000,
            scanned_bytes=_number(item, "scanned"),
            spark_vcpu_hours=_number(item, "vcpu_ms") / 1000 / HOUR_S,
            reserved=tuple(_reservations(item, hour)),
        )

    def _send(
        self,
        caller: Caller,
        hour: int,
        expression: str,
        values: Mapping[str, Any],
        names: Mapping[str, str],
        **condition: str,
    ) -> dict[str, Any] | None:
        """One UpdateItem, and the item after it; None if DynamoDB does not respond, or the condition does not hold."""
        try:
            attributes: dict[str, Any] = self._dynamodb.update_item(
                TableName=self._table,
                Key={"caller": {"S": f"{sha256(caller.subject.encode()).hexdigest()}.{hour}"}},
                UpdateExpression=f"SET expires = :expires {expression}".strip(),
                ExpressionAttributeValues={":expires": {"N": str((hour + 2) * HOUR_S)}, **values},
                ReturnValues="ALL_NEW",
                **({"ExpressionAttributeNames": names} if names else {}),
                **condition,
            )["Attributes"]
        except (ClientError, BotoCoreError) as error:
            if not condition or getattr(error, "response", {}).get("Error", {}).get("Code") != _LOST:
                log.warning("usage not counted", extra={"reason": str(error)})
            return None
        return attributes


def _reservations(item: Mapping[str, Any], hour: int) -> Iterator[Reservation]:
    for member in item.get("runs", {}).get("SS", ()):
        query_id, _, vcpu_ms = member.rpartition("=")
        yield Reservation(query_id, int(vcpu_ms), hour)


def _number(item: Mapping[str, Any], name: str) -> int:
    return int(item.get(name, {}).get("N", 0))
