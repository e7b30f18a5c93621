"""The way from moto to the workers: its Lambda API and every service in it that calls a function end here."""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING, Any

from moto.awslambda.exceptions import LambdaClientError
from moto.awslambda.models import LambdaBackend, LambdaFunction

from infra.local.awslambda.invocation import Throttled

if TYPE_CHECKING:
    from infra.local.awslambda.service import LambdaService

_service: LambdaService | None = None


class _TooManyRequestsError(LambdaClientError):
    code = 429

    def __init__(self, message: str) -> None:
        super().__init__("TooManyRequestsException", message)


def route_to(service: LambdaService | None, unless_other_than: LambdaService | None = None) -> None:
    """moto's state is one per process, and so is the service that runs it: the one started last."""
    global _service
    if unless_other_than is not None and _service is not unless_other_than:
        return
    _service = service
    _patch()


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
    """Replaces moto's Docker run.

    S3, SNS and CloudWatch Logs call it in the thread of somebody else's request, with no headers: to them
    Lambda is asynchronous, so they never wait.
    """
    if _service is None:
        raise LambdaClientError("ServiceException", "no Lambda service is running in this embedded cloud")
    payload = body.encode() if isinstance(body, str) else body
    kind = request_headers.get("X-Amz-Invocation-Type") or "RequestResponse"
    trace_id = request_headers.get("X-Amzn-Trace-Id")
    if kind == "DryRun":
        return b""
    if kind == "Event" or not request_headers:
        _service.invoke_async(self.function_name, payload, trace_id=trace_id)
        return b""
    context = request_headers.get("X-Amz-Client-Context")
    try:
        done = _service.invoke(
            self.function_arn,
            payload,
            wait=False,
            trace_id=trace_id,
            client_context=base64.b64decode(context).decode() if context else None,
        )
    except Throttled as error:
        raise _TooManyRequestsError("Rate Exceeded.") from error
    response_headers["x-amz-log-result"] = base64.b64encode(done.log_tail.encode()).decode()
    response_headers["x-amz-executed-version"] = done.version
    if done.function_error:
        response_headers["x-amz-function-error"] = done.function_error
    return done.payload
