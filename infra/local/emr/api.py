"""Patches for moto's EMR Serverless API, which pass job runs to a runner.

Each patch states what AWS does. They are applied once per process. Without a runner StartJobRun fails, where moto
would report a success that never happened.
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

# Parameters of CreateApplication that moto drops; GetApplication returns them.
_DROPPED = (
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


def attach(runner: Runner) -> None:
    """Passes job runs to `runner` from now on, instead of any runner attached before."""
    global _runner
    patch()
    _runner = runner


def detach(runner: Runner) -> None:
    """Undoes `attach`, unless another runner was attached since."""
    global _runner
    if _runner is runner:
        _runner = None


@functools.cache
def patch() -> None:
    """Applies every patch, once; needed before a stack creates an application."""
    _patch_applications()
    _patch_start_job_run()
    _patch_cancel_job_run()


def _patch_applications() -> None:
    """AWS: an application is CREATED until it is started, and release labels such as emr-spark-8.1.0 exist."""
    create, update = EMRServerlessBackend.create_application, EMRServerlessResponse.update_application
    respond = EMRServerlessResponse.create_application

    def create_application(self: EMRServerlessBackend, release_label: str, **parameters: Any) -> Application:
        if not RELEASE_LABEL.fullmatch(release_label):
            raise ValidationException(f"Release label '{release_label}' does not exist.")
        application = create(self, release_label="emr-7.0.0", **parameters)  # any label that moto accepts
        application.release_label = release_label
        application.state = "CREATED"
        application.created_at = application.updated_at = utcnow()
        self.job_runs[application.id] = []
        return application

    def store_dropped(request: EMRServerlessResponse, application: Any) -> None:
        for name in _DROPPED:
            if (value := request._get_param(name)) is not None:
                setattr(application, re.sub(r"([A-Z])", r"_\1", name).lower(), value)

    def create_response(self: EMRServerlessResponse) -> ActionResult:
        response = respond(self)
        store_dropped(self, self.emrserverless_backend.applications[response.result["applicationId"]])
        return response

    def update_response(self: EMRServerlessResponse) -> ActionResult:
        response = update(self)
        application = self.emrserverless_backend.applications[self._get_param("applicationId")]
        store_dropped(self, application)
        application.updated_at = utcnow()
        return response

    EMRServerlessBackend.create_application = create_application
    EMRServerlessResponse.create_application = create_response
    EMRServerlessResponse.update_application = update_response


def _patch_start_job_run() -> None:
    """AWS: a repeated client token returns the first job run; a job run starts its application if auto-start is on."""
    start = EMRServerlessBackend.start_job_run

    def start_job_run(self: EMRServerlessBackend, application_id: str, client_token: str, **parameters: Any) -> JobRun:
        if _runner is None:
            raise JsonRESTError("InternalServerException", "no JobRunner is running: create one to run jobs")
        application = self.get_application(application_id)
        request = (application_id, parameters)
        for job in self.job_runs[application_id]:
            if job.client_token == client_token:
                if job.request != request:
                    raise JsonRESTError("ConflictException", f"clientToken {client_token} was used for another job run")
                return job
        if application.state != "STARTED" and not (application.auto_start_configuration or {}).get("enabled", True):
            raise ValidationException(
                f"Application {application_id} is {application.state} and its auto-start is disabled."
            )
        job = start(self, application_id=application_id, client_token=client_token, **parameters)
        job.request = request
        job.created_by = f"arn:aws:iam::{self.account_id}:user/embedded-cloud"
        job.created_at = job.updated_at = utcnow()
        job.mode, job.attempt = "BATCH", 1
        _runner.submit(application, job)
        return job

    EMRServerlessBackend.start_job_run = start_job_run


def _patch_cancel_job_run() -> None:
    """AWS: CancelJobRun returns at once; the job run is CANCELLING until its driver has exited."""

    def cancel_response(self: EMRServerlessResponse) -> ActionResult:
        application_id, job_run_id = self._get_param("applicationId"), self._get_param("jobRunId")
        job = self.emrserverless_backend.get_job_run(application_id, job_run_id)
        grace = self._get_param("shutdownGracePeriodInSeconds")
        if _runner is not None:
            _runner.cancel(job, **({"grace_s": float(grace)} if grace is not None else {}))
        return ActionResult({"applicationId": application_id, "jobRunId": job_run_id})

    EMRServerlessResponse.cancel_job_run = cancel_response
