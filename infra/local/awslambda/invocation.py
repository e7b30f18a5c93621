"""What a caller of Lambda gets: a finished invocation, or the reason why there was none."""

from __future__ import annotations

from dataclasses import dataclass


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
    code = "ResourceNotFoundException"
