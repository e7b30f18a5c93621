"""Answers nothing and writes nothing."""

from __future__ import annotations

from typing import Any


def handler(event: Any, context: Any) -> None:
    return None
