"""Fails while it handles an event."""

from __future__ import annotations

from typing import Any


def handler(event: Any, context: Any) -> None:
    raise ValueError(f"told to fail with {event}")
