"""One EMR Serverless application with short ways to use it, for tests of what really runs behind the API."""

from __future__ import annotations

import os
import uuid
from typing import Any

from infra.local.emr.runner import JobRunner
from infra.local.endpoint import ACCOUNT, Endpoint
from spark_jobs.releases import EMR_ICEBERG_JAR, RELEASE_LABEL
from tests.waiting import wait_until

JOBS = "local:///opt/strandline/tests/spark/jobs"
ENDED = {"SUCCESS", "FAILED", "CANCELLED"}
PATIENCE = 300.0


class Cloud:
    """One application, and short ways to use it."""

    def __init__(self, endpoint: Endpoint, bucket: str, runner: JobRunner) -> None:
        self.runner, self.bucket = runner, bucket
        self.emr, self.s3 = endpoint.client("emr-serverless"), endpoint.client("s3")
        variable = "spark.emr-serverless.driverEnv."
        self.application = self.emr.create_application(
            name="jobs",
            releaseLabel=RELEASE_LABEL,
            type="SPARK",
            runtimeConfiguration=[
                {
                    "classification": "spark-defaults",
                    "properties": {
                        "spark.jars": EMR_ICEBERG_JAR,
                        "spark.driver.memory": "14g",
                        "spark.dynamicAllocation.initialExecutors": "1",
                        "spark.dynamicAllocation.maxExecutors": "1",
                        "spark.strandline.application": "a",
                        "spark.strandline.run": "a",
                        "spark.strandline.submit": "a",
                        f"{variable}STRANDLINE_BUCKET": bucket,
                        f"{variable}AWS_REGION": endpoint.region,
                    },
                }
            ],
        )["applicationId"]

    def start(self, script: str, *arguments: str, **more: Any) -> str:
        parameters = more.pop("parameters", None)
        driver = {"entryPoint": script, "entryPointArguments": list(arguments)}
        if parameters:
            driver["sparkSubmitParameters"] = parameters
        answer = self.emr.start_job_run(
            applicationId=self.application,
            executionRoleArn=f"arn:aws:iam::{ACCOUNT}:role/job",
            jobDriver={"sparkSubmit": driver},
            **{"name": "a job", **more},
        )
        return str(answer["jobRunId"])

    def job(self, run: str) -> dict[str, Any]:
        answer: dict[str, Any] = self.emr.get_job_run(applicationId=self.application, jobRunId=run)["jobRun"]
        return answer

    def ended(self, run: str) -> dict[str, Any]:
        return wait_until(lambda: job if (job := self.job(run))["state"] in ENDED else None, f"{run} to end", PATIENCE)

    def cancel(self, run: str) -> None:
        self.emr.cancel_job_run(applicationId=self.application, jobRunId=run)

    def object(self, key: str) -> bytes | None:
        try:
            body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None
        return body

    def hang(self, *options: str) -> tuple[str, int]:
        """A run that is up and will not end by itself, and its process group."""
        key = f"hanging/{uuid.uuid4()}"
        run = self.start(f"{JOBS}/hang.py", self.bucket, key, *options)
        return run, int(wait_until(lambda: self.object(key), "the job to be up", PATIENCE))


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
