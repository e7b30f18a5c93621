"""`strandline job`: Spark jobs, started, watched and stopped through EMR Serverless, deployed or embedded."""

from __future__ import annotations

import gzip
import json
import time
import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.errors import Invalid, NotFound, Unavailable
from cli.embedded import use_lake
from cli.output import Output
from spark_jobs.names import JOBS

if TYPE_CHECKING:
    from catalog.lake import Lake

PROJECT = "strandline"  # as infra.stage names things
CODE = "local:///opt/strandline/spark_jobs"
ENDED = ("SUCCESS", "FAILED", "CANCELLED")
_POLL_SECONDS = 0.5

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
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended; its failure is the command's.")] = False,
    timeout_minutes: Annotated[int, typer.Option(min=1, help="When the run is ended for taking too long.")] = 120,
) -> None:
    """Start a job."""
    if job not in JOBS:
        raise NotFound(f"there is no job {job!r}; there are {', '.join(JOBS)}", subject=job)
    output: Output = context.obj
    jobs = Jobs.open()
    run_id = uuid.uuid4().hex
    started = jobs.emr.start_job_run(
        applicationId=jobs.application,
        clientToken=run_id,
        executionRoleArn=jobs.role,
        name=job,
        executionTimeoutMinutes=timeout_minutes,
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"{CODE}/{job}.py",
                "entryPointArguments": ["--run-id", run_id, *(arguments or ())],
            }
        },
    )["jobRunId"]
    if not wait:
        output.data({"id": started, "job": job, "run_id": run_id}, f"{started}  {job}  (strandline job show {started})")
        return
    with output.progress(f"{job} runs …"):
        found = jobs.wait(started)
    answer = jobs.describe(found)
    output.data(answer, "\n".join(_lines(answer)))
    if found["state"] != "SUCCESS":
        raise Unavailable(f"{job} {found['state'].lower()}: {found.get('stateDetails', '')}", subject=started)


def list_runs(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only runs in this state, such as RUNNING or FAILED.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 20,
) -> None:
    """The latest runs, newest first."""
    jobs = Jobs.open()
    found = sorted(jobs.runs(state), key=lambda one: one["createdAt"], reverse=True)[:limit]
    rows = [
        {
            "id": one["id"],
            "job": one.get("name", ""),
            "state": one["state"],
            "created": f"{one['createdAt']:%Y-%m-%d %H:%M:%S}",
            "details": one.get("stateDetails", ""),
        }
        for one in found
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
    stream: Annotated[str, typer.Option(help="stderr, where jobs log, or stdout.")] = "stderr",
) -> None:
    """What the run's driver wrote. EMR delivers it when the run has ended."""
    if stream not in ("stderr", "stdout"):
        raise Invalid(f"there is no stream {stream!r}: ask for stderr or stdout")
    jobs = Jobs.open()
    jobs.get(run)
    text = jobs.log(run, stream)
    context.obj.data({"id": run, "stream": stream, "text": text}, text.rstrip("\n").replace("[", r"\["))


def cancel(
    context: typer.Context,
    run: Run,
    wait: Annotated[bool, typer.Option("--wait", help="Until it has ended.")] = False,
) -> None:
    """Ask a run to end. What it has committed stays; run again, it goes on from there."""
    output: Output = context.obj
    jobs = Jobs.open()
    jobs.get(run)
    jobs.emr.cancel_job_run(applicationId=jobs.application, jobRunId=run)
    if not wait:
        output.data({"id": run, "asked": "cancel"}, f"{run} was asked to end.")
        return
    with output.progress(f"{run} ends …"):
        state = jobs.wait(run)["state"]
    output.data({"id": run, "asked": "cancel", "state": state}, f"{run} has ended: {state}.")


class Jobs:
    """The lake's EMR Serverless application."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self.emr: Any = lake.client("emr-serverless")
        name = f"{PROJECT}-{lake.settings.stage}-jobs"
        pages = self.emr.get_paginator("list_applications").paginate()
        found = [a for page in pages for a in page["applications"] if a["name"] == name and a["state"] != "TERMINATED"]
        if not found:
            raise NotFound(f"there is no EMR Serverless application {name}: is the lake deployed?", subject=name)
        self.application: str = found[0]["id"]
        account = found[0]["arn"].split(":")[4]
        self.role = f"arn:aws:iam::{account}:role/{PROJECT}-{lake.settings.stage}-job"

    @classmethod
    def open(cls) -> Jobs:
        use_lake()
        from catalog.lake import open_lake
        from catalog.settings import load_settings

        return cls(open_lake(load_settings()))

    def get(self, run: str) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self.emr.get_job_run(applicationId=self.application, jobRunId=run)["jobRun"]
        except self.emr.exceptions.ClientError as error:
            if error.response["Error"]["Code"] in ("ResourceNotFoundException", "ValidationException"):
                raise NotFound(f"there is no run {run}: `strandline job list` has them", subject=run) from None
            raise
        return answer

    def runs(self, state: str | None) -> Iterator[dict[str, Any]]:
        more = {"states": [state.upper()]} if state else {}
        for page in self.emr.get_paginator("list_job_runs").paginate(applicationId=self.application, **more):
            yield from page["jobRuns"]

    def wait(self, run: str) -> dict[str, Any]:
        while (found := self.get(run))["state"] not in ENDED:
            time.sleep(_POLL_SECONDS)
        return found

    def describe(self, found: dict[str, Any]) -> dict[str, Any]:
        """EMR's record, the job's own state in the timeline's store while it runs, and its report afterwards."""
        job, run_id = str(found.get("name", "")), _run_id(found)
        answer: dict[str, Any] = {
            "id": found["jobRunId"],
            "job": job,
            "run_id": run_id,
            "state": found["state"],
            "details": found.get("stateDetails", ""),
            "created": found["createdAt"].isoformat(),
        }
        if run_id is not None:
            answer["progress"] = self._progress(job, run_id)
            answer["report"] = self._report(job, run_id)
        return answer

    def log(self, run: str, stream: str) -> str:
        from catalog import places

        folder = f"{places.JOBS}logs/applications/{self.application}/jobs/{run}/SPARK_DRIVER"
        body = self._object(f"{folder}/{stream}.gz")
        if body is None:
            raise NotFound(f"run {run} has no {stream} yet: it is delivered when the run has ended", subject=run)
        return gzip.decompress(body).decode(errors="replace")

    def _report(self, job: str, run_id: str) -> dict[str, Any] | None:
        from catalog import places

        body = self._object(f"{places.JOBS}{job}/{run_id}.json")
        return None if body is None else json.loads(body)

    def _progress(self, job: str, run_id: str) -> Any:
        from catalog.timeline.sources import StoredSource

        source = self._lake.timeline.source
        body = source.meta("job", f"{job}/{run_id}") if isinstance(source, StoredSource) else None
        return None if body is None else json.loads(body)

    def _object(self, key: str) -> bytes | None:
        try:
            body: bytes = self._lake.s3.get_object(Bucket=self._lake.settings.bucket, Key=key)["Body"].read()
        except self._lake.s3.exceptions.NoSuchKey:
            return None
        return body


def _run_id(found: dict[str, Any]) -> str | None:
    words = found.get("jobDriver", {}).get("sparkSubmit", {}).get("entryPointArguments", [])
    return next((after for word, after in pairwise(words) if word == "--run-id"), None)


def _lines(answer: dict[str, Any]) -> list[str]:
    lines = [f"{name:<8} {answer[name]}" for name in ("id", "job", "state", "created", "details") if answer[name]]
    report = answer.get("report")
    if report:
        for stage in report["stages"]:
            lines.append(f"  {stage['seconds']:>8.1f} s  {stage['rows']:>10} rows  {stage['name']}")
        lines += [f"  commit {one['snapshot_id']} of {one['table']}" for one in report["commits"]]
        lines.append(f"result   {json.dumps(report['error'] or report['result'])}")
    elif answer.get("progress"):
        lines.append(f"progress {json.dumps(answer['progress'])}")
    return [line.replace("[", r"\[") for line in lines]
