"""Runs a job: arguments, session, progress, commits, report, exit code.

A job is a name, a model of its arguments and a function. It ends with a report on S3 and a last line that says how it
ended. A killed job leaves nothing half done: its commits are atomic, and the next run finds in the tables what is left
to do.
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

from catalog import Invalid, Lake, LakeError, load_settings, open_lake
from catalog.core import s3_layout
from catalog.core.errors import as_lake_error
from catalog.core.events import TableMoved
from catalog.core.logs import configure_logs, correlation
from spark_jobs.lineage import Dataset, Event, run_event
from spark_jobs.session import spark_session

log = logging.getLogger(__name__)

A = TypeVar("A", bound="Arguments")
Session: TypeAlias = "SparkSession | Callable[[], SparkSession]"
_STARTED_BY_JVM = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the Python it starts
FORMAT = "strandline/job@v1"


class Arguments(BaseModel):
    """The arguments of every job. Each job's model extends this one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str = Field(default_factory=lambda: uuid.uuid4().hex, pattern=r"^[\w.:-]{1,128}$")


@dataclass(frozen=True)
class Job(Generic[A]):
    """`work` returns the job's own result, for the report."""

    name: str
    arguments: type[A]
    work: Callable[[Context, A], Mapping[str, Any]]


@dataclass
class Stage:
    """One part of a job's work, and how much it processed."""

    name: str
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0


class Context:
    """A job's session and lake, and the record of its progress, inputs and commits."""

    def __init__(self, session: Session, lake: Lake, job: str, run_id: str) -> None:
        self._session, self.lake, self.job, self.run_id = session, lake, job, run_id
        self.stages: list[Stage] = []
        self.commits: list[dict[str, Any]] = []
        self.inputs: dict[str, Dataset] = {}
        self.outputs: dict[str, Dataset] = {}
        self.started = time.time()

    @property
    def spark(self) -> SparkSession:
        """The session, started on first use: updating a few rows, expiry and most failures need none."""
        if not isinstance(self._session, SparkSession):
            self._session = self._session()
        return self._session

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Times a stage, and reports it to the logs and the job's state."""
        stage, started = Stage(name), time.monotonic()
        self.stages.append(stage)
        self.report_state("running", stage=name)
        yield stage
        stage.seconds = round(time.monotonic() - started, 3)
        log.info("stage done", extra={"job": self.job, "run_id": self.run_id, "stage": asdict(stage)})

    def reads(self, table: str, snapshot_id: int | None) -> None:
        self.inputs[table] = Dataset(table, snapshot_id)

    def committed(self, table: str, snapshot_id: int | None, **details: Any) -> None:
        """Records a commit and tells the sequencer. If the message is lost, the sweep sequences the commit later."""
        self.outputs[table] = Dataset(table, snapshot_id)
        self.commits.append({"table": table, "snapshot_id": _text(snapshot_id), **details})
        log.info("committed", extra={"job": self.job, "run_id": self.run_id, "commit": self.commits[-1]})
        if self.lake.settings.moved_queue_url is not None:
            with never_ending_the_job("the sequencer was not told of a commit"):
                self.lake.request(TableMoved(table=table, correlation_id=self.run_id))

    def report_state(self, status: str, **details: Any) -> None:
        """Stores the job's state as an object, where `strandline job show` reads it."""
        rows, size = sum(stage.rows for stage in self.stages), sum(stage.bytes for stage in self.stages)
        state = {"job": self.job, "run_id": self.run_id, "status": status, "rows": rows, "bytes": size, **details}
        state |= {"stages_done": sum(1 for stage in self.stages if stage.seconds), "at_ms": int(time.time() * 1000)}
        with never_ending_the_job("the job's state was not stored"):
            self.lake.s3.put_object(
                Bucket=self.lake.settings.bucket,
                Key=state_key(self.job, self.run_id),
                Body=json.dumps(state, default=str).encode(),
                ContentType="application/json",
            )


@contextmanager
def never_ending_the_job(failure: str) -> Iterator[None]:
    """Logs any error: whoever does not hear of a job's progress can wait, its work cannot."""
    try:
        yield
    except Cancelled:
        raise
    except Exception as error:
        log.warning(failure, extra={"error": as_lake_error(error).as_dict()})


@dataclass
class Outcome:
    """How a run ended: its report, as stored on S3."""

    report: dict[str, Any] = field(default_factory=dict)
    error: LakeError | None = None


class Cancelled(LakeError):
    """The engine asked the job to stop, by SIGTERM."""


def run(job: Job[A], argv: Sequence[str] | None = None) -> int:
    """Runs the job as a process; returns exit code 0, or the error's. The last line of stderr says how it ended."""
    configure_logs(f"job-{job.name}", "INFO")
    try:
        arguments = parse(job.arguments, sys.argv[1:] if argv is None else argv)
        settings = load_settings()
        signal.signal(signal.SIGTERM, _stop)
        with ExitStack() as stack:

            def start() -> SparkSession:
                return stack.enter_context(spark_session(f"strandline {job.name}", settings, local=False))

            # spark-submit's JVM waits for a session, and may report a failure if the process starts none.
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
    """Runs the job with a session, or a function that starts one, and stores its report."""
    context = Context(session, lake, job.name, arguments.run_id)
    result: Mapping[str, Any] = {}
    error: LakeError | None = None
    with correlation(arguments.run_id):
        context.report_state("running")
        try:
            result = job.work(context, arguments)
        except Exception as problem:
            error = as_lake_error(problem)
            log.exception("job failed", extra={"job": job.name, "run_id": arguments.run_id, "error": error.as_dict()})
        report = _report(context, arguments, result, error)
        _store(context, report)
        context.report_state(report["status"], report=report["place"])
    return Outcome(report, error)


def state_key(job: str, run_id: str) -> str:
    return f"{s3_layout.JOBS}{job}/{run_id}.state.json"


def report_key(job: str, run_id: str) -> str:
    return f"{s3_layout.JOBS}{job}/{run_id}.json"


def parse(model: type[A], argv: Sequence[str]) -> A:
    """Parses `--some-field value`; a `--flag` alone is true, and the option of a list may be repeated. Else Invalid."""
    values: dict[str, Any] = {}
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise Invalid(f"{word!r} is no option: write arguments as --name value")
        name, equals, value = word[2:].replace("-", "_", word[2:].partition("=")[0].count("-")).partition("=")
        field_info = model.model_fields.get(name)
        if field_info is None:
            options = ", ".join("--" + field.replace("_", "-") for field in model.model_fields)
            raise Invalid(f"there is no option {word.partition('=')[0]}; the options are {options}")
        is_flag = field_info.annotation is bool
        if not equals:
            if is_flag and (not words or words[0].startswith("--")):
                value = "true"
            elif not words:
                raise Invalid(f"{word} needs a value")
            else:
                value = words.pop(0)
        if _is_list(field_info.annotation):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise Invalid(f"{word} is given twice")
        else:
            values[name] = value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(f"--{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise Invalid(f"the arguments are not valid: {problems}") from None


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
    end_events: dict[str, Event] = {"succeeded": "COMPLETE", "failed": "FAIL", "cancelled": "ABORT"}
    events = [
        run_event("START", context.started, context.run_id, context.job, bucket, inputs, []),
        run_event(end_events[status], time.time(), context.run_id, context.job, bucket, inputs, outputs),
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


def _store(context: Context, report: Mapping[str, Any]) -> None:
    body = json.dumps(report, indent=1, default=str, ensure_ascii=False).encode()
    context.lake.s3.put_object(
        Bucket=context.lake.settings.bucket, Key=report["place"], Body=body, ContentType="application/json"
    )


def _stop(*_: Any) -> None:
    raise Cancelled("the job was asked to stop: run it again, and it continues where it stopped")


def _text(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)  # 63 bits: more than most JSON readers keep of a number
