"""The one way to run a job: arguments, session, progress, commits, report, exit code.

A job is a name, a model of its arguments and a function. Whatever happens to it, it leaves a report on S3 and a last
line that says how it ended; killed in between it leaves nothing half done, because its commits are whole and it finds
out from the tables themselves what is left to do.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from types import UnionType
from typing import Any, Generic, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyspark.sql import SparkSession

from catalog import places
from catalog.errors import Invalid, LakeError, as_lake_error
from catalog.events import PutMeta, TableMoved
from catalog.lake import Lake, open_lake
from catalog.logs import configure_logs, correlation
from catalog.settings import load_settings
from spark_jobs.lineage import Dataset, Event, run_event
from spark_jobs.session import spark_session

log = logging.getLogger(__name__)

A = TypeVar("A", bound="Arguments")
Session: TypeAlias = "SparkSession | Callable[[], SparkSession]"
_STARTED_BY_JVM = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the Python it starts
STATE_SPACE = "job"
FORMAT = "strandline/job@v1"


class Arguments(BaseModel):
    """What every job may be told. Each job has its own model on top of this one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str = Field(default_factory=lambda: uuid.uuid4().hex, pattern=r"^[\w.:-]{1,128}$")


@dataclass(frozen=True)
class Job(Generic[A]):
    """`work` gives what is particular to this job, for the report."""

    name: str
    arguments: type[A]
    work: Callable[[Context, A], Mapping[str, Any]]


@dataclass
class Stage:
    """One part of a job's work, and how much went through it."""

    name: str
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Context:
    """What a job works with: the session, the lake, and where it tells of its progress."""

    def __init__(self, session: Session, lake: Lake, job: str, run_id: str) -> None:
        self._session, self.lake, self.job, self.run_id = session, lake, job, run_id
        self.stages: list[Stage] = []
        self.commits: list[dict[str, Any]] = []
        self.inputs: dict[str, Dataset] = {}
        self.outputs: dict[str, Dataset] = {}
        self.started = time.time()

    @property
    def spark(self) -> SparkSession:
        """The session, started when it is first asked for: mending a few rows, expiring and failing need none."""
        if not isinstance(self._session, SparkSession):
            self._session = self._session()
        return self._session

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Told to the logs and the job's state when it begins and when it ends."""
        stage, began = Stage(name), time.monotonic()
        self.stages.append(stage)
        self.tell("running", stage=name)
        yield stage
        stage.seconds = round(time.monotonic() - began, 3)
        log.info("stage done", extra={"job": self.job, "run_id": self.run_id, "stage": asdict(stage)})

    def reads(self, table: str, snapshot_id: int | None) -> None:
        self.inputs[table] = Dataset(table, snapshot_id)

    def committed(self, table: str, snapshot_id: int | None, **said: Any) -> None:
        """A commit of this job. The sequencer is told to look; if it is not, its sweep looks a little later."""
        self.outputs[table] = Dataset(table, snapshot_id)
        self.commits.append({"table": table, "snapshot_id": _text(snapshot_id), **said})
        log.info("committed", extra={"job": self.job, "run_id": self.run_id, "commit": self.commits[-1]})
        if self.lake.settings.moved_queue_url is not None:
            self.lake.request(TableMoved(table=table, correlation_id=self.run_id))

    def tell(self, status: str, **more: Any) -> None:
        """The job's state in the timeline's store, which `strandline job show` reads."""
        if self.lake.settings.moved_queue_url is None:
            return
        rows, size = sum(stage.rows for stage in self.stages), sum(stage.bytes for stage in self.stages)
        state = {"job": self.job, "run_id": self.run_id, "status": status, "rows": rows, "bytes": size, **more}
        state |= {"stages_done": sum(1 for stage in self.stages if stage.seconds), "at_ms": int(time.time() * 1000)}
        self.lake.request(PutMeta(space=STATE_SPACE, id=f"{self.job}/{self.run_id}", value=state))


@dataclass
class Outcome:
    """How a run ended: the report, as it lies on S3."""

    report: dict[str, Any] = field(default_factory=dict)
    error: LakeError | None = None


class Cancelled(LakeError):
    """The engine asked the job to end."""


def run(job: Job[A], argv: Sequence[str] | None = None) -> int:
    """Runs the job as a process of its own: exit code 0, or the error's. The last line says what happened."""
    configure_logs(f"job-{job.name}", "INFO")
    try:
        arguments = parse(job.arguments, sys.argv[1:] if argv is None else argv)
        settings = load_settings()
        signal.signal(signal.SIGTERM, _stop)
        with ExitStack() as stack:

            def start() -> SparkSession:
                return stack.enter_context(spark_session(f"strandline {job.name}", settings, local=False))

            # A JVM that started us waits for a session, and may take it for a failure if none comes.
            session = start() if _STARTED_BY_JVM in os.environ else start
            outcome = execute(job, arguments, session, open_lake(settings))
    except Exception as error:
        outcome = Outcome(error=as_lake_error(error))
    if outcome.error is not None:
        kind = outcome.error.kind
        sys.stderr.write(f"strandline job {job.name} failed ({kind.name}): {' '.join(outcome.error.message.split())}\n")
        return kind.exit_code
    sys.stderr.write(f"strandline job {job.name} done: {json.dumps(outcome.report['result'], default=str)}\n")
    return 0


def execute(job: Job[A], arguments: A, session: Session, lake: Lake) -> Outcome:
    """Runs the job in a session that is there already, or can be, and leaves its report."""
    context = Context(session, lake, job.name, arguments.run_id)
    result: Mapping[str, Any] = {}
    error: LakeError | None = None
    with correlation(arguments.run_id):
        context.tell("running")
        try:
            result = job.work(context, arguments)
        except Exception as problem:
            error = as_lake_error(problem)
            log.exception("job failed", extra={"job": job.name, "run_id": arguments.run_id, "error": error.as_dict()})
        report = _report(context, arguments, result, error)
        _keep(context, report)
        context.tell(report["status"], report=report["place"])
    return Outcome(report, error)


def report_key(job: str, run_id: str) -> str:
    return f"{places.JOBS}{job}/{run_id}.json"


def parse(model: type[A], argv: Sequence[str]) -> A:
    """`--some-field value` for each field; `--flag` alone is true; a list's option may come often. Else Invalid."""
    given: dict[str, Any] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise Invalid(f"{word!r} is no option: arguments are --name value")
        name, equals, value = word[2:].replace("-", "_", word[2:].partition("=")[0].count("-")).partition("=")
        known = model.model_fields.get(name)
        if known is None:
            options = ", ".join("--" + field.replace("_", "-") for field in model.model_fields)
            raise Invalid(f"there is no option {word.partition('=')[0]}; there are {options}")
        is_flag = known.annotation is bool
        if not equals:
            if is_flag and (not words or words[0].startswith("--")):
                value = "true"
            elif not words:
                raise Invalid(f"{word} needs a value")
            else:
                value = words.pop(0)
        if _is_list(known.annotation):
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Invalid(f"{word} is given twice")
        else:
            given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(f"--{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise Invalid(f"the arguments are not usable: {problems}") from None


def _is_list(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return any(_is_list(part) for part in get_args(annotation))
    return get_origin(annotation) in (list, tuple)


def _report(
    context: Context, arguments: Arguments, result: Mapping[str, Any], error: LakeError | None
) -> dict[str, Any]:
    status = "cancelled" if isinstance(error, Cancelled) else "failed" if error else "succeeded"
    inputs, outputs = list(context.inputs.values()), list(context.outputs.values())
    bucket = context.lake.settings.bucket
    ends: dict[str, Event] = {"succeeded": "COMPLETE", "failed": "FAIL", "cancelled": "ABORT"}
    events = [
        run_event("START", context.started, context.run_id, context.job, bucket, inputs, []),
        run_event(ends[status], time.time(), context.run_id, context.job, bucket, inputs, outputs),
    ]
    return {
        "format": FORMAT,
        "job": context.job,
        "run_id": context.run_id,
        "status": status,
        "arguments": arguments.model_dump(mode="json"),
        "started_ms": int(context.started * 1000),
        "ended_ms": int(time.time() * 1000),
        "stages": [asdict(stage) for stage in context.stages],
        "commits": context.commits,
        "result": dict(result),
        "error": error.as_dict() if error else None,
        "lineage": events,
        "place": report_key(context.job, context.run_id),
    }


def _keep(context: Context, report: Mapping[str, Any]) -> None:
    body = json.dumps(report, indent=1, default=str, ensure_ascii=False).encode()
    context.lake.s3.put_object(
        Bucket=context.lake.settings.bucket, Key=report["place"], Body=body, ContentType="application/json"
    )


def _stop(*_: Any) -> None:
    raise Cancelled("the engine asked the job to end: run it again, it goes on where it was")


def _text(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)  # beyond what JSON's numbers hold elsewhere
