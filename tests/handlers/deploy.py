"""How the contract tests deploy the handlers of this directory, and wait for what they do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from infra.local.endpoint import Endpoint

Found = TypeVar("Found")


def deploy(endpoint: Endpoint, name: str, handler: str, *, timeout: int = 30, **more: Any) -> str:
    """Creates an image function that runs `tests.handlers.<handler>.handler`, and returns its ARN."""
    iam = endpoint.client("iam")
    try:
        role = iam.get_role(RoleName="function")["Role"]["Arn"]
    except iam.exceptions.NoSuchEntityException:
        role = iam.create_role(RoleName="function", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    created = endpoint.client("lambda").create_function(
        FunctionName=name,
        Role=role,
        PackageType="Image",
        Code={"ImageUri": "registry/strandline:test"},
        ImageConfig={"Command": [f"tests.handlers.{handler}.handler"]},
        Timeout=timeout,
        **more,
    )
    return str(created["FunctionArn"])


def until(condition: Callable[[], Found], timeout: float = 60.0) -> Found:
    """The first true answer of `condition`, asked often; an error when it stays false."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {timeout} s: {condition}")
        pause.wait(0.005)
    return found
