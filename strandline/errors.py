"""The package's errors: one tree. `kind` tells the caller's next move; `status` is the HTTP status of a response."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "Conflict",
    "Denied",
    "Internal",
    "Invalid",
    "MissingDependency",
    "NotFound",
    "StrandlineError",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unverified",
]


class StrandlineError(Exception):
    """The root of all errors. The message says what happened, to what, and what to do next.

    `request_id` identifies the request in the lake's logs; it is empty if there was no response.

    >>> try:
    ...     lake.table("silver.nothing").describe()
    ... except strandline.StrandlineError as error:
    ...     print(error.kind, error.status)
    not_found 404
    """

    kind: str = "internal"
    next_step: ClassVar[str] = ""

    def __init__(self, message: str, *, status: int | None = None, request_id: str = "") -> None:
        super().__init__(message)
        self.message, self.status, self.request_id = message, status, request_id


class Invalid(StrandlineError):
    """The request is wrong: correct it, do not repeat it. Nothing was written.

    >>> lake.sql("drop table silver.tides")
    Traceback (most recent call last):
    ...
    strandline.errors.Invalid: ...
    """

    kind = "invalid"


class Unauthenticated(StrandlineError):
    """The token is missing, or the lake does not accept it.

    >>> strandline.connect(lake.endpoint, "expired").tables()
    Traceback (most recent call last):
    ...
    strandline.errors.Unauthenticated: Unauthorized. Pass token=..., set STRANDLINE_TOKEN, or run `strandline login`.
    """

    kind = "unauthenticated"
    next_step = "Pass token=..., set STRANDLINE_TOKEN, or run `strandline login`."


class Denied(StrandlineError):
    """The token is valid, but its roles do not allow the request.

    >>> reader.create_table("silver.forbidden", {"id": "long"})
    Traceback (most recent call last):
    ...
    strandline.errors.Denied: ...
    """

    kind = "denied"
    next_step = "Ask the lake's operator for a role that allows it."


class NotFound(StrandlineError):
    """It does not exist, or you may not read it.

    >>> lake.drop_table("silver.nothing")
    Traceback (most recent call last):
    ...
    strandline.errors.NotFound: ...
    """

    kind = "not_found"
    next_step = "It does not exist, or you may not read it: `lake.tables()` lists the tables that you may read."


class Conflict(StrandlineError):
    """Another writer committed first, or the name is in use: read the current state, then try again.

    >>> lake.create_table("silver.tides", {"station": "string"})
    Traceback (most recent call last):
    ...
    strandline.errors.Conflict: ...
    """

    kind = "conflict"
    next_step = "Read the current state, then try again."


class TooLarge(StrandlineError):
    """The request is larger than 4 MiB. Send the rows as a file.

    >>> tides.insert([{"station": "Brest" * 1_000_000, "metres": 1.0}])
    Traceback (most recent call last):
    ...
    strandline.errors.TooLarge: ...
    """

    kind = "too_large"
    next_step = "Write the rows to a Parquet file and send it with `lake.ingest(file, table=...)`."


class Unverified(StrandlineError):
    """A proof, digest or signature is wrong. Do not use the data, and do not try again.

    >>> strandline.verify.checkpoint(b"tides.example\\n0\\n\\n", key=key)
    Traceback (most recent call last):
    ...
    strandline.errors.Unverified: ...
    """

    kind = "unverified"


class Unavailable(StrandlineError):
    """The lake did not respond in time, or is overloaded: the same call may succeed later.

    >>> strandline.connect("http://127.0.0.1:1", attempts=1).tables()
    Traceback (most recent call last):
    ...
    strandline.errors.Unavailable: http://127.0.0.1:1 does not respond: ...
    """

    kind = "unavailable"
    next_step = "Try again in a moment."


class Internal(StrandlineError):
    """The lake failed. Report the `request_id` to its operator.

    >>> strandline.Internal.kind
    'internal'
    """

    kind = "internal"
    next_step = "Report the request's id to the lake's operator."


class MissingDependency(StrandlineError, ImportError):
    """An optional package is not installed; the message has the command that installs it.

    >>> strandline.MissingDependency.kind
    'missing_dependency'
    """

    kind = "missing_dependency"


_BY_KIND: dict[str, type[StrandlineError]] = {
    error.kind: error
    for error in (Invalid, Unauthenticated, Denied, NotFound, Conflict, TooLarge, Unverified, Unavailable, Internal)
}
_BY_KIND["throttled"] = Unavailable


def of_problem(status: int, kind: str, detail: str, request_id: str) -> StrandlineError:
    """The API's problem as an error of the tree. The status decides for a kind that this version does not know."""
    error_class = _BY_KIND.get(kind) or (Internal if status >= 500 else Invalid)
    message = detail.rstrip(". ") + (f" (request {request_id})" if request_id else "")
    error = error_class(f"{message}. {error_class.next_step}".rstrip(), status=status, request_id=request_id)
    error.kind = kind
    return error
