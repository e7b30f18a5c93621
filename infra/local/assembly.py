"""The CDK app's stacks, synthesised and created in the embedded cloud through its CloudFormation.

The templates are the ones that `cdk deploy` uploads, unchanged.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.local.endpoint import Endpoint

# The embedded cloud runs functions from the checkout, so staging assets would only delay its start. `cdk synth` stages.
LOCAL_CONTEXT = {"aws:cdk:disable-asset-staging": True}
BOOTSTRAP_VERSION = ("/cdk-bootstrap/hnb659fds/version", "28")

MEMORY = "/dev/shm"  # noqa: S108 - used only as the parent of private temporary directories

AppBuilder = Callable[[dict[str, Any], str], Any]


@dataclass(frozen=True)
class Template:
    stack: str
    body: dict[str, Any]


def synthesise(build_app: AppBuilder) -> list[Template]:
    """The app's templates in deployment order. Costs one Node process and about four seconds."""
    os.environ.setdefault("CDK_VALIDATION", "false")
    # jsii passes the assembly as files: on tmpfs where there is one, so that nothing is written to disk.
    shm = MEMORY if os.path.isdir(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="strandline-cdk-", dir=shm) as outdir:
        assembly = build_app(LOCAL_CONTEXT, outdir).synth()
        return [Template(stack.stack_name, stack.template) for stack in assembly.stacks]


def deploy(endpoint: Endpoint, templates: Iterable[Template], parameters: Mapping[str, str] | None = None) -> None:
    """Creates or updates each stack, passing it the parameters that it declares.

    Raises RuntimeError with CloudFormation's reason when one fails.
    """
    name, version = BOOTSTRAP_VERSION
    endpoint.client("ssm").put_parameter(Name=name, Value=version, Type="String", Overwrite=True)
    cloudformation = endpoint.client("cloudformation")
    existing = {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}
    for template in templates:
        method = cloudformation.update_stack if template.stack in existing else cloudformation.create_stack
        method(
            StackName=template.stack,
            TemplateBody=json.dumps(template.body),
            Capabilities=["CAPABILITY_IAM"],
            Parameters=[
                {"ParameterKey": key, "ParameterValue": value}
                for key, value in (parameters or {}).items()
                if key in template.body.get("Parameters", {})
            ],
        )
        status = cloudformation.describe_stacks(StackName=template.stack)["Stacks"][0]
        if not status["StackStatus"].endswith("_COMPLETE") or "ROLLBACK" in status["StackStatus"]:
            reason = status.get("StackStatusReason", "CloudFormation gave no reason")
            raise RuntimeError(f"stack {template.stack} ended as {status['StackStatus']}: {reason}")


def resources(endpoint: Endpoint, type_: str) -> dict[str, str]:
    """`{logical id: physical id}` of every deployed resource of a type, over all stacks."""
    cloudformation = endpoint.client("cloudformation")
    physical_ids: dict[str, str] = {}
    for stack in cloudformation.describe_stacks()["Stacks"]:
        for resource in cloudformation.describe_stack_resources(StackName=stack["StackName"])["StackResources"]:
            if resource.get("ResourceType") == type_:  # missing when a condition excluded the resource
                physical_ids[resource["LogicalResourceId"]] = resource["PhysicalResourceId"]
    return physical_ids
