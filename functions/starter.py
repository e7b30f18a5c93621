"""The starter's function, triggered by the jobs' schedules: starts a job on EMR Serverless if it has anything to do."""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

from catalog import Lake, Unavailable, load_settings, open_lake
from catalog.core.aws_errors import translate_aws_errors
from catalog.core.job_starts import DueJob, LastStart, read_last_start, reason_to_start, state_of, store_last_start
from catalog.core.logs import configure_logs, correlation
from catalog.iceberg import listed_tables

log = logging.getLogger(__name__)

CODE = "local:///opt/strandline/spark_jobs"


@cache
def lake() -> Lake:
    settings = load_settings()
    configure_logs("starter", settings.log_level)
    return open_lake(settings)


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """A DueJob in; out the id of the run and why it was started, or null for both."""
    due, bucket, now_ms = DueJob.model_validate(event), lake().settings.bucket, time.time_ns() // 1_000_000
    with correlation(due.execution_id):
        state = state_of(listed_tables(lake().iceberg), due.databases)
        last = read_last_start(lake().s3, bucket, due.schedule)
        reason = reason_to_start(state, last, _run_state(last), now_ms)
        run = None
        if reason is not None and state is not None:
            run = _start(due)
            store_last_start(lake().s3, bucket, due.schedule, LastStart(state, run, now_ms))
        log.info("job started" if run else "nothing to do", extra={"job": due.job, "job_run": run, "reason": reason})
    return {"job_run": run, "reason": reason}


def _run_state(last: LastStart | None) -> str | None:
    if last is None:
        return None
    with translate_aws_errors(f"job run {last.job_run_id}"):
        record = _emr().get_job_run(applicationId=lake().settings.jobs_application, jobRunId=last.job_run_id)
    return str(record["jobRun"]["state"])


def _start(due: DueJob) -> str:
    """Idempotent: the execution id is the client token, so a repeated delivery starts no second run."""
    settings = lake().settings
    if settings.jobs_application is None or settings.jobs_role is None:
        raise Unavailable("there is no EMR Serverless application: set STRANDLINE_JOBS_APPLICATION and _JOBS_ROLE")
    arguments = ["--run-id", due.execution_id, *due.arguments]
    with translate_aws_errors("the jobs' application"):
        response = _emr().start_job_run(
            applicationId=settings.jobs_application,
            clientToken=due.execution_id,
            executionRoleArn=settings.jobs_role,
            name=due.job,
            executionTimeoutMinutes=due.timeout_minutes,
            jobDriver={"sparkSubmit": {"entryPoint": f"{CODE}/{due.job}.py", "entryPointArguments": arguments}},
        )
    return str(response["jobRunId"])


def _emr() -> Any:
    return lake().client("emr-serverless")
