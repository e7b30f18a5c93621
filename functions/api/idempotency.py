"""Idempotency-Key: a request that is repeated with its key is executed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from aws_lambda_powertools.event_handler import Response
from pydantic import BaseModel

from catalog.access import Bound, IdempotentRequest
from functions.api.app import JSON, current_request, idempotency_store, respond


class Attempt:
    """One attempt at a request. `id` is the same for all attempts with one key, and unique to them.

    `noted` is what an earlier attempt recorded before it acted: the action may or may not have happened. None in the
    first attempt.
    """

    def __init__(self, request: IdempotentRequest | None, bound: Bound | None) -> None:
        self._request, self._bound = request, bound
        self.id = uuid4() if bound is None else UUID(bound.id[:32])
        self.token = None if bound is None else bound.id
        self.noted: Any = None if bound is None else bound.noted

    def note(self, what: Any) -> None:
        """Records what this attempt is about to do. Call it before an action that a later attempt could not tell from
        another request's."""
        self.noted = what
        if self._request is not None and self._bound is not None:
            self._bound = idempotency_store().note(self._request, self._bound, what)

    def keep(self, response: Any) -> None:
        if self._request is not None and self._bound is not None:
            idempotency_store().keep(self._request, self._bound, response)


def commit_token() -> str | None:
    """For writes of rows: the commit token of the current request's key; None without a key. Conflict if the key was
    used for another request."""
    request = current_request().idempotent()
    return None if request is None else idempotency_store().bind(request).id


def run_once(work: Callable[[Attempt], BaseModel | None], status: int) -> Response[Any]:
    """For all other writes: does the work, or repeats the response of an earlier request with the same key.

    After a crash between the work and storing its response, the next attempt calls `work` again, which must detect that
    it is done and return the same result.
    """
    request = current_request().idempotent()
    if request is None:
        return respond(work(Attempt(None, None)), status)
    bound = idempotency_store().bind(request)
    if bound.answer is not None:
        body = bound.answer["body"]
        return Response(status, JSON if body else None, body, headers={"Idempotency-Replayed": "true"})
    attempt = Attempt(request, bound)
    result = work(attempt)
    body = None if result is None else result.model_dump_json(exclude_none=True)
    attempt.keep({"body": body})
    return Response(status, JSON if body else None, body)
