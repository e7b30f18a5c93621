"""Threads that try the same thing at the same moment, and how many of them got it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from botocore.exceptions import ClientError

THREADS = 16
LOST = ("PreconditionFailed", "ConditionalRequestConflict")


def winners(attempt: Callable[[int], object]) -> int:
    """How many of 16 threads that try at the same moment succeed."""

    def once(number: int) -> bool:
        try:
            attempt(number)
        except ClientError as error:
            if error.response["Error"]["Code"] not in LOST:
                raise
            return False
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(once, range(THREADS)))
