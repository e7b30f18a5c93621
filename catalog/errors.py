"""The error tree: seven kinds, and for each the one answer every edge gives to it.

A kind tells the caller's next move. Edges (HTTP, CLI, queues) read the table here and decide nothing themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Decision(StrEnum):
    """What a queue consumer does with the message that caused the error."""

    RETRY = "retry"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    http_status: int
    exit_code: int
    decision: Decision


INVALID = Kind("invalid", 400, 2, Decision.DEAD_LETTER)
NOT_FOUND = Kind("not_found", 404, 1, Decision.DEAD_LETTER)
CONFLICT = Kind("conflict", 409, 4, Decision.RETRY)
DENIED = Kind("denied", 403, 1, Decision.DEAD_LETTER)
UNVERIFIED = Kind("unverified", 422, 3, Decision.DEAD_LETTER)
UNAVAILABLE = Kind("unavailable", 503, 4, Decision.RETRY)
# A defect of ours may still be a passing one (an import race, a worker out of memory): the queue's own limit of
# receives ends the retries.
INTERNAL = Kind("internal", 500, 1, Decision.RETRY)

KINDS = (INVALID, NOT_FOUND, CONFLICT, DENIED, UNVERIFIED, UNAVAILABLE, INTERNAL)


class LakeError(Exception):
    """Anything the lake says no to. The message says what happened, to what, and what to do next."""

    kind: ClassVar[Kind] = INTERNAL

    def __init__(self, message: str, *, subject: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject

    def as_dict(self) -> dict[str, str]:
        """The machine-readable form that logs, `--output json` and problem+json share."""
        out = {"kind": self.kind.name, "message": self.message}
        if self.subject is not None:
            out["subject"] = self.subject
        return out


class Invalid(LakeError):
    """The input is wrong and will stay wrong: nothing was written."""

    kind = INVALID


class NotFound(LakeError):
    kind = NOT_FOUND


class Conflict(LakeError):
    """Somebody else won a race; trying again from the start may succeed."""

    kind = CONFLICT


class Denied(LakeError):
    kind = DENIED


class Unverified(LakeError):
    """A proof, digest or signature does not hold. Never retried, never ignored."""

    kind = UNVERIFIED


class Unavailable(LakeError):
    """A part the lake stands on did not answer in bounded time; the same call may succeed later."""

    kind = UNAVAILABLE


class Internal(LakeError):
    kind = INTERNAL


def as_lake_error(error: BaseException) -> LakeError:
    """The error itself when it is ours, otherwise an Internal one that names it: for the outermost edges only."""
    if isinstance(error, LakeError):
        return error
    return Internal(f"unexpected {type(error).__name__}: {error}")
