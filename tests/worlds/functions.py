"""Calls of functions in the embedded cloud."""

from __future__ import annotations

import json
from typing import Any

from infra.local.awslambda.service import LambdaService


def call(service: LambdaService, name: str, event: Any = None) -> Any:
    done = service.invoke(name, json.dumps(event or {}).encode())
    assert done.function_error is None, done.payload
    return json.loads(done.payload)
