"""moto's EMR Serverless API, mended where it differs from the service, with job runs handed to a runner.

Each patch states what AWS does. Applied once per process; without a runner, StartJobRun is refused rather
than answered with a success that never was.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Protocol

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.emrserverless.exceptions import ValidationException
from moto.emrserverless.models import Application, EMRServerlessBackend, JobRun
from moto.emrserverless.responses import EMRServerlessResponse

RELEASE_LABEL = re.compile(r"emr-(spark-)?\d{1,2}\.\d{1,2}\.\d{1,2}(-\d{8})?")

# What CreateApplication may carry and moto forgets; GetApplication answers with it.
_FORGOTTEN = (
    "architecture",
    "imageConfiguration",
    "monitoringConfiguration",
    "runtimeConfiguration",
    "schedulerConfiguration",
    "workerTypeSpecifications",
)


class Runner(Protocol):
    def submit(self, application: Application, job: JobRun) -> None: ...

    def cancel(self, job: JobRun, *, grace_s: float = ...) -> None: ...


_runner: Runner | None = None


def serve_with(runner: Runner) -> None:
    """From now on job runs go to this one."""
    global _runner
    patch()
    _runner = runner


def withdraw(runner: Runner) -> None:
    """Takes this runner away; another that took its place meanwhile stays."""
    global _runner
    if _runner is runner:
        _runner = None


@functools.cache
def patch() -> None:
    """Applies every patch once; needed before a stack creates an application."""
    _applications()
    _start()
    _cancel()


def _applications() -> None:
    """AWS: an application is CREATED until something starts it, and knows labels such as emr-spark-8.1.0."""
    create, update = EMRServerlessBackend.create_application, EMRServerlessResponse.update_application
    respond = EMRServerlessResponse.create_application

    def create_application(self: EMRServerlessBackend, release_label: str, **given: Any) -> Application:
        if not RELEASE_LABEL.fullmatch(release_label):
            raise ValidationException(f"Release label '{release_label}' does not exist.")
        application = create(self, release_label="emr-7.0.0", **given)  # any label that moto takes
        application.release_label = release_label
        application.state = "CREATED"
        application.created_at = application.updated_at = utcnow()
        self.job_runs[application.id] = []
        return application

    def remember(response: EMRServerlessResponse, application: Any) -> None:
        for name in _FORGOTTEN:
            if (value := response._get_param(name)) is not None:
                setattr(application, re.sub(r"([A-Z])", r"_\1", name).lower(), value)

    def create_response(self: EMRServerlessResponse) -> ActionResult:
        answer = respond(self)
        remember(self, self.emrserverless_backend.applications[answer.result["applicationId"]])
        return answer

    def update_response(self: EMRServerlessResponse) -> ActionResult:
        answer = update(self)
        application = self.emrserverless_backend.applications[self._get_param("applicationId")]
        remember(self, application)
        application.updated_at = utcnow()
        return answer

    EMRServerlessBackend.create_application = create_application
    EMRServerlessResponse.create_application = create_response
    EMRServerlessResponse.update_application = update_response


def _start() -> None:
    """AWS: a client token names one run, however often sent; a run starts its application if it may."""
    start = EMRServerlessBackend.start_job_run

    def start_job_run(self: EMRServerlessBackend, application_id: str, client_token: str, **given: Any) -> JobRun:
        if _runner is None:
            raise JsonRESTError("InternalServerException", "nothing runs jobs here: no JobRunner was started")
        application = self.get_application(application_id)
        asked = (application_id, given)
        for known in self.job_runs[application_id]:
            if known.client_token == client_token:
                if known.asked != asked:
                    raise JsonRESTError("ConflictException", f"clientToken {client_token} was used for another job run")
                return known
        if application.state != "STARTED" and not (application.auto_start_configuration or {}).get("enabled", True):
            raise ValidationException(
                f"Application {application_id} is {application.state} and does not start by itself."
            )
        job = start(self, application_id=application_id, client_token=client_token, **given)
        job.asked = asked
        job.created_by = f"arn:aws:iam::{self.account_id}:user/embedded-cloud"
        job.created_at = job.updated_at = utcnow()
        job.mode, job.attempt = "BATCH", 1
        _runner.submit(application, job)
        return job

    EMRServerlessBackend.start_job_run = start_job_run


def _cancel() -> None:
    """AWS: CancelJobRun asks for an end and returns; the run is CANCELLING until its driver is gone."""

    def cancel_response(self: EMRServerlessResponse) -> ActionResult:
        application_id, job_run_id = self._get_param("applicationId"), self._get_param("jobRunId")
        job = self.emrserverless_backend.get_job_run(application_id, job_run_id)
        grace = self._get_param("shutdownGracePeriodInSeconds")
        if _runner is not None:
            _runner.cancel(job, **({"grace_s": float(grace)} if grace is not None else {}))
        return ActionResult({"applicationId": application_id, "jobRunId": job_run_id})

    EMRServerlessResponse.cancel_job_run = cancel_response
