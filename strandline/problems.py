"""Error responses of the API, and their translation into the errors of `strandline.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError
from typing import Any

import httpx
import pyarrow as pa

from strandline.errors import Invalid, StrandlineError, Unavailable, of_problem


class Problem(StrandlineError):
    """An error response of the API. `kind` tells the caller's next move, `instance` is the request's id in the logs."""

    def __init__(self, status: int, kind: str, detail: str, instance: str = "", body: Any = None) -> None:
        super().__init__(f"{kind} ({status}): {detail}", status=status, request_id=instance)
        self.status: int = status
        self.kind, self.detail, self.instance, self.body = kind, detail, instance, body

    @classmethod
    def of(cls, response: httpx.Response) -> Problem:
        try:
            body = response.json()
        except ValueError:
            body = {"detail": response.text[:500]}
        if not isinstance(body, dict):
            body = {"detail": str(body)[:500]}
        kind = str(body.get("type", "")).removeprefix("urn:strandline:") or _kind_of(response.status_code)
        detail = str(body.get("detail") or body.get("message") or response.reason_phrase)
        return cls(response.status_code, kind, detail, response.headers.get("x-request-id", ""), body)


@contextmanager
def translated(endpoint: str) -> Iterator[None]:
    """Raises the block's HTTP, JSON and Arrow errors as errors of the tree."""
    try:
        yield
    except Problem as problem:
        raise of_problem(problem.status, problem.kind, problem.detail, problem.instance) from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise Invalid(f"{endpoint} is not the address of a lake: {error}. Write it like https://lake.example") from None
    except httpx.TransportError as error:
        raise Unavailable(f"{endpoint} does not respond: {error}. {Unavailable.next_step}") from None
    except (JSONDecodeError, KeyError, pa.ArrowException) as error:
        raise Unavailable(f"{endpoint} does not respond as a lake does ({error!r}): check the address") from None


def _kind_of(status: int) -> str:
    """The kind of an error that API Gateway itself responded with: it names none."""
    return {401: "unauthenticated", 403: "denied", 404: "not_found", 413: "too_large", 429: "throttled"}.get(
        status, "unavailable" if status >= 500 else "invalid"
    )
