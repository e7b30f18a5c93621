"""Translates botocore's errors into the lake's. The only module that reads AWS's error codes.

Also the tests for "it does not exist" and "the conditional write lost".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError

from catalog.core.errors import Conflict, Denied, Internal, LakeError, NotFound, Unavailable

_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "ExpiredToken", "InvalidAccessKeyId", "UnauthorizedAccess", "403"}
)
_MISSING = frozenset(
    {
        *("EntityNotFoundException", "NoSuchKey", "NoSuchVersion", "NotFoundException", "ResourceNotFoundException"),
        "404",  # the response to a HEAD has no body, and so no code
    }
)
_NO_BUCKET = "NoSuchBucket"
_LOST = frozenset({"ConcurrentModificationException", "ConditionalRequestConflict", "PreconditionFailed"})
_BUSY = frozenset({"RequestTimeout", "SlowDown", "TooManyRequestsException"})


@contextmanager
def translate_aws_errors(subject: str) -> Iterator[None]:
    """Within the block, botocore's errors become the lake's; other errors pass."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise translate_aws_error(error, subject) from error


def is_missing(error: BaseException, *, or_bucket: bool = False) -> bool:
    """Whether AWS says that the requested object, version, table or job run does not exist.

    A missing bucket counts only with `or_bucket`: usually it is a wrong setting, not an object that does not exist yet.
    """
    if not isinstance(error, ClientError):
        return False
    code = _code(error)
    return code in _MISSING or (or_bucket and code == _NO_BUCKET)


def lost_race(error: BaseException) -> bool:
    """Whether a conditional write failed because another write came first: nothing was written.

    S3 responds 412 if the condition does not hold, and 409 if another write is in progress, so after a 409 the object
    may not exist yet. For If-Match on an object that does not exist, `is_missing` is true instead.
    """
    return isinstance(error, ClientError) and (_code(error) in _LOST or _status(error) in (409, 412))


def translate_aws_error(error: ClientError | BotoCoreError, subject: str) -> LakeError:
    """Denied, NotFound, Unavailable (a retry may succeed), or Internal (the request itself was wrong)."""
    if not isinstance(error, ClientError):  # no response, or an unreadable one
        return Unavailable(f"{subject}: AWS did not respond ({error}): try again", subject=subject)
    code, status, message = _code(error), _status(error), error.response["Error"].get("Message", "")
    if code in _DENIED or status == 403:
        reason = f"AWS denied {error.operation_name} ({code}: {message})"
        return Denied(f"{subject}: {reason}: check the permissions of the role", subject=subject)
    if code in _MISSING or code == _NO_BUCKET:
        return NotFound(f"{subject} does not exist: {message}", subject=subject)
    if status >= 500 or status == 429 or "Throttl" in code or code in _BUSY:
        return Unavailable(f"{subject}: AWS is busy or failed ({code}): try again", subject=subject)
    return Internal(f"{subject}: AWS rejected {error.operation_name} ({code}: {message})", subject=subject)


def _code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))


@contextmanager
def translate_errors(subject: str) -> Iterator[None]:
    """Like `translate_aws_errors`, and translates pyiceberg's and OS errors as well; other errors pass."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise translate_aws_error(error, subject) from error
    except (NoSuchTableError, NoSuchNamespaceError, FileNotFoundError) as error:
        raise NotFound(f"{subject}: {error}", subject=subject) from error
    except CommitFailedException as error:
        raise Conflict(f"{subject}: {error}", subject=subject) from error
    except OSError as error:  # no response, or an unreadable one
        raise Unavailable(f"{subject}: {error}", subject=subject) from error
