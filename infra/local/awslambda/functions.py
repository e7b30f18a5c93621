"""Deployed functions, read from moto, and patches that keep the fields of a function that moto drops.

moto keeps only what it needs to start a Docker container; the patches store the other fields on its objects.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.awslambda.exceptions import InvalidParameterValueException, UnknownFunctionException
from moto.awslambda.models import ImageConfig, LambdaBackend, LambdaFunction
from moto.awslambda.utils import get_backend

from infra.local.awslambda.invocation import FunctionNotFound
from infra.local.endpoint import Endpoint
from infra.local.quotas import UNRESERVED_MINIMUM, quotas


class NoHandlerError(ValueError):
    """An image function without ImageConfig.Command."""

    code = "InvalidParameterValueException"


@dataclass(frozen=True)
class Function:
    """The configuration that a worker runs with. Equal configurations may share a worker."""

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
            f"{deployed.function_name} is an image function without ImageConfig.Command: set it to the handler's name"
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
def patch_functions() -> None:
    """Applied once per process. AWS: these fields are part of a function and survive an update."""
    create, update = LambdaFunction.__init__, LambdaFunction.update_configuration

    def initialise(self: LambdaFunction, account_id: str, spec: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        create(self, account_id, spec, *args, **kwargs)
        _store_dropped_fields(self, spec)

    def update_configuration(self: LambdaFunction, updates: dict[str, Any]) -> dict[str, Any]:
        _store_dropped_fields(self, updates)
        if "ImageConfig" in updates:
            self.image_config = ImageConfig(updates["ImageConfig"])
        if "TracingConfig" in updates:
            self.tracing_config = updates["TracingConfig"]
        changed: dict[str, Any] = update(self, updates)
        return changed

    def copy_shallow(self: LambdaFunction, memo: dict[int, Any]) -> LambdaFunction:
        # ListFunctions deep-copies each function with all its log lines, while workers append more.
        return copy.copy(self)

    LambdaBackend.put_function_concurrency = _put_function_concurrency
    LambdaFunction.__init__ = initialise
    LambdaFunction.update_configuration = update_configuration
    LambdaFunction.__deepcopy__ = copy_shallow


def _put_function_concurrency(self: LambdaBackend, function_name: str, reserved_concurrency: str) -> str:
    """AWS: 100 executions stay unreserved, or all of an account that has fewer
    (docs.aws.amazon.com/lambda/latest/dg/configuration-concurrency.html)."""
    limit = quotas().lambda_concurrency
    others = [f for f in self.list_functions() if f.reserved_concurrency and f.function_name != function_name]
    reserved = int(reserved_concurrency) + sum(int(function.reserved_concurrency) for function in others)
    minimum = min(UNRESERVED_MINIMUM, limit)
    if limit - reserved < minimum:
        raise InvalidParameterValueException(
            "Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution "
            f"below its minimum value of [{minimum}]."
        )
    self.get_function(function_name).reserved_concurrency = reserved_concurrency
    return reserved_concurrency


def _store_dropped_fields(self: Any, spec: dict[str, Any]) -> None:
    if "DeadLetterConfig" in spec:
        self.dead_letter_arn = spec["DeadLetterConfig"].get("TargetArn")
    if "LoggingConfig" in spec:
        self.logging_config = spec["LoggingConfig"]
