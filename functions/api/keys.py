"""Idempotency-Key: a request that is sent again is not done again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.event_handler import Response
from pydantic import BaseModel

from functions.api.app import JSON, answer, asked, once


def commit_token() -> str | None:
    """For writes of rows: the commit's token, once the key is bound to this very request. None without a key."""
    request = asked().once()
    if request is None:
        return None
    once().bind(request)
    return request.token


def run_once(work: Callable[[], BaseModel | None], status: int) -> Response[Any]:
    """For all other writes: does the work, or answers what it answered before under the same key.

    A crash between the work and its answer's keeping leaves the next try to find the work done: it is then told so,
    as a Conflict or by the same result.
    """
    request = asked().once()
    if request is None:
        return answer(work(), status)
    known = once().bind(request)
    if known is not None:
        body = known["body"]
        return Response(status, JSON if body else None, body, headers={"Idempotency-Replayed": "true"})
    made = work()
    body = None if made is None else made.model_dump_json(exclude_none=True)
    once().keep(request, {"body": body})
    return Response(status, JSON if body else None, body)
