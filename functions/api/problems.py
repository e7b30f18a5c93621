"""Errors as problem+json (RFC 9457).

API Gateway's own errors (401, 413, 429, 503, 504) are `{"message": …}`: an HTTP API cannot be configured otherwise.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response
from pydantic import BaseModel, ConfigDict, Field

from catalog import LakeError
from catalog.access import Excess
from catalog.core.errors import KINDS, as_lake_error

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:strandline:"
MAX_FAULTS, MAX_DETAIL, MAX_NAME = 20, 4000, 200
"""What a problem says at most: it quotes what the caller sent, and Lambda makes an error of more than 6 MB."""

log = logging.getLogger(__name__)


class Fault(BaseModel):
    """One thing wrong with a request."""

    at: list[str | int] = Field(description="where: body, query or path, then the names and positions that lead to it")
    reason: str


class Problem(BaseModel):
    """What went wrong, to what, and what to do next."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="`urn:strandline:<kind>`, by which a program decides what to do next")
    title: str
    status: int
    detail: str = Field(description="the message for people")
    instance: str = Field(description="the request's id, as in the header X-Request-Id and in the logs")
    subject: str | None = Field(default=None, description="what it is about, such as a table's name")
    errors: list[Fault] = Field(default_factory=list)


class Refusal(Exception):
    """An error of HTTP itself: no identity, unknown path or method, body too large, unsupported media type."""

    def __init__(self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.headers = status, kind, detail, dict(headers or {})


def limit_refusal(excess: Excess) -> Refusal:
    """429, with the seconds after which the caller may try again."""
    detail = f"{excess.reason}: try again in {excess.retry_after_s} s"
    return Refusal(429, "too_many_requests", detail, {"Retry-After": str(excess.retry_after_s)})


STATUSES: dict[str, int] = {kind.name: kind.http_status for kind in KINDS}


def refusal_response(refusal: Refusal, instance: str) -> Response[str]:
    return _response(refusal.status, refusal.kind, refusal.detail, instance, headers=refusal.headers)


def error_response(error: Exception, instance: str) -> Response[str]:
    """The response for an error: a LakeError by its kind. Any other is a defect: it is logged, and not disclosed."""
    lake_error = as_lake_error(error)
    status, detail, headers = lake_error.kind.http_status, lake_error.message, dict[str, str]()
    if not isinstance(error, LakeError):
        log.exception("request failed", exc_info=error)
        detail = "the lake has an internal error: its operator finds the reason in the logs, by the instance"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request failed", extra={"error": lake_error.as_dict()}, exc_info=error)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    return _response(status, lake_error.kind.name, detail, instance, lake_error.subject, headers=headers)


def validation_response(errors: Sequence[Mapping[str, Any]], instance: str) -> Response[str]:
    """The response for pydantic's errors: the first ones, without the values, which may be secrets."""
    faults = [
        Fault(at=[_location(part) for part in problem["loc"][:MAX_FAULTS]], reason=_cut(str(problem["msg"])))
        for problem in errors[:MAX_FAULTS]
    ]
    if len(errors) > MAX_FAULTS:
        faults.append(Fault(at=["body"], reason=f"and {len(errors) - MAX_FAULTS} more"))
    reasons = "; ".join(f"{'.'.join(map(str, fault.at))}: {fault.reason}" for fault in faults[:5])
    return _response(STATUSES["invalid"], "invalid", f"the request is not valid: {reasons}", instance, errors=faults)


def _location(part: Any) -> str | int:
    return part if isinstance(part, int) else _cut(str(part), MAX_NAME)


def _cut(text: str, most: int = MAX_DETAIL) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _response(
    status: int,
    kind: str,
    detail: str,
    instance: str,
    subject: str | None = None,
    errors: Sequence[Fault] = (),
    headers: Mapping[str, str] | None = None,
) -> Response[str]:
    problem = Problem(
        type=TYPE_PREFIX + kind,
        title=HTTPStatus(status).phrase,
        status=status,
        detail=_cut(detail),
        instance=instance,
        subject=None if subject is None else _cut(subject, MAX_NAME),
        errors=list(errors),
    )
    # json.dumps escapes non-ASCII: whatever a message quotes, even lone surrogates, the body is valid UTF-8.
    body = json.dumps(problem.model_dump(exclude_none=True))
    return Response(status, MEDIA_TYPE, body, headers={"Cache-Control": "no-store", **(headers or {})})
