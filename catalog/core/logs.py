"""Structured logs: one JSON object per line, with the correlation id that follows a file from S3 event to checkpoint.

Modules of the lake log through `logging.getLogger(__name__)` with `extra={...}`; only entry points call
`configure_logs`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

_correlation: ContextVar[str | None] = ContextVar("correlation_id", default=None)

# Libraries that are verbose at INFO: only their warnings are logged.
_VERBOSE = ("boto3", "botocore", "pyiceberg", "py4j", "s3transfer", "urllib3")


@contextmanager
def correlation(correlation_id: str | None) -> Iterator[None]:
    """Within the block every log line has the id; with None it has the outer block's."""
    token = _correlation.set(correlation_id or _correlation.get())
    try:
        yield
    finally:
        _correlation.reset(token)


def correlation_id() -> str | None:
    """The current id, for messages that pass it on to the next function."""
    return _correlation.get()


def configure_logs(service: str, level: str = "INFO") -> None:
    """Makes the root logger write JSON lines to stderr; replaces its handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LambdaPowertoolsFormatter(service=service, utc=True))
    handler.addFilter(_add_correlation)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(logging.WARNING)


def _add_correlation(record: logging.LogRecord) -> bool:
    current = _correlation.get()
    if current is not None:
        record.correlation_id = current
    return True
