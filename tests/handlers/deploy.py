"""How the contract tests deploy the handlers of this directory."""

from __future__ import annotations

from typing import Any

from infra.local.endpoint import Endpoint


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
