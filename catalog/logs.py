"""Structured logs: one JSON object a line, with the correlation id that follows one file from S3 event to checkpoint.

Modules of the lake log through `logging.getLogger(__name__)` with `extra={...}`; only edges call `configure_logs`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

_correlation: ContextVar[str | None] = ContextVar("correlation_id", default=None)

# Libraries that tell at INFO what nobody asked: their warnings are kept.
_QUIET = ("boto3", "botocore", "pyiceberg", "py4j", "s3transfer", "urllib3")


@contextmanager
def correlation(correlation_id: str | None) -> Iterator[None]:
    """Within the block every log line carries the id; None leaves the outer one in force."""
    token = _correlation.set(correlation_id or _correlation.get())
    try:
        yield
    finally:
        _correlation.reset(token)


def correlation_id() -> str | None:
    """The id in force, for messages that carry it on to the next function."""
    return _correlation.get()


def configure_logs(service: str, level: str = "INFO") -> None:
    """Makes the root logger write JSON lines to stderr. Called again, it replaces what it set up before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LambdaPowertoolsFormatter(service=service, utc=True))
    handler.addFilter(_add_correlation)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _add_correlation(record: logging.LogRecord) -> bool:
    found = _correlation.get()
    if found is not None:
        record.correlation_id = found
    return True
