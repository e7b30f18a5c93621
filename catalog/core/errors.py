"""The error tree: seven kinds, each with its HTTP status, exit code and queue decision.

A kind tells the caller's next move. HTTP, CLI and queue consumers read the table here and decide nothing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


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
# Retried, because a defect may be transient (an import race, a worker out of memory); the queue's maximum receive count
# ends the retries.
INTERNAL = Kind("internal", 500, 1, Decision.RETRY)

KINDS = (INVALID, NOT_FOUND, CONFLICT, DENIED, UNVERIFIED, UNAVAILABLE, INTERNAL)


class LakeError(Exception):
    """An error of the lake. The message says what happened, to what, and what to do next."""

    kind: ClassVar[Kind] = INTERNAL

    def __init__(self, message: str, *, subject: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject

    def as_dict(self) -> dict[str, str]:
        """The machine-readable form that logs, `--output json` and problem+json share."""
        fields = {"kind": self.kind.name, "message": self.message}
        if self.subject is not None:
            fields["subject"] = self.subject
        return fields


class Invalid(LakeError):
    """The input is wrong, and a retry does not help. Nothing was written.

    `row`, counted from 0, and `column` are the position in the input rows, if it is known; `reason` is the message
    without the position.
    """

    kind = INVALID

    def __init__(
        self,
        message: str,
        *,
        subject: str | None = None,
        row: int | None = None,
        column: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message, subject=subject)
        self.row, self.column = row, column
        self.reason = message if reason is None else reason


class NotFound(LakeError):
    kind = NOT_FOUND


class Conflict(LakeError):
    """Another writer was first: a race is lost, or a name or idempotency key is taken. Read again, then retry."""

    kind = CONFLICT


class Denied(LakeError):
    kind = DENIED


class Unverified(LakeError):
    """A proof, digest or signature does not verify. Never retried, never ignored."""

    kind = UNVERIFIED


class Unavailable(LakeError):
    """A service that the lake depends on did not respond in time; the same call may succeed later."""

    kind = UNAVAILABLE


class Internal(LakeError):
    kind = INTERNAL


def error_from(record: Mapping[str, Any]) -> LakeError:
    """Reads back what `as_dict` wrote, with an Invalid's `row` and `column` if the record has them.

    An unknown kind is Internal: the record is from a newer program, or not from the lake at all.
    """
    message, subject = str(record.get("message", "no reason was given")), record.get("subject")
    if record.get("kind") == INVALID.name:
        return Invalid(message, subject=subject, row=record.get("row"), column=record.get("column"))
    classes = {kind.kind.name: kind for kind in (NotFound, Conflict, Denied, Unverified, Unavailable)}
    return classes.get(str(record.get("kind")), Internal)(message, subject=subject)


def as_lake_error(error: BaseException) -> LakeError:
    """The error itself if it is a LakeError, otherwise an Internal one that names it. For outermost callers only."""
    if isinstance(error, LakeError):
        return error
    return Internal(f"unexpected {type(error).__name__}: {error}")
