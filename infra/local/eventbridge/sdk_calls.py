"""EventBridge Scheduler's universal targets: any AWS API action, named by an ARN and called with the schedule's input.

Scheduler's parameters are in PascalCase for every service; boto3 expects the names of the service's model.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.model import ListShape, MapShape, Shape, StructureShape

from infra.local.endpoint import Endpoint

PREFIX = "arn:aws:scheduler:::aws-sdk:"

# Scheduler names services by their SDK id; these are the ones whose boto3 name differs by more than hyphens.
_RENAMED = {"cloudwatchlogs": "logs", "eventbridge": "events", "sfn": "stepfunctions"}


class InvalidCallError(Exception):
    """The target names no API action, or its input does not fit the action. Retries cannot succeed."""

    code = "ValidationException"


def call(endpoint: Endpoint, target_arn: str, text: str, principal: str) -> dict[str, Any]:
    """Calls `arn:aws:scheduler:::aws-sdk:<service>:<action>` with the JSON `text`; raises as boto3 does."""
    service, _, action = target_arn.removeprefix(PREFIX).partition(":")
    client = endpoint.client(_service(service), principal)
    model = client.meta.service_model
    operation = next((name for name in model.operation_names if name.lower() == action.lower()), None)
    if operation is None:
        raise InvalidCallError(f"{service} has no action {action} (target {target_arn})")
    try:
        scheduler_input = json.loads(text or "{}")
    except ValueError as error:
        raise InvalidCallError(f"the input of {target_arn} is not JSON: {error}") from error
    shape = model.operation_model(operation).input_shape
    parameters = _fit(scheduler_input, shape, action) if shape else {}
    response: dict[str, Any] = getattr(client, xform_name(operation))(**parameters)
    return response


def _fit(value: Any, shape: Shape, path: str) -> Any:
    """The value with member names as in the model. Raises InvalidCallError for an unknown name, as AWS rejects it."""
    if isinstance(shape, StructureShape) and isinstance(value, dict) and shape.members:
        names = {name.lower(): name for name in shape.members}
        fitted = {}
        for parameter, part in value.items():
            name = names.get(parameter.lower())
            if name is None:
                raise InvalidCallError(f"{path} has no parameter {parameter}; it has {', '.join(shape.members)}")
            fitted[name] = _fit(part, shape.members[name], f"{path}.{name}")
        return fitted
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [_fit(part, shape.member, f"{path}[{index}]") for index, part in enumerate(value)]
    if isinstance(shape, MapShape) and isinstance(value, dict):
        return {key: _fit(part, shape.value, f"{path}.{key}") for key, part in value.items()}
    if shape.type_name == "blob" and isinstance(value, str):
        return value.encode()
    return value


@cache
def _service(name: str) -> str:
    """boto3's name of a service: `emrserverless` is emr-serverless, `eventbridge` is events."""
    services = botocore.session.get_session().get_available_services()
    boto3_name = next((service for service in services if service.replace("-", "") == name), _RENAMED.get(name))
    if boto3_name is None:
        raise InvalidCallError(f"boto3 has no service {name}")
    return boto3_name
