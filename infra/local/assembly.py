"""The CDK app's stacks, synthesised and created in the embedded cloud through its CloudFormation.

The templates are the ones `cdk deploy` uploads; nothing is rewritten on the way.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.local.endpoint import Endpoint

# Asset directories are run from the checkout here, so copying and re-checking them only costs start-up time; both
# stay on for `cdk synth`.
LOCAL_CONTEXT = {"aws:cdk:disable-asset-staging": True}
BOOTSTRAP_VERSION = ("/cdk-bootstrap/hnb659fds/version", "28")

MEMORY = "/dev/shm"  # noqa: S108 - a private directory is made in it

AppBuilder = Callable[[dict[str, Any], str], Any]


@dataclass(frozen=True)
class Template:
    stack: str
    body: dict[str, Any]


def synthesise(build_app: AppBuilder) -> list[Template]:
    """The app's stacks in the order they must be created. Costs one Node process and about four seconds."""
    os.environ.setdefault("CDK_VALIDATION", "false")
    # jsii hands the assembly over as files: tmpfs where there is one, so that nothing touches a disk.
    shm = MEMORY if os.path.isdir(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="strandline-cdk-", dir=shm) as outdir:
        assembly = build_app(LOCAL_CONTEXT, outdir).synth()
        return [Template(stack.stack_name, stack.template) for stack in assembly.stacks]


def deploy(endpoint: Endpoint, templates: Iterable[Template], parameters: Mapping[str, str] | None = None) -> None:
    """Creates or updates each stack, with those of the parameters that it declares.

    Raises with CloudFormation's own reason when one fails.
    """
    name, version = BOOTSTRAP_VERSION
    endpoint.client("ssm").put_parameter(Name=name, Value=version, Type="String", Overwrite=True)
    cloudformation = endpoint.client("cloudformation")
    known = {stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]}
    for template in templates:
        method = cloudformation.update_stack if template.stack in known else cloudformation.create_stack
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
            reason = status.get("StackStatusReason", "no reason given")
            raise RuntimeError(f"stack {template.stack} ended as {status['StackStatus']}: {reason}")


def resources(endpoint: Endpoint, type_: str) -> dict[str, str]:
    """`{logical id: physical id}` of every deployed resource of a type, over all stacks."""
    cloudformation = endpoint.client("cloudformation")
    found: dict[str, str] = {}
    for stack in cloudformation.describe_stacks()["Stacks"]:
        for resource in cloudformation.describe_stack_resources(StackName=stack["StackName"])["StackResources"]:
            if resource.get("ResourceType") == type_:  # one that a condition left out has none
                found[resource["LogicalResourceId"]] = resource["PhysicalResourceId"]
    return found
