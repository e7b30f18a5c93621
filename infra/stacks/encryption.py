"""The lake's customer managed KMS key, for stages with `customer_key`, and its key policy."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.stage import Stage

# Services that publish to the alarm topic, which the key encrypts.
PUBLISHERS = ("cloudwatch", "budgets")


def lake_key(scope: Construct, stage: Stage, removal: RemovalPolicy) -> kms.Key:
    """KMS rotates it yearly and keeps the old key material for decryption. Deletion takes effect after 30 days."""
    key = kms.Key(
        scope,
        "Key",
        alias=f"alias/{stage.resource('lake')}",
        description=f"Encrypts the lake's objects, its signing key and its alarms ({stage.name})",
        enable_key_rotation=True,
        rotation_period=Duration.days(365),
        pending_window=Duration.days(30),
        removal_policy=removal,
    )
    key.add_to_resource_policy(
        iam.PolicyStatement(
            sid="AlarmsArePublished",
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=["*"],
            principals=[iam.ServicePrincipal(f"{service}.amazonaws.com") for service in PUBLISHERS],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}},
        )
    )
    return key
