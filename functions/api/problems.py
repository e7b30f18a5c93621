"""Errors as problem+json (RFC 9457): one shape for everything that is refused here.

API Gateway's own refusals (401, 413, 429, 503, 504 before or after the function) are `{"message": …}`: an HTTP API
cannot be told otherwise.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response
from pydantic import BaseModel, ConfigDict, Field

from catalog.errors import KINDS, LakeError, as_lake_error

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:strandline:"

log = logging.getLogger(__name__)


class Fault(BaseModel):
    """One thing wrong with a request."""

    at: list[str | int] = Field(description="where: body, query or path, then the way to it")
    reason: str


class Problem(BaseModel):
    """What went wrong, to what, and what to do next."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="`urn:strandline:<kind>`: decides what a program does next")
    title: str
    status: int
    detail: str = Field(description="for people")
    instance: str = Field(description="the request's id, as in the header X-Request-Id and in the logs")
    subject: str | None = Field(default=None, description="what it is about, such as a table's name")
    errors: list[Fault] = Field(default_factory=list)


class Refusal(Exception):
    """What only HTTP knows: no identity, no such method, a body too large, a media type nobody has."""

    def __init__(self, status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.headers = status, kind, detail, dict(headers or {})


STATUSES: dict[str, int] = {kind.name: kind.http_status for kind in KINDS}


def refused(refusal: Refusal, instance: str) -> Response[str]:
    return _response(refusal.status, refusal.kind, refusal.detail, instance, headers=refusal.headers)


def failed(error: Exception, instance: str) -> Response[str]:
    """A LakeError as its kind says. Anything else is a defect: logged whole, and told to nobody."""
    known = as_lake_error(error)
    status, detail, headers = known.kind.http_status, known.message, dict[str, str]()
    if not isinstance(error, LakeError):
        log.exception("request failed", exc_info=error)
        detail = "something is wrong in the lake itself; whoever runs it finds the reason in the logs by the instance"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.error("request failed", extra={"error": known.as_dict()}, exc_info=error)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["Retry-After"] = "1"
    return _response(status, known.kind.name, detail, instance, known.subject, headers=headers)


def invalid(errors: Sequence[Mapping[str, Any]], instance: str) -> Response[str]:
    """What pydantic found: all of it, without the values (they may be secrets, and are the caller's own)."""
    faults = [Fault(at=[_place(part) for part in one["loc"]], reason=str(one["msg"])) for one in errors]
    said = "; ".join(f"{'.'.join(map(str, fault.at))}: {fault.reason}" for fault in faults[:5])
    return _response(STATUSES["invalid"], "invalid", f"the request is not valid: {said}", instance, errors=faults)


def _place(part: Any) -> str | int:
    return part if isinstance(part, int) else str(part)


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
        detail=detail,
        instance=instance,
        subject=subject,
        errors=list(errors),
    )
    # Escapes keep whatever a message quotes (lone surrogates too) inside valid UTF-8.
    body = json.dumps(problem.model_dump(exclude_none=True))
    return Response(status, MEDIA_TYPE, body, headers={"Cache-Control": "no-store", **(headers or {})})
