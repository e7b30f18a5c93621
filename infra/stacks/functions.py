"""One way to declare a Lambda function of the lake: image, command, log group, no local storage."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from catalog.settings import variable_of
from infra.stacks.logs import log_group
from infra.stage import ROOT, Stage


def image_content(room: str) -> list[str]:
    """What of the checkout an image holds: catalog, the room it runs, and what installs them. Order matters, as in a
    .dockerignore."""
    kept = ["catalog", room, "pyproject.toml", "README.md", "requirements", "infra"]
    return ["*", *(f"!{name}" for name in kept), "infra/*", "!infra/images", "**/__pycache__"]


class LakeFunction(Construct):
    """`functions/<name>.py` behind its own role and log group. `extra` names the dependencies its image carries.

    `concurrency` is kept for it in the account's pool, and is its limit; None where something before it sets the limit
    (infra/reasons.py says what). `key` encrypts its environment, which holds names and no secret.
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
    ) -> None:
        super().__init__(scope, id)
        physical = stage.resource(name)
        log = log_group(self, "Logs", stage=stage, name=f"/aws/lambda/{physical}")
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        log.grant_write(role)
        self.function = lambda_.DockerImageFunction(
            self,
            "Function",
            function_name=physical,
            code=lambda_.DockerImageCode.from_image_asset(
                str(ROOT),
                file="infra/images/functions.Dockerfile",
                build_args={"EXTRA": extra},
                cmd=[f"functions.{name}.handler"],
                exclude=image_content("functions"),
                platform=ecr_assets.Platform.LINUX_ARM64,
            ),
            architecture=lambda_.Architecture.ARM_64,
            role=role,
            log_group=log,
            timeout=timeout,
            memory_size=memory_mb,
            reserved_concurrent_executions=concurrency,
            environment={**environment, variable_of("function"): name},
            environment_encryption=key,
            tracing=lambda_.Tracing.ACTIVE if stage.tracing else lambda_.Tracing.DISABLED,
        )
