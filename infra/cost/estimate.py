"""The cost estimate: the quantities of the templates and of a workload, priced line by line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from catalog.core.prices import load_prices
from infra.cost.workload import (
    API_REQUEST,
    COMMIT,
    DAYS,
    EMPTY_JOB_VCPU_HOURS,
    FIGURES,
    FILE,
    GB_PER_VCPU,
    IMAGE_GB,
    KMS_PER_OBJECT_REQUEST,
    POLLS_A_MONTH,
    QUERY,
    SWEEP,
    Unit,
    Workload,
)

MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}


@dataclass(frozen=True)
class Line:
    """One line of the bill. `why` says where the quantity comes from."""

    price: str
    quantity: float
    dollars: float
    why: str


@dataclass(frozen=True)
class Inventory:
    """The priced resources of the templates."""

    memory_mb: dict[str, int]
    consumed_queues: int
    sweeps_a_month: float
    jobs_a_month: float
    """Job runs that schedules start, with or without work to do."""
    secrets: int
    keys: int
    alarms: int
    dashboards: int
    distributions: int

    @classmethod
    def of(cls, templates: Iterable[dict[str, Any]]) -> Inventory:
        resources = [body for template in templates for body in template["Resources"].values()]
        count = Counter(body["Type"] for body in resources)
        functions = [body["Properties"] for body in resources if body["Type"] == "AWS::Lambda::Function"]
        schedules = [body["Properties"] for body in resources if body["Type"] == "AWS::Scheduler::Schedule"]
        return cls(
            memory_mb={handler_of(function): int(function["MemorySize"]) for function in functions},
            consumed_queues=count["AWS::Lambda::EventSourceMapping"],
            sweeps_a_month=_runs(schedule for schedule in schedules if not _starts_job(schedule)),
            jobs_a_month=_runs(schedule for schedule in schedules if _starts_job(schedule)),
            secrets=count["AWS::SecretsManager::Secret"],
            keys=count["AWS::KMS::Key"],
            alarms=count["AWS::CloudWatch::Alarm"],
            dashboards=count["AWS::CloudWatch::Dashboard"],
            distributions=count["AWS::CloudFront::Distribution"],
        )


def estimate(inventory: Inventory, workload: Workload, prices: dict[str, float] | None = None) -> list[Line]:
    """The lines of a month's bill that are not zero, most expensive first."""
    prices = load_prices() if prices is None else prices
    quantities = Counter[str]()
    reasons = dict[str, list[str]]()
    for name, quantity, why in _quantities(inventory, workload):
        if quantity:
            quantities[name] += quantity  # type: ignore[assignment]
            reasons.setdefault(name, []).append(why)
    lines = [
        Line(name, round(quantity, 3), quantity * prices[name], "; ".join(reasons[name]))
        for name, quantity in quantities.items()
    ]
    return sorted(lines, key=lambda line: -line.dollars)


def handler_of(function: dict[str, Any]) -> str:
    """`functions.ingest.handler` -> `ingest`."""
    command: str = function["ImageConfig"]["Command"][0]
    return command.split(".")[1]


def runs_a_month(expression: str) -> float:
    """How often a schedule runs in a month. Cron expressions: hourly for hour `*`, else daily or less often."""
    rate = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression)
    if rate:
        return DAYS * 24 * 60 / (int(rate[1]) * MINUTES[rate[2]])
    fields = expression.removeprefix("cron(").removesuffix(")").split()
    hours = 24 if fields[1] == "*" else len(fields[1].split(","))
    days = 1 if fields[2] not in "*?" else DAYS / 7 if fields[4] not in "*?" else DAYS
    return hours * days


def _quantities(inventory: Inventory, workload: Workload) -> Iterator[tuple[str, float, str]]:
    work: list[tuple[str, str, Unit, float]] = [
        ("files", "ingest", FILE, workload.files_a_day * DAYS),
        ("commits", "sequencer", COMMIT, workload.commits_a_day * DAYS),
        ("sweeps", "sequencer", SWEEP, inventory.sweeps_a_month),
        ("API requests", "api", API_REQUEST, workload.api_requests_a_day * DAYS),
        ("queries", "api", QUERY, workload.queries_a_day * DAYS),
    ]
    objects = sum(times * (unit.s3_writes + unit.s3_reads) for _, _, unit, times in work)
    yield "kms.request", objects * KMS_PER_OBJECT_REQUEST * (inventory.keys > 0), "objects, by the bucket's key"
    yield "cloudwatch.metric_month", FIGURES * (workload.files_a_day > 0), "figures that the functions tell"
    for kind, function, unit, times in work:
        gb = inventory.memory_mb.get(function, 1024) / 1024
        yield "lambda.gb_second", times * unit.seconds * gb, f"{kind} x {unit.seconds} s x {gb:g} GB"
        yield "lambda.request", times, kind
        yield "s3.write", times * unit.s3_writes, f"{kind} x {unit.s3_writes:g}"
        yield "s3.read", times * unit.s3_reads, f"{kind} x {unit.s3_reads:g}"
        yield "glue.request", times * unit.glue, f"{kind} x {unit.glue:g}"
        yield "sqs.request", times * unit.sqs, f"{kind} x {unit.sqs:g}"
        yield "logs.gb", times * unit.log_kb / 1e6, f"{kind} x {unit.log_kb:g} KB"
    yield "sqs.request", inventory.consumed_queues * POLLS_A_MONTH, "long polls of Lambda's event sources"
    yield "scheduler.invocation", inventory.sweeps_a_month + inventory.jobs_a_month, "schedules"
    yield "events.event", workload.commits_a_day * DAYS, "announced commits"
    yield "api.request", (workload.api_requests_a_day + workload.queries_a_day) * DAYS, "API requests and queries"
    yield "cloudfront.request", workload.api_requests_a_day * DAYS * (inventory.distributions > 0), "timeline reads"
    yield "s3.gb_month", workload.gb_stored, "tables, media and the timeline"
    hours = workload.job_vcpu_hours_a_day * DAYS + inventory.jobs_a_month * EMPTY_JOB_VCPU_HOURS
    yield "emr.vcpu_hour", hours, "jobs, and the start of those that schedules run"
    yield "emr.gb_hour", hours * GB_PER_VCPU, f"jobs, {GB_PER_VCPU} GB for each vCPU"
    yield "secrets.secret_month", inventory.secrets, "the timeline's signing key"
    yield "kms.key_month", inventory.keys, "encryption keys"
    yield "cloudwatch.alarm_month", inventory.alarms, "alarms"
    yield "cloudwatch.dashboard_month", max(0, inventory.dashboards - 3), "dashboards"
    yield "ecr.gb_month", len(inventory.memory_mb) * IMAGE_GB, "function images"


def _runs(schedules: Iterable[dict[str, Any]]) -> float:
    enabled = [schedule for schedule in schedules if schedule.get("State", "ENABLED") == "ENABLED"]
    return sum(runs_a_month(schedule["ScheduleExpression"]) for schedule in enabled)


def _starts_job(schedule: dict[str, Any]) -> bool:
    return "emrserverless" in json.dumps(schedule["Target"]["Arn"]).lower()
