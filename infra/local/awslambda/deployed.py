"""A function as it is deployed, read from moto, and moto's Lambda mended so that nothing deployed is lost.

moto keeps what it needs to start a Docker container; what it drops is kept here, on its own objects.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.awslambda.exceptions import UnknownFunctionException
from moto.awslambda.models import ImageConfig, LambdaFunction
from moto.awslambda.utils import get_backend

from infra.local.awslambda.invocation import FunctionNotFound
from infra.local.endpoint import Endpoint


class NoHandlerError(ValueError):
    code = "InvalidParameterValueException"


@dataclass(frozen=True)
class Function:
    """What decides how a function runs. Two equal ones may share a worker."""

    name: str
    arn: str
    version: str
    handler: str
    environment: Mapping[str, str]
    timeout: float
    memory_mb: int
    code: str
    log_group: str
    log_format: str
    traced: bool

    @classmethod
    def of(cls, deployed: LambdaFunction) -> Function:
        logging: dict[str, str] = getattr(deployed, "logging_config", {})
        return cls(
            name=deployed.function_name,
            arn=deployed.function_arn,
            version=str(deployed.version),
            handler=_handler(deployed),
            environment={key: str(value) for key, value in deployed.environment_vars.items()},
            timeout=float(deployed.timeout),
            memory_mb=int(deployed.memory_size),
            code=deployed.code_sha_256,
            log_group=logging.get("LogGroup") or deployed.logs_group_name,
            log_format=logging.get("LogFormat") or "Text",
            traced=deployed.tracing_config.get("Mode") == "Active",
        )


def _handler(deployed: LambdaFunction) -> str:
    if deployed.package_type != "Image":
        return str(deployed.handler)
    if not deployed.image_config.cmd:
        raise NoHandlerError(
            f"{deployed.function_name} is an image without ImageConfig.Command, which names the handler"
        )
    return str(deployed.image_config.cmd[0])


def find_deployed(endpoint: Endpoint, name_or_arn: str) -> LambdaFunction:
    try:
        return get_backend(endpoint.account, endpoint.region).get_function(name_or_arn)
    except UnknownFunctionException as error:
        raise FunctionNotFound(f"{name_or_arn} is not deployed") from error


def reserved_concurrency(deployed: LambdaFunction) -> int | None:
    return None if deployed.reserved_concurrency is None else int(deployed.reserved_concurrency)


@functools.cache
def keep_what_moto_drops() -> None:
    """Applied once per process. AWS: these fields are part of a function and survive an update."""
    create, update = LambdaFunction.__init__, LambdaFunction.update_configuration

    def initialise(self: LambdaFunction, account_id: str, spec: dict[str, Any], *rest: Any, **named: Any) -> None:
        create(self, account_id, spec, *rest, **named)
        _keep(self, spec)

    def update_configuration(self: LambdaFunction, updates: dict[str, Any]) -> dict[str, Any]:
        _keep(self, updates)
        if "ImageConfig" in updates:
            self.image_config = ImageConfig(updates["ImageConfig"])
        if "TracingConfig" in updates:
            self.tracing_config = updates["TracingConfig"]
        changed: dict[str, Any] = update(self, updates)
        return changed

    def share_backends(self: LambdaFunction, memo: dict[int, Any]) -> LambdaFunction:
        # ListFunctions deep-copies each function, and with it every log line, while workers add more.
        return copy.copy(self)

    LambdaFunction.__init__ = initialise
    LambdaFunction.update_configuration = update_configuration
    LambdaFunction.__deepcopy__ = share_backends


def _keep(self: Any, spec: dict[str, Any]) -> None:
    if "DeadLetterConfig" in spec:
        self.dead_letter_arn = spec["DeadLetterConfig"].get("TargetArn")
    if "LoggingConfig" in spec:
        self.logging_config = spec["LoggingConfig"]
