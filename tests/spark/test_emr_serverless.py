"""EMR Serverless in the embedded cloud, through boto3: runs run, fail, wait, time out and are cancelled."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import Catalog

from catalog.core.settings import Settings
from infra.local.emr import api as emr_api
from infra.local.emr.driver import last_error
from infra.local.emr.runner import JobRunner
from infra.local.endpoint import Endpoint
from spark_jobs.session import ROOT
from tests.spark.application import JOBS, PATIENCE, Cloud, alive
from tests.waiting import wait_until

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def runner(endpoint: Endpoint) -> Iterator[JobRunner]:
    started = JobRunner(endpoint, minute_s=0.4)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def cloud(endpoint: Endpoint, settings: Settings, runner: JobRunner) -> Cloud:
    return Cloud(endpoint, settings.bucket, runner)


LONG = 5000  # minutes of 0.4 s each


def test_a_job_writes_a_table(cloud: Cloud, iceberg: Catalog, namespace: str) -> None:
    assert cloud.emr.get_application(applicationId=cloud.application)["application"]["state"] == "CREATED"
    run = cloud.start(
        f"{JOBS}/write_rows.py",
        f"{namespace}.rows",
        "3",
        name="write rows",
        executionTimeoutMinutes=LONG,
        parameters="--conf spark.strandline.submit='s p' --executor-memory 8g "
        "--conf spark.emr-serverless.driverEnv.GREETING=hello",
        configurationOverrides={
            "applicationConfiguration": [
                {
                    "classification": "spark-defaults",
                    "properties": {"spark.strandline.run": "r", "spark.strandline.submit": "r"},
                }
            ],
            "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": f"s3://{cloud.bucket}/logs/"}},
        },
    )
    job = cloud.ended(run)
    assert (job["state"], job["stateDetails"]) == ("SUCCESS", ""), cloud.runner.output(run)[1]
    assert cloud.runner.history(run) == ["SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "SUCCESS"]
    assert job["createdAt"] <= job["startedAt"] < job["endedAt"]
    assert job["billedResourceUtilization"]["vCPUHour"] >= job["totalResourceUtilization"]["vCPUHour"] >= 0
    assert job["billedResourceUtilization"]["vCPUHour"] >= 0.13  # a driver and an executor, for a minute at least
    assert cloud.emr.get_application(applicationId=cloud.application)["application"]["state"] == "STARTED"

    rows = iceberg.load_table(f"{namespace}.rows").scan().to_arrow().to_pylist()
    assert sorted(rows, key=str) == [{"id": n, "text": f"row {n}"} for n in range(3)]
    log = cloud.object(f"logs/applications/{cloud.application}/jobs/{run}/SPARK_DRIVER/stdout.gz")
    assert log is not None
    seen = json.loads(gzip.decompress(log).decode().splitlines()[-1])
    # The job's own --conf is stronger than its overrides, those than the application's settings.
    expected = {"application": "a", "run": "r", "submit": "s p", "variable": "hello", "as": "job.write-rows"}
    assert seen == expected


def test_a_job_that_raises_is_failed_with_its_message(cloud: Cloud) -> None:
    job = cloud.ended(cloud.start(f"{JOBS}/fail.py"))
    assert job["state"] == "FAILED"
    assert "exit code 1" in job["stateDetails"]
    assert "ValueError: note 17 has no title" in job["stateDetails"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (f"{JOBS}/missing.py", "does not exist"),
        ("s3://spark-tests/missing.py", "could not read"),
        ("https://example.org/job.py", "not an s3://, file:// or local:// URL"),
    ],
)
def test_a_missing_script_is_failed_clearly(cloud: Cloud, script: str, says: str) -> None:
    job = cloud.ended(cloud.start(script))
    assert job["state"] == "FAILED"
    assert script in job["stateDetails"] and says in job["stateDetails"]


def test_a_script_may_lie_in_s3(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket=cloud.bucket, Key="code/hello.py", Body=b"import sys\nprint(sys.argv[1:])\n")
    run = cloud.start(f"s3://{cloud.bucket}/code/hello.py", "a b", "c")
    assert cloud.ended(run)["state"] == "SUCCESS"
    assert cloud.runner.output(run)[0] == "['a b', 'c']\n"


def test_an_unknown_option_is_refused_rather_than_ignored(cloud: Cloud) -> None:
    job = cloud.ended(cloud.start(f"{JOBS}/fail.py", parameters="--conf a=b --speed 9"))
    assert job["state"] == "FAILED" and "--speed" in job["stateDetails"]


def test_cancel_stops_a_long_run_and_leaves_no_process(cloud: Cloud) -> None:
    run, group = cloud.hang("--spark")
    assert alive(group) and cloud.job(run)["state"] == "RUNNING"
    cloud.cancel(run)
    assert cloud.job(run)["state"] in ("CANCELLING", "CANCELLED")
    assert cloud.ended(run)["state"] == "CANCELLED"
    assert not alive(group)
    assert cloud.runner.history(run)[-2:] == ["CANCELLING", "CANCELLED"]


def test_runs_wait_in_line_and_a_waiting_one_can_be_cancelled(cloud: Cloud) -> None:
    first, group = cloud.hang()
    second, third = cloud.start(f"{JOBS}/fail.py"), cloud.start(f"{JOBS}/fail.py")
    assert cloud.job(second)["state"] == cloud.job(third)["state"] == "QUEUED"
    cloud.cancel(second)
    assert cloud.ended(second)["state"] == "CANCELLED"
    assert alive(group)
    cloud.cancel(first)
    assert cloud.ended(third)["state"] == "FAILED"
    assert "RUNNING" not in cloud.runner.history(second)
    listed = cloud.emr.list_job_runs(applicationId=cloud.application, states=["CANCELLED"])["jobRuns"]
    assert {first, second} <= {job["id"] for job in listed} and third not in {job["id"] for job in listed}


def test_a_run_ends_when_its_time_is_over(cloud: Cloud) -> None:
    run = cloud.start(f"{JOBS}/hang.py", cloud.bucket, "unused", executionTimeoutMinutes=5)
    job = cloud.ended(run)
    assert job["state"] == "CANCELLED" and "5 minutes" in job["stateDetails"]


def test_a_client_token_names_one_run(cloud: Cloud) -> None:
    first = cloud.start(f"{JOBS}/fail.py", clientToken="once")
    assert cloud.start(f"{JOBS}/fail.py", clientToken="once") == first
    with pytest.raises(ClientError, match="ConflictException"):
        cloud.start(f"{JOBS}/hang.py", clientToken="once")
    cloud.ended(first)
    runs = cloud.emr.get_paginator("list_job_runs").paginate(applicationId=cloud.application)
    assert [job["id"] for page in runs for job in page["jobRuns"]].count(first) == 1


def test_without_a_runner_nothing_is_said_to_have_run(
    endpoint: Endpoint, settings: Settings, runner: JobRunner
) -> None:
    short = JobRunner(endpoint)
    cloud = Cloud(endpoint, settings.bucket, short)
    run, group = cloud.hang()
    short.stop()
    assert not alive(group) and cloud.job(run)["state"] == "CANCELLED"
    try:
        with pytest.raises(ClientError, match="no JobRunner"):
            cloud.start(f"{JOBS}/fail.py")
    finally:
        emr_api.attach(runner)  # there is one place in a process, and the other tests' runner has it


CLOUD_OF_ITS_OWN = """
import sys
from infra.local.emr.runner import JobRunner
from infra.local.server import ApiServer
from tests.spark.application import Cloud
server = ApiServer()
server.start()
server.endpoint.client("s3").create_bucket(Bucket="lake")
_, group = Cloud(server.endpoint, "lake", JobRunner(server.endpoint)).hang("--spark")
print(group, flush=True)
sys.stdin.read()
"""


def test_a_killed_cloud_takes_its_jobs_along() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CLOUD_OF_ITS_OWN],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    group = int(process.stdout.readline())
    assert alive(group)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not alive(group), "the driver and its JVM to be gone", PATIENCE)


def test_the_error_of_a_driver_is_its_exception_not_its_last_line() -> None:
    stderr = """WARN something
Traceback (most recent call last):
  File "job.py", line 3, in <module>
    main()
catalog.core.errors.Invalid: the settings are not usable:
  STRANDLINE_BUCKET: Field required

JVM stacktrace: ...
26/01/01 INFO ShutdownHookManager: bye
"""
    expected = "catalog.core.errors.Invalid: the settings are not usable: STRANDLINE_BUCKET: Field required"
    assert last_error(stderr) == expected
    assert last_error("job.py: no title\n\n") == "job.py: no title"
