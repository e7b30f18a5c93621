"""Job runs of queries on EMR Serverless: started once by their id, looked at, ended."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from catalog.errors import Unavailable
from catalog.refusals import explained
from catalog.settings import Settings

ENTRY_POINT = "local:///opt/strandline/spark_jobs/query.py"
"""Where the jobs' image keeps the job (infra/images/jobs.Dockerfile)."""
TIMEOUT_MINUTES = 60
ENDED = ("SUCCESS", "FAILED", "CANCELLED")


class SparkRuns:
    """The application and role that the settings name. Without them nothing is submitted."""

    def __init__(self, client: Any, settings: Settings) -> None:
        self._emr = client
        self._application, self._role = settings.jobs_application, settings.jobs_role

    def start(self, query_id: str) -> str:
        """The run that does the query; the same one however often it is asked for."""
        if self._application is None or self._role is None:
            raise Unavailable(
                "this lake has no Spark for queries: set STRANDLINE_JOBS_APPLICATION and STRANDLINE_JOBS_ROLE, or "
                "narrow the query"
            )
        with explained("the jobs' application"):
            answer = self._emr.start_job_run(
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
        return str(answer["jobRunId"])

    def state(self, job_run_id: str) -> tuple[str, str]:
        """EMR's state of the run, and what it says about it."""
        with explained(f"job run {job_run_id}"):
            found = self._emr.get_job_run(applicationId=self._application, jobRunId=job_run_id)["jobRun"]
        return str(found["state"]), str(found.get("stateDetails", ""))

    def cancel(self, job_run_id: str) -> None:
        """Asks the run to end; one that has ended already is no error."""
        with explained(f"job run {job_run_id}"):
            try:
                self._emr.cancel_job_run(applicationId=self._application, jobRunId=job_run_id)
            except ClientError as error:
                if error.response["Error"]["Code"] not in ("ValidationException", "ResourceNotFoundException"):
                    raise
