"""Answers with what it got and with all it can see of where it runs."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any


def handler(event: Any, context: Any) -> dict[str, Any]:
    print(f"echo {context.aws_request_id}")  # noqa: T201 - what a handler prints is under test
    return {
        "event": event,
        "pid": os.getpid(),
        "environment": dict(os.environ),
        "cwd": os.getcwd(),
        "context": {
            "request_id": context.aws_request_id,
            "function_name": context.function_name,
            "function_version": context.function_version,
            "arn": context.invoked_function_arn,
            "memory": context.memory_limit_in_mb,
            "log_group": context.log_group_name,
            "log_stream": context.log_stream_name,
            "remaining_ms": context.get_remaining_time_in_millis(),
            "client": getattr(context.client_context, "custom", None),
        },
        "dont_write_bytecode": sys.dont_write_bytecode,
        "importable": [name for name in event.get("modules", ()) if _importable(name)],
    }


def _importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True
