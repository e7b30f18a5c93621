"""The memory and time of a query. Imports no engine: the process that only supervises workers needs none."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class EngineLimits:
    """The memory and time that one query may use in this process."""

    memory_bytes: int
    seconds: float = 60.0


def default_memory_budget() -> int:
    """The default memory budget: 60 % of the Lambda function's memory, or 2 GiB outside Lambda."""
    function = function_memory()
    return int((function >> 20) * 0.6) << 20 if function is not None else 2 << 30


def function_memory() -> int | None:
    """The memory of the Lambda function, in bytes; None outside Lambda."""
    megabytes = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
    return int(megabytes) << 20 if megabytes and megabytes.isdecimal() else None
