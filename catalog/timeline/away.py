"""One translation of what the AWS clients and Iceberg raise into the lake's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError

from catalog.errors import Conflict, Denied, Internal, LakeError, NotFound, Unavailable

_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "ExpiredToken", "InvalidAccessKeyId"})
_MISSING = frozenset({"NoSuchBucket", "NoSuchKey", "ResourceNotFoundException", "NotFoundException", "404"})


@contextmanager
def explained(subject: str) -> Iterator[None]:
    """Within the block, an error of a service becomes ours, saying about what it was."""
    try:
        yield
    except LakeError:
        raise
    except Exception as error:
        explanation = explain(error, subject)
        if explanation is None:
            raise
        raise explanation from error


def explain(error: Exception, subject: str) -> LakeError | None:
    """Our error for a service's; None for what no service raises."""
    if isinstance(error, ClientError):
        code = str(error.response["Error"]["Code"])
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))
        if code in _DENIED or status == 403:
            return Denied(f"{subject}: access was denied ({code})", subject=subject)
        if code in _MISSING:
            return NotFound(f"{subject}: {error}", subject=subject)
        if status >= 500 or status == 429 or "Throttl" in code or code == "SlowDown":
            return Unavailable(f"{subject}: the service is away ({code}); try again", subject=subject)
        return Internal(f"{subject}: {error}", subject=subject)
    if isinstance(error, (NoSuchTableError, NoSuchNamespaceError)):
        return NotFound(f"{subject}: {error}", subject=subject)
    if isinstance(error, CommitFailedException):
        return Conflict(f"{subject}: {error}", subject=subject)
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{subject}: {error}", subject=subject)
    if isinstance(error, (BotoCoreError, OSError)):  # no answer, or none that could be read
        return Unavailable(f"{subject}: {error}", subject=subject)
    return None
