"""How the parts of the embedded cloud call a function, and what a call that was refused tells them.

Only the seam: the workers stand behind `Invoke`, the gateway, the bus and the schedules in front of it.
"""

from __future__ import annotations

from typing import Protocol


class Invocation(Protocol):
    """A call that ran. `function_error` is Lambda's X-Amz-Function-Error: None, "Handled" or "Unhandled"."""

    @property
    def payload(self) -> bytes: ...

    @property
    def function_error(self) -> str | None: ...


class Invoke(Protocol):
    """Runs a function to its end and answers. Raises when the call itself was refused."""

    def __call__(self, function_name: str, payload: bytes, /) -> Invocation: ...


class InvokeAsync(Protocol):
    """Lambda takes an event to run later, and answers at once. Raises when it does not take it."""

    def __call__(self, function_name: str, payload: bytes, /) -> object: ...


def error_code(error: BaseException) -> str:
    """The AWS error code of a refused call: boto3's, moto's (`error_type`) or our own (`code`);
    else the class."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code", type(error).__name__))
    named = (getattr(error, name, None) for name in ("error_type", "code"))
    return next((code for code in named if isinstance(code, str)), type(error).__name__)


def is_throttled(error: BaseException) -> bool:
    code = error_code(error)
    return "Throttl" in code or code.startswith(("TooManyRequests", "LimitExceeded", "RequestLimitExceeded"))


def function_name_of(arn: str) -> str:
    """The function's name in its ARN, with or without a qualifier, or in an API Gateway invocation URI."""
    _, found, rest = arn.partition(":function:")
    if not found:
        raise ValueError(f"{arn} is not the ARN of a Lambda function")
    return rest.split("/")[0].split(":")[0]
