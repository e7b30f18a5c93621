"""The replica: a bucket in another region that S3 replicates every new object to. Optional (`replica_region`)."""

from __future__ import annotations

from aws_cdk import ArnFormat, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.stage import Stage

REPLICATION_RULE = "lake"


class ReplicaStack(Stack):
    """Deployed to the other region before the storage stack, which refers to the bucket and its key by name.

    Deletions are not replicated, so an object deleted from the lake stays in the replica. Restoring is manual.
    """

    def __init__(self, scope: Construct, id: str, *, stage: Stage, **options: object) -> None:
        super().__init__(scope, id, termination_protection=stage.retain_data, **options)  # type: ignore[arg-type]
        removal = RemovalPolicy.RETAIN if stage.retain_data else RemovalPolicy.DESTROY
        key = None
        if stage.customer_key:
            key = kms.Key(
                self,
                "Key",
                alias=f"alias/{stage.resource('replica')}",
                enable_key_rotation=True,
                removal_policy=removal,
            )
        s3.Bucket(
            self,
            "Replica",
            bucket_name=bucket_name(self, stage),
            versioned=True,
            encryption=s3.BucketEncryption.S3_MANAGED if key is None else s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=None if key is None else True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            removal_policy=removal,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=Duration.days(30),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )


def bucket_name(stack: Stack, stage: Stage) -> str:
    return f"{stage.resource('replica')}-{stack.account}"


def replicate(stack: Stack, bucket: s3.Bucket, key: kms.Key | None, stage: Stage) -> None:
    """Configures replication of every new object of `bucket`, with a role that can do nothing else."""
    role = iam.Role(stack, "Replicator", assumed_by=iam.ServicePrincipal("s3.amazonaws.com"))
    replica = f"arn:aws:s3:::{bucket_name(stack, stage)}"
    read = ["s3:GetObjectVersionForReplication", "s3:GetObjectVersionAcl", "s3:GetObjectVersionTagging"]
    grants = [
        (["s3:GetReplicationConfiguration", "s3:ListBucket"], bucket.bucket_arn),
        (read, bucket.arn_for_objects("*")),
        (["s3:ReplicateObject", "s3:ReplicateTags"], f"{replica}/*"),
    ]
    # S3 publishes a rule's metrics only if they are turned on; they are billed like custom metrics.
    destination: dict[str, object] = {"bucket": replica, "metrics": s3.CfnBucket.MetricsProperty(status="Enabled")}
    criteria = None
    if key is not None:
        alias = stack.format_arn(
            service="kms",
            region=stage.replica_region,
            resource="alias",
            resource_name=stage.resource("replica"),
            arn_format=ArnFormat.SLASH_RESOURCE_NAME,
        )
        grants.append((["kms:Decrypt"], key.key_arn))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["kms:Encrypt"],
                resources=[stack.format_arn(service="kms", region=stage.replica_region, resource="key/*")],
                conditions={"StringLike": {"kms:ResourceAliases": f"alias/{stage.resource('replica')}"}},
            )
        )
        destination["encryption_configuration"] = s3.CfnBucket.EncryptionConfigurationProperty(replica_kms_key_id=alias)
        criteria = s3.CfnBucket.SourceSelectionCriteriaProperty(
            sse_kms_encrypted_objects=s3.CfnBucket.SseKmsEncryptedObjectsProperty(status="Enabled")
        )
    for actions, resource in grants:
        role.add_to_policy(iam.PolicyStatement(actions=actions, resources=[resource]))
    cfn_bucket = bucket.node.default_child
    assert isinstance(cfn_bucket, s3.CfnBucket)
    cfn_bucket.replication_configuration = s3.CfnBucket.ReplicationConfigurationProperty(
        role=role.role_arn,
        rules=[
            s3.CfnBucket.ReplicationRuleProperty(
                id=REPLICATION_RULE,
                status="Enabled",
                priority=1,
                filter=s3.CfnBucket.ReplicationRuleFilterProperty(prefix=""),
                delete_marker_replication=s3.CfnBucket.DeleteMarkerReplicationProperty(status="Disabled"),
                destination=s3.CfnBucket.ReplicationDestinationProperty(**destination),  # type: ignore[arg-type]
                source_selection_criteria=criteria,
            )
        ],
    )
