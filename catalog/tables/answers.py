"""What AWS's refusals mean to a caller of the tables: the one translation from botocore to the lake's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from catalog.errors import Denied, LakeError, NotFound, Unavailable

_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedAccess", "403"})
_NOT_FOUND = frozenset({"EntityNotFoundException", "NoSuchBucket"})


@contextmanager
def explained(subject: str) -> Iterator[None]:
    """Within the block, what botocore raises becomes Denied, NotFound or Unavailable; the rest passes."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise explain(error, subject) from error


def explain(error: ClientError | BotoCoreError, subject: str) -> LakeError:
    if isinstance(error, ClientError):
        code, said = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        if code in _DENIED:
            return Denied(f"{subject}: AWS denied {error.operation_name} ({said}): check the role", subject=subject)
        if code in _NOT_FOUND:
            return NotFound(f"{subject} does not exist: {said}", subject=subject)
    return Unavailable(f"{subject}: AWS did not answer as it should ({error}): try again", subject=subject)
