"""Job runs of queries on EMR Serverless: start, state, cancel."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from catalog.core.aws_errors import is_missing, translate_aws_errors
from catalog.core.errors import Unavailable
from catalog.core.settings import Settings

ENTRY_POINT = "local:///opt/strandline/spark_jobs/query.py"
"""The job's path in the jobs' image (infra/images/jobs.Dockerfile)."""
TIMEOUT_MINUTES = 60
ENDED = ("SUCCESS", "FAILED", "CANCELLED")


class SparkJobRuns:
    """Job runs in the application and with the role that the settings name. Without them nothing can be started."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._emr = client
        self._application, self._role = settings.jobs_application, settings.jobs_role

    def start(self, query_id: str) -> str:
        """Starts the query's job run and returns its id. Idempotent: the query id is the client token."""
        if self._application is None or self._role is None:
            raise Unavailable(
                "this lake has no Spark for queries: set STRANDLINE_JOBS_APPLICATION and STRANDLINE_JOBS_ROLE, or "
                "narrow the query"
            )
        with translate_aws_errors("the jobs' application"):
            response = self._emr.start_job_run(
                applicationId=self._application,
                clientToken=query_id,
                executionRoleArn=self._role,
                name="query",
                executionTimeoutMinutes=TIMEOUT_MINUTES,
                jobDriver={
                    "sparkSubmit": {
                        "entryPoint": ENTRY_POINT,
                        "entryPointArguments": ["--run-id", query_id, "--query-id", query_id],
                    }
                },
            )
        return str(response["jobRunId"])

    def state(self, job_run_id: str) -> tuple[str, str]:
        """EMR's state of the run, and its details."""
        with translate_aws_errors(f"job run {job_run_id}"):
            job_run = self._emr.get_job_run(applicationId=self._application, jobRunId=job_run_id)["jobRun"]
        return str(job_run["state"]), str(job_run.get("stateDetails", ""))

    def vcpu_hours(self, job_run_id: str) -> float | None:
        """What the run was billed for, once EMR says so: that may be a while after it has ended. None until then."""
        with translate_aws_errors(f"job run {job_run_id}"):
            job_run = self._emr.get_job_run(applicationId=self._application, jobRunId=job_run_id)["jobRun"]
        if job_run["state"] not in ENDED:
            return None
        billed = job_run.get("billedResourceUtilization") or {}
        total = job_run.get("totalResourceUtilization") or {}
        hours = billed.get("vCPUHour", total.get("vCPUHour"))
        return None if hours is None else float(hours)

    def cancel(self, job_run_id: str) -> None:
        """Cancels the run. No error if it has already ended."""
        with translate_aws_errors(f"job run {job_run_id}"):
            try:
                self._emr.cancel_job_run(applicationId=self._application, jobRunId=job_run_id)
            except ClientError as error:
                if not is_missing(error) and error.response["Error"]["Code"] != "ValidationException":
                    raise
