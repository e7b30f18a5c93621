"""EMR Serverless job runs that really run: the states of the service around a Spark driver on this machine.

moto answers SUCCESS at once and runs nothing. `JobRunner` takes its place behind StartJobRun, GetJobRun,
ListJobRuns and CancelJobRun; what a driver is on this machine is `spark_submit`'s and `spark_driver`'s
business. One per process, as moto's backends are.
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
from infra.local.emr.driver import Driver, last_error
from infra.local.emr.submit import NotRunnable, plan
from infra.local.endpoint import Endpoint
from spark_jobs.session import scratch_directory

_DETAILS = 256  # the longest stateDetails of the API
_ENDED = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
_TICK = 0.1  # how late a cancel or a time-out may be noticed
_GRACE = 2.0  # seconds between SIGTERM and SIGKILL when the caller names none


class JobRunner:
    """Runs what StartJobRun is asked for, `max_concurrent` at a time and the rest queued, in the order asked.

    From its making until `stop` it stands behind the EMR Serverless API of this process. `minute_s` is how
    long a minute of `executionTimeoutMinutes` lasts.
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
        emr_api.serve_with(self)

    def stop(self) -> None:
        """Ends every driver; runs that had not ended are CANCELLED. No process is left when this returns."""
        emr_api.withdraw(self)
        for run in list(self._runs.values()):
            self.cancel(run.job, grace_s=0, reason="the embedded cloud was stopped")
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(timeout=30)

    def history(self, job_run_id: str) -> list[str]:
        """The states a run went through: what polling GetJobRun may miss."""
        with self._lock:
            return list(self._runs[job_run_id].history)

    def output(self, job_run_id: str) -> tuple[str, str]:
        """The driver's stdout and stderr so far, the last megabyte of each."""
        driver = self._runs[job_run_id].driver
        return (driver.stdout.text(), driver.stderr.text()) if driver else ("", "")

    # What the API asks for.

    def submit(self, application: Application, job: JobRun) -> None:
        run = _Run(application, job)
        with self._lock:
            live = sum(other.job.state not in _ENDED for other in self._runs.values())
            self._runs[job.id] = run
            self._enter(run, "SUBMITTED")
            if live >= len(self._threads):
                self._enter(run, "QUEUED")
            self._waiting.put(run)

    def cancel(self, job: JobRun, *, grace_s: float = _GRACE, reason: str = "cancelled by CancelJobRun") -> None:
        """Returns at once; a run that already ended stays as it is."""
        run = self._runs[job.id]
        with self._lock:
            if job.state in _ENDED or run.cancelled:
                return
            run.cancelled, run.grace_s = reason, grace_s
            self._enter(run, "CANCELLING")
            if run.started is None:  # no slot is working on it, and none will
                self._enter(run, "CANCELLED", reason)

    # One slot.

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
            except Exception as error:  # whatever it was, a run must end and the slot must go on
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
                run.driver = Driver(submission)
                self._enter(run, "RUNNING")
                job.started_at = job.updated_at
            code = self._watch(run, run.driver)
        self._keep_logs(run, run.driver)
        if code == 0:
            return "SUCCESS", ""
        error = last_error(run.driver.stderr.text())
        return "FAILED", f"Job failed with exit code {code}. Last exception: {error}"

    def _watch(self, run: _Run, driver: Driver) -> int | None:
        assert run.started is not None
        minutes = run.job.execution_timeout_minutes
        deadline = run.started + minutes * self._minute_s
        try:
            while (code := driver.wait(_TICK)) is None and not run.cancelled:
                if time.monotonic() > deadline:
                    self.cancel(run.job, reason=f"timed out: it ran for more than {minutes} minutes")
        finally:
            driver.end(run.grace_s if run.cancelled else 0)
        return code

    def _keep_logs(self, run: _Run, driver: Driver) -> None:
        uri = run.log_uri()
        if uri is None:
            return
        prefix = uri.path.strip("/") + "/" if uri.path.strip("/") else ""
        folder = f"{prefix}applications/{run.job.application_id}/jobs/{run.job.id}/SPARK_DRIVER"
        s3 = self._endpoint.client("s3", "emr-serverless")
        for name, tail in (("stdout", driver.stdout), ("stderr", driver.stderr)):
            with suppress(s3.exceptions.ClientError):  # EMR does not fail a run whose logs it cannot deliver
                body = gzip.compress(tail.text().encode())
                s3.put_object(Bucket=uri.netloc, Key=f"{folder}/{name}.gz", Body=body)

    def _enter(self, run: _Run, state: str, details: str = "") -> None:
        with self._lock:
            job, now = run.job, utcnow()
            run.history.append(state)
            job.state, job.state_details, job.updated_at = state, details[:_DETAILS], now
            if run.started is not None and state == "PENDING":
                job.queued_duration_milliseconds = int((now - job.created_at).total_seconds() * 1000)
            if state in _ENDED:
                job.ended_at = now
                if started := getattr(job, "started_at", None):
                    job.total_execution_duration_seconds = round((now - started).total_seconds())
                self._announce(run)

    def _announce(self, run: _Run) -> None:
        """EMR tells EventBridge of every state; here of the last, and as there a run does not wait for who listens."""
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


class _Run:
    """One job run on its way: the API's record of it, and what stands behind."""

    def __init__(self, application: Application, job: JobRun) -> None:
        self.application = application
        self.job = job
        self.history: list[str] = []
        self.started: float | None = None
        self.driver: Driver | None = None
        self.cancelled = ""
        self.grace_s = _GRACE

    @property
    def principal(self) -> str:
        """`job/<name>`, of characters that an access key id may have."""
        return "job/" + re.sub(r"[^\w.-]+", "-", self.job.name or self.job.id)

    def spark_defaults(self) -> list[Mapping[str, str]]:
        """Weakest first: the application's runtime configuration, then the run's own overrides."""
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
