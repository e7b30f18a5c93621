"""The canary: a function that asks the lake every kind of read and proof, and its schedule. It may write nothing."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from catalog.core import s3_layout
from infra.stacks.compute import DELIVERY, ComputeStack
from infra.stacks.functions import LakeFunction
from infra.stacks.grants import READ_GLUE, grant_catalog, grant_objects
from infra.stacks.storage import StorageStack
from infra.stage import Stage


class Canary(Construct):
    def __init__(
        self, scope: Construct, id: str, *, stage: Stage, storage: StorageStack, compute: ComputeStack
    ) -> None:
        super().__init__(scope, id)
        function = LakeFunction(
            self,
            "Function",
            stage=stage,
            name="canary",
            extra="api",  # the API's image: it reads what the API reads
            environment=compute.settings(),
            timeout=Duration.minutes(1),
            memory_mb=1024,
            concurrency=None,
            key=storage.key,
            dead_letters=compute.undelivered,
        ).function
        grant_objects(
            function,
            storage.bucket,
            storage.key,
            read=(
                s3_layout.TABLES,
                s3_layout.ATTESTATIONS,
                s3_layout.TIMELINE,
                s3_layout.TIMELINE_STORE,
                s3_layout.VECTORS,
            ),
        )
        grant_catalog(function, Stack.of(self), *READ_GLUE)
        role = iam.Role(self, "ScheduleRole", assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"))
        role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function.function_arn]))
        compute.undelivered.grant_send_messages(role)
        minutes = stage.canary_minutes
        scheduler.CfnSchedule(
            self,
            "Schedule",
            name=stage.resource("canary"),
            schedule_expression=f"rate({minutes} minute{'s' * (minutes > 1)})",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function.function_arn,
                role_arn=role.role_arn,
                input="{}",
                retry_policy=DELIVERY,
                dead_letter_config=compute.dead_letter_config(),
            ),
        )
