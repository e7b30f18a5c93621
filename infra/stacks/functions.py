"""A Lambda function of the lake: container image, command, role and log group."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from catalog.core.settings import variable_of
from infra.stacks.logs import log_group
from infra.stage import ROOT, Stage

FUNCTION_BASE_TAG = "public.ecr.aws/lambda/python:3.12-x86_64"
"""The default of infra/images/functions.Dockerfile."""


def image_content(room: str) -> list[str]:
    """The exclude patterns of an image's build context: it holds catalog, the given room, and what installs them.

    Order matters, as in a .dockerignore.
    """
    included = ["catalog", room, "pyproject.toml", "README.md", "requirements", "infra"]
    return ["*", *(f"!{name}" for name in included), "infra/*", "!infra/images", "**/__pycache__"]


class LakeFunction(Construct):
    """Runs `functions/<name>.py` with its own role and log group. `extra` is the pyproject extra its image installs.

    `concurrency` is its reserved concurrency; None where something else limits it (see UNRESERVED in infra/reasons.py).
    `key` encrypts its environment variables, which hold names but no secrets. `dead_letters` gets the events of
    asynchronous invocations that Lambda gave up.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        stage: Stage,
        name: str,
        extra: str,
        environment: dict[str, str],
        timeout: Duration,
        memory_mb: int,
        concurrency: int | None,
        key: kms.IKey | None,
        dead_letters: sqs.IQueue | None = None,
    ) -> None:
        super().__init__(scope, id)
        function_name = stage.resource(name)
        log = log_group(self, "Logs", stage=stage, name=f"/aws/lambda/{function_name}")
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log.grant_write(role)
        self.function = lambda_.DockerImageFunction(
            self,
            "Function",
            function_name=function_name,
            code=lambda_.DockerImageCode.from_image_asset(
                str(ROOT),
                file="infra/images/functions.Dockerfile",
                build_args={"EXTRA": extra, **({"BASE": stage.function_base} if stage.function_base else {})},
                cmd=[f"functions.{name}.handler"],
                exclude=image_content("functions"),
                platform=ecr_assets.Platform.LINUX_AMD64,
            ),
            architecture=lambda_.Architecture.X86_64,
            role=role,
            log_group=log,
            timeout=timeout,
            memory_size=memory_mb,
            reserved_concurrent_executions=concurrency,
            environment={**environment, variable_of("function"): name},
            environment_encryption=key,
            dead_letter_queue=dead_letters,
            tracing=lambda_.Tracing.ACTIVE if stage.tracing else lambda_.Tracing.DISABLED,
        )
