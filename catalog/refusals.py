"""What AWS's refusals mean: the one translation from botocore's errors to the lake's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError

from catalog.errors import Denied, Internal, LakeError, NotFound, Unavailable

_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "ExpiredToken", "InvalidAccessKeyId", "UnauthorizedAccess", "403"}
)
_MISSING = frozenset(
    {
        *("EntityNotFoundException", "NoSuchBucket", "NoSuchKey", "NotFoundException", "ResourceNotFoundException"),
        "404",
    }
)
_BUSY = frozenset({"RequestTimeout", "SlowDown", "TooManyRequestsException"})


@contextmanager
def explained(subject: str) -> Iterator[None]:
    """Within the block, what botocore raises becomes one of ours; the rest passes."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise explain(error, subject) from error


def explain(error: ClientError | BotoCoreError, subject: str) -> LakeError:
    """Denied, NotFound, Unavailable (it may be answered later), or Internal: a request that was wrong in itself."""
    if not isinstance(error, ClientError):  # no answer, or none that could be read
        return Unavailable(f"{subject}: AWS did not answer ({error}): try again", subject=subject)
    code, said = str(error.response["Error"]["Code"]), error.response["Error"].get("Message", "")
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))
    if code in _DENIED or status == 403:
        return Denied(f"{subject}: AWS denied {error.operation_name} ({code}: {said}): check the role", subject=subject)
    if code in _MISSING:
        return NotFound(f"{subject} does not exist: {said}", subject=subject)
    if status >= 500 or status == 429 or "Throttl" in code or code in _BUSY:
        return Unavailable(f"{subject}: AWS could not do it now ({code}): try again", subject=subject)
    return Internal(f"{subject}: AWS refused {error.operation_name} ({code}: {said})", subject=subject)
