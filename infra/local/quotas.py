"""The quotas of the account that the embedded cloud stands for: a new account's, unless a test asks for others.

One set for a process, like moto's backends. docs/emulators.md has the source of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

UNRESERVED_MINIMUM = 100
"""Concurrent executions that no reservation may take; an account that has fewer can reserve none."""


@dataclass(frozen=True)
class Quotas:
    lambda_concurrency: int
    """Concurrent executions of all functions together."""
    emr_vcpus: int
    """vCPUs of all EMR Serverless workers at one time."""


NEW_ACCOUNT = Quotas(lambda_concurrency=10, emr_vcpus=16)
RAISED = Quotas(lambda_concurrency=1000, emr_vcpus=1000)

_current = NEW_ACCOUNT


def quotas() -> Quotas:
    return _current


@contextmanager
def account_with(changed: Quotas) -> Iterator[None]:
    global _current
    before, _current = _current, changed
    try:
        yield
    finally:
        _current = before
