"""`strandline job`: starts, shows and cancels Spark jobs on EMR Serverless, deployed or embedded."""

from __future__ import annotations

import gzip
import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog import Invalid, NotFound
from catalog.core.errors import UNAVAILABLE, error_from
from cli.lake_choice import use_lake
from cli.output import Output
from spark_jobs.names import JOBS

if TYPE_CHECKING:
    from catalog import Lake

PROJECT = "strandline"  # the prefix of resource names, as in infra.stage
CODE = "local:///opt/strandline/spark_jobs"
FINAL_STATES = ("SUCCESS", "FAILED", "CANCELLED")
_POLL_SECONDS = 0.5
_FAILED = re.compile(r"strandline job \w+ failed \((?P<kind>[a-z_]+)\)")  # see spark_jobs.job.run

Run = Annotated[str, typer.Argument(help="The run's id, as `job run` and `job list` print it.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Spark jobs on EMR Serverless.", no_args_is_help=True)
    examples = "Examples: `strandline job run medallion --wait` · `strandline job run compact -- --table gold.insights`"
    group.command(epilog=examples)(run)
    group.command("list", epilog="Examples: `strandline job list` · `strandline job list --state FAILED`")(list_runs)
    group.command(epilog="Examples: `strandline job show 00fabc` · `strandline -o json job show 00fabc`")(show)
    group.command(epilog="Examples: `strandline job logs 00fabc` · `strandline job logs 00fabc --stream stdout`")(logs)
    group.command(epilog="Examples: `strandline job cancel 00fabc` · `strandline job cancel 00fabc --wait`")(cancel)
    app.add_typer(group, name="job")


def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help=f"One of {', '.join(JOBS)}.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The job's own options, after `--`.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended; exit with its error's code.")] = False,
    timeout_minutes: Annotated[int, typer.Option(min=1, help="Cancel the run after this many minutes.")] = 120,
) -> None:
    """Start a job."""
    if job not in JOBS:
        raise NotFound(f"there is no job {job!r}: choose one of {', '.join(JOBS)}", subject=job)
    output: Output = context.obj
    jobs = Jobs.open()
    run_id = uuid.uuid4().hex
    started = jobs.start(job, run_id, arguments or (), timeout_minutes)
    if not wait:
        output.data({"id": started, "job": job, "run_id": run_id}, f"{started}  {job}  (strandline job show {started})")
        return
    with output.progress(f"{job} runs …"):
        record = jobs.wait(started)
    answer = jobs.describe(record)
    output.data(answer, "\n".join(_lines(answer)))
    if record["state"] != "SUCCESS":
        reason = f"{job} {record['state'].lower()}: {record.get('stateDetails', '')}"
        named = _FAILED.search(record.get("stateDetails", ""))  # none if the engine ended the run, or lost it
        kind = named["kind"] if named else UNAVAILABLE.name
        message = f"{reason}; see `strandline job logs {started}`"
        raise error_from({"kind": kind, "message": message, "subject": started})


def list_runs(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only runs in this state, for example RUNNING or FAILED.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
) -> None:
    """The latest runs, newest first."""
    jobs = Jobs.open()
    records = sorted(jobs.runs(state), key=lambda record: record["createdAt"], reverse=True)[:limit]
    rows = [
        {
            "id": record["id"],
            "job": record.get("name", ""),
            "state": record["state"],
            "created": f"{record['createdAt']:%Y-%m-%d %H:%M:%S}",
            "details": record.get("stateDetails", ""),
        }
        for record in records
    ]
    context.obj.table(rows, ["id", "job", "state", "created", "details"])


def show(context: typer.Context, run: Run) -> None:
    """One run: its state, its progress, and its report once it has ended."""
    jobs = Jobs.open()
    answer = jobs.describe(jobs.get(run))
    context.obj.data(answer, "\n".join(_lines(answer)))


def logs(
    context: typer.Context,
    run: Run,
    stream: Annotated[str, typer.Option(help="stderr, which has the log, or stdout.")] = "stderr",
) -> None:
    """The log of a run's driver. EMR writes it when the run has ended."""
    if stream not in ("stderr", "stdout"):
        raise Invalid(f"there is no stream {stream!r}: write --stream stderr or --stream stdout")
    jobs = Jobs.open()
    jobs.get(run)
    text = jobs.log(run, stream)
    context.obj.data({"id": run, "stream": stream, "text": text}, text.rstrip("\n").replace("[", r"\["))


def cancel(
    context: typer.Context,
    run: Run,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
) -> None:
    """Cancel a run. Its commits stay; the next run of the job continues from there."""
    output: Output = context.obj
    jobs = Jobs.open()
    jobs.get(run)
    jobs.emr.cancel_job_run(applicationId=jobs.application, jobRunId=run)
    if not wait:
        output.data({"id": run, "asked": "cancel"}, f"{run} is being cancelled: strandline job show {run}")
        return
    with output.progress(f"cancelling {run} …"):
        state = jobs.wait(run)["state"]
    output.data({"id": run, "asked": "cancel", "state": state}, f"{run} has ended: {state}.")


class Jobs:
    """The lake's EMR Serverless application."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.emr: Any = lake.client("emr-serverless")
        name = f"{PROJECT}-{lake.settings.stage}-jobs"
        pages = self.emr.get_paginator("list_applications").paginate()
        applications = (application for page in pages for application in page["applications"])
        live = [a for a in applications if a["name"] == name and a["state"] != "TERMINATED"]
        if not live:
            message = f"there is no EMR Serverless application {name}: deploy the jobs stack, or check STRANDLINE_STAGE"
            raise NotFound(message, subject=name)
        self.application: str = live[0]["id"]
        account = live[0]["arn"].split(":")[4]
        self.role = f"arn:aws:iam::{account}:role/{PROJECT}-{lake.settings.stage}-job"

    @classmethod
    def open(cls) -> Jobs:
        use_lake()
        from catalog import load_settings, open_lake

        return cls(open_lake(load_settings()))

    def start(self, job: str, run_id: str, arguments: Sequence[str] = (), timeout_minutes: int = 120) -> str:
        """Starts a job; returns EMR's id of the run. `run_id` is ours: the job's report and progress carry it."""
        response = self.emr.start_job_run(
            applicationId=self.application,
            clientToken=run_id,
            executionRoleArn=self.role,
            name=job,
            executionTimeoutMinutes=timeout_minutes,
            jobDriver={
                "sparkSubmit": {
                    "entryPoint": f"{CODE}/{job}.py",
                    "entryPointArguments": ["--run-id", run_id, *arguments],
                }
            },
        )
        return str(response["jobRunId"])

    def get(self, run: str) -> dict[str, Any]:
        from catalog.core.aws_errors import is_missing

        try:
            record: dict[str, Any] = self.emr.get_job_run(applicationId=self.application, jobRunId=run)["jobRun"]
        except self.emr.exceptions.ClientError as error:
            if is_missing(error) or error.response["Error"]["Code"] == "ValidationException":
                raise NotFound(f"there is no run {run}: `strandline job list` lists the runs", subject=run) from None
            raise
        return record

    def runs(self, state: str | None) -> Iterator[dict[str, Any]]:
        states = {"states": [state.upper()]} if state else {}
        for page in self.emr.get_paginator("list_job_runs").paginate(applicationId=self.application, **states):
            yield from page["jobRuns"]

    def wait(self, run: str) -> dict[str, Any]:
        while (record := self.get(run))["state"] not in FINAL_STATES:
            time.sleep(_POLL_SECONDS)
        return record

    def describe(self, record: dict[str, Any]) -> dict[str, Any]:
        """EMR's record, the job's progress while it runs, and its report afterwards."""
        job, run_id = str(record.get("name", "")), _run_id(record)
        answer: dict[str, Any] = {
            "id": record["jobRunId"],
            "job": job,
            "run_id": run_id,
            "state": record["state"],
            "details": record.get("stateDetails", ""),
            "created": record["createdAt"].isoformat(),
        }
        if run_id is not None:
            answer["progress"] = self._progress(job, run_id)
            answer["report"] = self._report(job, run_id)
        return answer

    def log(self, run: str, stream: str) -> str:
        from catalog.core import s3_layout

        folder = f"{s3_layout.JOBS}logs/applications/{self.application}/jobs/{run}/SPARK_DRIVER"
        body = self._object(f"{folder}/{stream}.gz")
        if body is None:
            message = f"run {run} has no {stream} yet: EMR writes it when the run has ended"
            raise NotFound(f"{message}, see `strandline job show {run}`", subject=run)
        return gzip.decompress(body).decode(errors="replace")

    def _report(self, job: str, run_id: str) -> dict[str, Any] | None:
        from catalog.core import s3_layout

        body = self._object(f"{s3_layout.JOBS}{job}/{run_id}.json")
        return None if body is None else json.loads(body)

    def _progress(self, job: str, run_id: str) -> Any:
        from catalog.core import s3_layout

        body = self._object(f"{s3_layout.JOBS}{job}/{run_id}.state.json")
        return None if body is None else json.loads(body)

    def _object(self, key: str) -> bytes | None:
        from catalog.core.aws_errors import is_missing

        try:
            body: bytes = self._lake.s3.get_object(Bucket=self._lake.settings.bucket, Key=key)["Body"].read()
        except self._lake.s3.exceptions.ClientError as error:
            if is_missing(error):
                return None
            raise
        return body


def _run_id(record: dict[str, Any]) -> str | None:
    words = record.get("jobDriver", {}).get("sparkSubmit", {}).get("entryPointArguments", [])
    return next((value for word, value in pairwise(words) if word == "--run-id"), None)


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{name:<8} {answer[name]}" for name in ("id", "job", "state", "created", "details") if answer[name]]
    report = answer.get("report")
    if report:
        for stage in report["stages"]:
            lines.append(f"  {stage['seconds']:>8.1f} s  {stage['rows']:>10} rows  {stage['name']}")
        lines += [f"  commit {commit['snapshot_id']} of {commit['table']}" for commit in report["commits"]]
        lines.append(f"result   {json.dumps(report['error'] or report['result'])}")
    elif answer.get("progress"):
        lines.append(f"progress {json.dumps(answer['progress'])}")
    return [line.replace("[", r"\[") for line in lines]
