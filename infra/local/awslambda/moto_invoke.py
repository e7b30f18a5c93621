"""Makes moto's Lambda API, and every moto service that invokes a function, use the running LambdaService."""

from __future__ import annotations

import base64
import functools
from typing import Any

from moto.awslambda.exceptions import LambdaClientError
from moto.awslambda.models import LambdaBackend, LambdaFunction

from infra.local.awslambda.invocation import Functions, Throttled

_service: Functions | None = None


class _TooManyRequestsError(LambdaClientError):
    code = 429

    def __init__(self, message: str) -> None:
        super().__init__("TooManyRequestsException", message)


def attach(service: Functions) -> None:
    """Makes moto invoke functions through `service`, instead of any service attached before."""
    global _service
    _service = service
    _patch()


def detach(service: Functions) -> None:
    """Undoes `attach`, unless another service was attached since."""
    global _service
    if _service is service:
        _service = None


@functools.cache
def _patch() -> None:
    delete = LambdaBackend.delete_function

    def delete_function(self: LambdaBackend, function_name: str, qualifier: str | None = None) -> None:
        name = self.get_function(function_name, qualifier).function_name
        delete(self, function_name, qualifier)
        if _service and qualifier is None:
            _service.retire(name)

    LambdaFunction.invoke = _invoke
    LambdaBackend.delete_function = delete_function


def _invoke(self: LambdaFunction, body: str | bytes, request_headers: Any, response_headers: Any) -> bytes:
    """Replaces moto's run in Docker.

    S3, SNS and CloudWatch Logs call this without headers, in the thread of another request: they invoke
    asynchronously, and do not wait.
    """
    if _service is None:
        raise LambdaClientError("ServiceException", "no Lambda service is running in this embedded cloud")
    payload = body.encode() if isinstance(body, str) else body
    invocation_type = request_headers.get("X-Amz-Invocation-Type") or "RequestResponse"
    trace_id = request_headers.get("X-Amzn-Trace-Id")
    if invocation_type == "DryRun":
        return b""
    if invocation_type == "Event" or not request_headers:
        _service.invoke_async(self.function_name, payload, trace_id=trace_id)
        return b""
    client_context = request_headers.get("X-Amz-Client-Context")
    try:
        invocation = _service.invoke(
            self.function_arn,
            payload,
            wait=False,
            trace_id=trace_id,
            client_context=base64.b64decode(client_context).decode() if client_context else None,
        )
    except Throttled as error:
        raise _TooManyRequestsError("Rate Exceeded.") from error
    response_headers["x-amz-log-result"] = base64.b64encode(invocation.log_tail.encode()).decode()
    response_headers["x-amz-executed-version"] = invocation.version
    if invocation.function_error:
        response_headers["x-amz-function-error"] = invocation.function_error
    return invocation.payload
