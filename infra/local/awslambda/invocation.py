"""A function's invocation as the other services of the embedded cloud see it: callables, results and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from infra.local.endpoint import Endpoint


@dataclass(frozen=True)
class Invocation:
    """One finished invocation. `function_error` is None, or "Unhandled" with an error document as payload."""

    request_id: str
    payload: bytes
    function_error: str | None
    log_tail: str
    duration_ms: float
    version: str


class Throttled(Exception):
    """The function's reserved concurrency is used up."""

    code = "TooManyRequestsException"


class Stopped(Exception):
    """The service ended while the caller waited for a worker."""

    code = "ServiceException"


class FunctionNotFound(LookupError):
    """No function of this name is deployed."""

    code = "ResourceNotFoundException"


class Invoke(Protocol):
    """Invokes a function and returns its result, also when the function failed. Raises when Lambda rejects the call."""

    def __call__(self, function_name: str, payload: bytes, /) -> Invocation: ...


class InvokeAsync(Protocol):
    """Queues an event for a function and returns at once. Raises when Lambda rejects the call."""

    def __call__(self, function_name: str, payload: bytes, /) -> object: ...


class Functions(Protocol):
    """The deployed functions, as moto and the queue of asynchronous events use them: a `LambdaService`."""

    endpoint: Endpoint
    max_workers: int

    def invoke(
        self,
        function_name: str,
        payload: bytes,
        /,
        *,
        wait: bool = True,
        request_id: str | None = None,
        trace_id: str | None = None,
        client_context: str | None = None,
    ) -> Invocation: ...

    def invoke_async(self, function_name: str, payload: bytes, *, trace_id: str | None = None) -> str: ...

    def retire(self, function_name: str) -> None: ...


def error_code(error: BaseException) -> str:
    """The AWS error code of a rejected call: boto3's, moto's (`error_type`) or ours (`code`), else the class name."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", type(error).__name__))
    codes = (getattr(error, name, None) for name in ("error_type", "code"))
    return next((code for code in codes if isinstance(code, str)), type(error).__name__)


def is_throttled(error: BaseException) -> bool:
    code = error_code(error)
    return "Throttl" in code or code.startswith(("TooManyRequests", "LimitExceeded", "RequestLimitExceeded"))


def function_name_of(arn: str) -> str:
    """The function's name in its ARN, with or without a qualifier, or in an API Gateway invocation URI."""
    _, separator, name = arn.partition(":function:")
    if not separator:
        raise ValueError(f"{arn} is not the ARN of a Lambda function")
    return name.split("/")[0].split(":")[0]
