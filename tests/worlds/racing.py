"""Threads that try the same thing at the same moment, and how many of them got it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import ClientError
from urllib3 import PoolManager

THREADS = 16
_SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=racer/20260101/us-east-1/s3/aws4_request"}
_LOST = ("PreconditionFailed", "ConditionalRequestConflict")


def winners(attempt: Callable[[int], bool]) -> int:
    """For how many of 16 threads that try at the same moment `attempt` is true."""
    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(attempt, range(THREADS)))


def stored(put: Callable[[], object]) -> bool:
    """Whether a conditional PUT by the SDK was taken."""
    try:
        put()
    except ClientError as error:
        if error.response["Error"]["Code"] not in _LOST:
            raise
        return False
    return True


class BarePuts:
    """Conditional PUTs without the SDK, whose own work takes longer than the server's and keeps the threads apart."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = PoolManager(maxsize=THREADS)

    def stored(self, path: str, body: bytes, **condition: str) -> bool:
        """`if_none_match="*"` or `if_match=<etag>`."""
        headers = {name.replace("_", "-"): value for name, value in condition.items()} | _SIGNED
        answer = self._pool.request("PUT", f"{self._url}/{path}", body=body, headers=headers, retries=False)
        assert answer.status in (200, 409, 412), (answer.status, answer.data)
        return answer.status == 200
