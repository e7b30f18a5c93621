"""Runs EMR Serverless job runs on local Spark drivers, with the states of the service.

moto reports SUCCESS at once and runs nothing. `JobRunner` implements StartJobRun, GetJobRun, ListJobRuns and
CancelJobRun instead; `submit` and `driver` translate and run a driver. One per process, like moto's backends.
"""

from __future__ import annotations

import gzip
import json
import queue
import re
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlparse

from botocore.exceptions import BotoCoreError, ClientError
from moto.core.utils import utcnow
from moto.emrserverless.models import Application, JobRun

from infra.local.emr import api as emr_api
from infra.local.emr.capacity import Capacity
from infra.local.emr.driver import Driver, last_error
from infra.local.emr.submit import NotRunnable, plan
from infra.local.endpoint import Endpoint, access_key
from infra.local.quotas import quotas
from spark_jobs.session import scratch_directory

_MAX_STATE_DETAILS = 256  # the API's limit
_FINAL_STATES = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
_POLL_SECONDS = 0.1  # the delay until a cancellation or a timeout takes effect
_GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL, by default


class JobRunner:
    """Runs job runs in the order of StartJobRun, `max_concurrent` at a time; the others are QUEUED.

    Serves the EMR Serverless API of this process from its creation until `stop`. `minute_s` is the length of a minute
    of `executionTimeoutMinutes`.
    """

    def __init__(self, endpoint: Endpoint, *, max_concurrent: int = 1, minute_s: float = 60.0) -> None:
        self._endpoint = endpoint
        self._minute_s = minute_s
        self._lock = threading.RLock()
        self._waiting: queue.SimpleQueue[_Run | None] = queue.SimpleQueue()
        self._runs: dict[str, _Run] = {}
        self._threads = [
            threading.Thread(target=self._work, name=f"emr-{slot}", daemon=True) for slot in range(max_concurrent)
        ]
        for thread in self._threads:
            thread.start()
        emr_api.attach(self)

    def stop(self) -> None:
        """Ends every driver; unfinished job runs become CANCELLED. Leaves no process behind."""
        emr_api.detach(self)
        for run in list(self._runs.values()):
            self.cancel(run.job, grace_s=0, reason="the embedded cloud was stopped")
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(timeout=30)

    def history(self, job_run_id: str) -> list[str]:
        """The states that a job run went through; polling GetJobRun may miss some."""
        with self._lock:
            return list(self._runs[job_run_id].history)

    def role_of(self, principal: str) -> str | None:
        """The role of the job runs with this principal, given as an access key id; None if there is none."""
        with self._lock:
            runs = [run for run in self._runs.values() if access_key(run.principal) == principal]
        return str(runs[-1].job.execution_role_arn) if runs else None

    def output(self, job_run_id: str) -> tuple[str, str]:
        """The driver's stdout and stderr so far, the last megabyte of each."""
        driver = self._runs[job_run_id].driver
        return (driver.stdout.text(), driver.stderr.text()) if driver else ("", "")

    # Called by the API.

    def submit(self, application: Application, job: JobRun) -> None:
        run = _Run(application, job)
        with self._lock:
            unfinished = sum(other.job.state not in _FINAL_STATES for other in self._runs.values())
            self._runs[job.id] = run
            self._enter(run, "SUBMITTED")
            if unfinished >= len(self._threads):
                self._enter(run, "QUEUED")
            self._waiting.put(run)

    def cancel(
        self, job: JobRun, *, grace_s: float = _GRACE_SECONDS, reason: str = "cancelled by CancelJobRun"
    ) -> None:
        """Returns at once. Does nothing to a job run that has ended."""
        run = self._runs[job.id]
        with self._lock:
            if job.state in _FINAL_STATES or run.cancelled:
                return
            run.cancelled, run.grace_s = reason, grace_s
            self._enter(run, "CANCELLING")
            if run.started is None:  # no thread runs it, and none will
                self._enter(run, "CANCELLED", reason)

    # Run on the runner's threads.

    def _work(self) -> None:
        while (run := self._waiting.get()) is not None:
            with self._lock:
                if run.cancelled:
                    continue
                run.started = time.monotonic()
                self._enter(run, "PENDING")
                run.application.state = "STARTED"
                self._enter(run, "SCHEDULED")
            state, details = "FAILED", "the embedded cloud failed"
            try:
                state, details = self._run(run)
            except NotRunnable as error:
                details = str(error)
            except Exception as error:  # any error ends the job run, and the thread continues
                details = f"the embedded cloud could not run this job: {type(error).__name__}: {error}"
            finally:
                with self._lock:
                    if run.cancelled:
                        state, details = "CANCELLED", run.cancelled
                    self._enter(run, state, details)

    def _run(self, run: _Run) -> tuple[str, str]:
        job = run.job
        with scratch_directory() as scratch:
            submission = plan(job.job_driver or {}, run.spark_defaults(), self._endpoint, run.principal, scratch)
            with self._lock:
                if run.cancelled:
                    return "CANCELLED", run.cancelled
                self._take_capacity(run, submission.capacity)
                run.driver = Driver(submission)
                self._enter(run, "RUNNING")
                job.started_at = job.updated_at
            code = self._watch(run, run.driver)
        self._deliver_logs(run, run.driver)
        if code == 0:
            return "SUCCESS", ""
        error = last_error(run.driver.stderr.text())
        return "FAILED", f"Job failed with exit code {code}. Last exception: {error}"

    def _take_capacity(self, run: _Run, capacity: Capacity) -> None:
        """AWS: the vCPUs of all workers of an account have a quota. Raises NotRunnable if the run does not fit."""
        quota = quotas().emr_vcpus
        used = sum(other.vcpus for other in self._runs.values() if other.job.state not in _FINAL_STATES)
        run.vcpus = capacity.vcpus(quota)
        if used + run.vcpus > quota:
            needed, run.vcpus = run.vcpus, 0
            raise NotRunnable(
                f"the run may grow to {needed} vCPU, other runs have {used}, and the account's quota is {quota}: limit "
                "spark.dynamicAllocation.maxExecutors"
            )

    def _watch(self, run: _Run, driver: Driver) -> int | None:
        assert run.started is not None
        minutes = run.job.execution_timeout_minutes
        deadline = run.started + minutes * self._minute_s
        try:
            while (code := driver.wait(_POLL_SECONDS)) is None and not run.cancelled:
                if time.monotonic() > deadline:
                    self.cancel(run.job, reason=f"timed out: it ran for more than {minutes} minutes")
        finally:
            driver.end(run.grace_s if run.cancelled else 0)
        return code

    def _deliver_logs(self, run: _Run, driver: Driver) -> None:
        uri = run.log_uri()
        if uri is None:
            return
        prefix = uri.path.strip("/") + "/" if uri.path.strip("/") else ""
        folder = f"{prefix}applications/{run.job.application_id}/jobs/{run.job.id}/SPARK_DRIVER"
        s3 = self._endpoint.client("s3", "emr-serverless")
        for name, tail in (("stdout", driver.stdout), ("stderr", driver.stderr)):
            with suppress(s3.exceptions.ClientError):  # EMR does not fail a job run whose logs it cannot deliver
                body = gzip.compress(tail.text().encode())
                s3.put_object(Bucket=uri.netloc, Key=f"{folder}/{name}.gz", Body=body)

    def _enter(self, run: _Run, state: str, details: str = "") -> None:
        with self._lock:
            job, now = run.job, utcnow()
            run.history.append(state)
            if run.started is not None and state == "PENDING":
                job.queued_duration_milliseconds = int((now - job.created_at).total_seconds() * 1000)
            if state in _FINAL_STATES:
                job.ended_at = now
                if started := getattr(job, "started_at", None):
                    seconds = (now - started).total_seconds()
                    job.total_execution_duration_seconds = round(seconds)
                    job.total_resource_utilization = _utilization(run, seconds)
                    # Billed: a minute at least for each worker.
                    job.billed_resource_utilization = _utilization(run, max(seconds, 60.0))
            # Last: who reads the final state reads what the run used, too.
            job.state, job.state_details, job.updated_at = state, details[:_MAX_STATE_DETAILS], now
            if state in _FINAL_STATES:
                self._put_state_event(run)

    def _put_state_event(self, run: _Run) -> None:
        """Sends the final state to EventBridge (EMR sends every state). Ignores a failed PutEvents."""
        job = run.job
        detail = {
            "jobRunId": job.id,
            "jobRunName": job.name,
            "applicationId": job.application_id,
            "state": job.state,
            "previousState": run.history[-2],
        }
        entry = {
            "Source": "aws.emr-serverless",
            "DetailType": "EMR Serverless Job Run State Change",
            "Detail": json.dumps(detail),
        }
        with suppress(ClientError, BotoCoreError):
            self._endpoint.client("events", "emr-serverless").put_events(Entries=[entry])


def _utilization(run: _Run, seconds: float) -> dict[str, float]:
    """AWS: hours of all workers' vCPUs, memory and storage. Here all workers that the run may have count, all along."""
    hours = seconds / 3600
    return {"vCPUHour": round(run.vcpus * hours, 3), "memoryGBHour": 0.0, "storageGBHour": 0.0}


class _Run:
    """One job run: the API's record of it, and its driver."""

    def __init__(self, application: Application, job: JobRun) -> None:
        self.application = application
        self.job = job
        self.history: list[str] = []
        self.started: float | None = None
        self.driver: Driver | None = None
        self.vcpus = 0
        self.cancelled = ""
        self.grace_s = _GRACE_SECONDS

    @property
    def principal(self) -> str:
        """`job/<name>`, with only characters that an access key id may have."""
        return "job/" + re.sub(r"[^\w.-]+", "-", self.job.name or self.job.id)

    def spark_defaults(self) -> list[Mapping[str, str]]:
        """The application's runtime configuration, then the job run's overrides, which take precedence."""
        overrides = self.job.configuration_overrides or {}
        layers: Iterable[Any] = (
            getattr(self.application, "runtime_configuration", None),
            overrides.get("applicationConfiguration"),
        )
        return [
            part.get("properties") or {}
            for layer in layers
            for part in layer or ()
            if part["classification"] == "spark-defaults"
        ]

    def log_uri(self) -> Any:
        overrides: Mapping[str, Any] = self.job.configuration_overrides or {}
        for layer in (
            overrides.get("monitoringConfiguration"),
            getattr(self.application, "monitoring_configuration", None),
        ):
            if uri := ((layer or {}).get("s3MonitoringConfiguration") or {}).get("logUri"):
                return urlparse(uri)
        return None
