"""The cost estimate: the quantities of the templates and of a workload, priced line by line."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from catalog.core.prices import load_prices
from infra.cost.workload import (
    API_REQUEST,
    CANARY,
    COMMIT,
    DAYS,
    DUE,
    FIGURES,
    FILE,
    IMAGE_GB,
    KMS_PER_OBJECT_REQUEST,
    POLLS_A_MONTH,
    QUERY,
    START_MINUTES,
    SWEEP,
    Unit,
    Workload,
)
from infra.job_workers import OVERHEAD

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
    canaries_a_month: float
    due_jobs_a_month: float
    """Events of the jobs' schedules. Each starts a run only if tables changed."""
    run_vcpus: int
    run_memory_gb: int
    """Of a job run: its driver and one executor."""
    fifo_queues: int
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
            sweeps_a_month=_runs(s for s in schedules if not _invokes(s, "starter") and not _invokes(s, "canary")),
            canaries_a_month=_runs(s for s in schedules if _invokes(s, "canary")),
            due_jobs_a_month=_runs(s for s in schedules if _invokes(s, "starter")),
            **_run_size(body["Properties"] for body in resources if body["Type"] == "AWS::EMRServerless::Application"),
            fifo_queues=sum(
                body["Properties"].get("FifoQueue") is True and "RedrivePolicy" in body["Properties"]
                for body in resources
                if body["Type"] == "AWS::SQS::Queue"
            ),
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
        ("canary", "canary", CANARY, inventory.canaries_a_month),
        ("schedules of jobs", "starter", DUE, inventory.due_jobs_a_month),
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
        queue = "sqs.fifo_request" if function == "sequencer" and inventory.fifo_queues else "sqs.request"
        yield queue, times * unit.sqs, f"{kind} x {unit.sqs:g}"
        yield "logs.gb", times * unit.log_kb / 1e6, f"{kind} x {unit.log_kb:g} KB"
    standard = inventory.consumed_queues - inventory.fifo_queues
    yield "sqs.request", standard * POLLS_A_MONTH, "long polls of Lambda's event sources"
    yield "sqs.fifo_request", inventory.fifo_queues * POLLS_A_MONTH, "long polls of Lambda's event sources"
    schedules = inventory.sweeps_a_month + inventory.canaries_a_month + inventory.due_jobs_a_month
    yield "scheduler.invocation", schedules, "schedules"
    yield "events.event", workload.commits_a_day * DAYS, "announced commits"
    yield "api.request", (workload.api_requests_a_day + workload.queries_a_day) * DAYS, "API requests and queries"
    yield "cloudfront.request", workload.api_requests_a_day * DAYS * (inventory.distributions > 0), "timeline reads"
    yield "s3.gb_month", workload.gb_stored, "tables, media and the timeline"
    runs = inventory.due_jobs_a_month * (workload.files_a_day > 0)  # an idle lake's tables do not change
    hours = workload.job_vcpu_hours_a_day * DAYS + runs * inventory.run_vcpus * START_MINUTES / 60
    per_vcpu = inventory.run_memory_gb / inventory.run_vcpus if inventory.run_vcpus else 0
    yield "emr.vcpu_hour", hours, f"jobs, and {START_MINUTES} minutes of each start with {inventory.run_vcpus} vCPU"
    yield "emr.gb_hour", hours * per_vcpu, f"jobs, {per_vcpu:g} GB for each vCPU"
    yield "secrets.secret_month", inventory.secrets, "the timeline's signing key"
    yield "kms.key_month", inventory.keys, "keys of encryption and signing"
    yield "cloudwatch.alarm_month", inventory.alarms, "alarms"
    yield "cloudwatch.dashboard_month", max(0, inventory.dashboards - 3), "dashboards"
    yield "ecr.gb_month", len(inventory.memory_mb) * IMAGE_GB, "images"


def _runs(schedules: Iterable[dict[str, Any]]) -> float:
    enabled = [schedule for schedule in schedules if schedule.get("State", "ENABLED") == "ENABLED"]
    return sum(runs_a_month(schedule["ScheduleExpression"]) for schedule in enabled)


def _invokes(schedule: dict[str, Any], function: str) -> bool:
    return function in json.dumps(schedule["Target"]["Arn"]).lower()


def _run_size(applications: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The vCPUs and the memory of a driver and an executor, as the application's Spark settings have them."""
    for application in applications:
        conf = application["RuntimeConfiguration"][0]["Properties"]
        vcpus = sum(int(conf[f"spark.{role}.cores"]) for role in ("driver", "executor"))
        heaps = [int(conf[f"spark.{role}.memory"].removesuffix("g")) for role in ("driver", "executor")]
        return {"run_vcpus": vcpus, "run_memory_gb": sum(math.ceil(heap * (1 + OVERHEAD)) for heap in heaps)}
    return {"run_vcpus": 0, "run_memory_gb": 0}
