"""The lake's bucket and KMS key, Glue databases, the timeline's signing key, and the queue of landed files."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Aws, Duration, RemovalPolicy, Stack
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lakeformation as lakeformation
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from catalog.core import s3_layout
from infra.stacks.cdn import TimelineCdn
from infra.stacks.encryption import lake_key
from infra.stacks.queues import WorkQueue
from infra.stacks.replica import replicate
from infra.stage import Stage

LAYERS = ("bronze", "silver", "gold", "system")


@dataclass(frozen=True)
class Signer:
    """The key that signs checkpoints: its name in the settings, and what its user needs."""

    setting: str
    actions: tuple[str, ...]
    arn: str


class StorageStack(Stack):
    def __init__(self, scope: Construct, id: str, *, stage: Stage) -> None:
        super().__init__(scope, id, termination_protection=stage.retain_data)
        self._stage = stage
        self._removal = RemovalPolicy.RETAIN if stage.retain_data else RemovalPolicy.DESTROY
        self.key: kms.Key | None = lake_key(self, stage, self._removal) if stage.customer_key else None
        # Ingestion has no reserved concurrency: it is hardly ever throttled.
        self.landed = WorkQueue(
            self, "Landed", name=stage.resource("landed"), consumer_timeout=Duration.minutes(5), timeouts=1
        )
        self.access_logs = self._log_bucket()
        self.bucket = self._lake_bucket()
        self._notify_landed_files()
        self.signer = self._signer(stage)
        self._databases()
        if stage.replica_region:
            replicate(self, self.bucket, self.key, stage)
        if stage.timeline_cdn:
            TimelineCdn(self, "TimelineCdn", bucket=self.bucket, key=self.key, public_entries=stage.public_entries)
        if stage.lake_formation:
            self._lake_formation()

    def _log_bucket(self) -> s3.Bucket:
        """The target of S3 server access logs, which S3 delivers only to a bucket with SSE-S3 encryption."""
        return s3.Bucket(
            self,
            "AccessLogs",
            versioned=True,
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            removal_policy=self._removal,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=Duration.days(self._stage.log_retention_days),
                    noncurrent_version_expiration=Duration.days(1),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )

    def _lake_bucket(self) -> s3.Bucket:
        key = self.key
        return s3.Bucket(
            self,
            "Lake",
            versioned=True,
            encryption=s3.BucketEncryption.S3_MANAGED if key is None else s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=None if key is None else True,  # one request to KMS for many objects
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            server_access_logs_bucket=self.access_logs,
            server_access_logs_prefix="lake/",
            removal_policy=self._removal,
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(1)),
                # A delete marker without versions behind it has no use, and slows down every listing.
                s3.LifecycleRule(noncurrent_version_expiration=Duration.days(30), expired_object_delete_marker=True),
                s3.LifecycleRule(prefix=s3_layout.REQUESTS, expiration=Duration.days(s3_layout.REQUEST_DAYS)),
                s3.LifecycleRule(prefix=s3_layout.RESULTS, expiration=Duration.days(1)),
                s3.LifecycleRule(prefix=s3_layout.MESSAGES, expiration=Duration.days(1)),
                s3.LifecycleRule(prefix=s3_layout.HISTORY, expiration=Duration.days(90)),
                s3.LifecycleRule(prefix=s3_layout.ERASE_REQUESTS, expiration=Duration.days(90)),
                s3.LifecycleRule(
                    prefix=f"{s3_layout.JOBS}logs/", expiration=Duration.days(self._stage.log_retention_days)
                ),
                *self._tiers(),
            ],
        )

    def _tiers(self) -> list[s3.LifecycleRule]:
        """Moves layers to Intelligent-Tiering, where unread objects cost less and are read equally fast.

        The timeline is left out: tiles are small, and S3 does not tier objects under 128 KB.
        """
        return [
            s3.LifecycleRule(
                prefix=f"{s3_layout.TABLES}{layer}/" if layer in LAYERS else f"{layer}/",
                transitions=[
                    s3.Transition(
                        storage_class=s3.StorageClass.INTELLIGENT_TIERING, transition_after=Duration.days(days)
                    )
                ],
            )
            for layer, days in sorted(self._stage.tier_after_days.items())
        ]

    def _lake_formation(self) -> None:
        """Registers the tables' location with Lake Formation in hybrid access mode, where IAM grants stay in force.

        Lake Formation permissions apply only to principals that are opted in, for each database.
        """
        lakeformation.CfnResource(
            self,
            "Location",
            resource_arn=self.bucket.arn_for_objects(s3_layout.TABLES.rstrip("/")),
            use_service_linked_role=True,
            hybrid_access_enabled=True,
        )

    def _notify_landed_files(self) -> None:
        """Sends S3 event notifications for landed files, and for requests of jobs, to the queue.

        A property of the bucket.
        The CDK's `add_event_notification` would deploy a custom resource: one more function to run, pay and trust.
        The property needs the queue's policy to exist first, hence the dependency.
        """
        self.landed.queue.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                resources=[self.landed.queue.queue_arn],
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                # The policy must exist before the bucket, so it cannot refer to it: CloudFormation begins the bucket's
                # name with that of the stack.
                conditions={
                    "StringEquals": {"aws:SourceAccount": self.account},
                    "ArnLike": {"aws:SourceArn": f"arn:{Aws.PARTITION}:s3:::{self.stack_name.lower()}-*"},
                },
            )
        )
        bucket = self.bucket.node.default_child
        assert isinstance(bucket, s3.CfnBucket)
        bucket.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            queue_configurations=[
                s3.CfnBucket.QueueConfigurationProperty(
                    event="s3:ObjectCreated:*",
                    queue=self.landed.queue.queue_arn,
                    filter=s3.CfnBucket.NotificationFilterProperty(
                        s3_key=s3.CfnBucket.S3KeyFilterProperty(
                            rules=[s3.CfnBucket.FilterRuleProperty(name="prefix", value=prefix)]
                        )
                    ),
                )
                for prefix in (s3_layout.LANDING, s3_layout.MESSAGES)
            ]
        )
        policy = self.landed.queue.node.find_child("Policy").node.default_child
        bucket.node.add_dependency(policy)

    def _signer(self, stage: Stage) -> Signer:
        """The key that signs checkpoints. Only the sequencer may use it; a key in KMS nobody can read."""
        if stage.signing == "kms":
            key = kms.Key(
                self,
                "Signer",
                alias=f"alias/{stage.resource('signing')}",
                description=f"Signs the timeline's checkpoints ({stage.name})",
                key_spec=kms.KeySpec.ECC_NIST_EDWARDS25519,
                key_usage=kms.KeyUsage.SIGN_VERIFY,
                pending_window=Duration.days(30),
                removal_policy=self._removal,
            )
            return Signer(f"kms:{key.key_arn}", ("kms:Sign", "kms:GetPublicKey"), key.key_arn)
        secret = secretsmanager.Secret(
            self,
            "SigningKey",
            secret_name=stage.resource("signing-key"),
            description="Seed of the Ed25519 key that signs the timeline's checkpoints",
            removal_policy=self._removal,
            encryption_key=self.key,
            generate_secret_string=secretsmanager.SecretStringGenerator(password_length=64, exclude_punctuation=True),
        )
        return Signer(f"secret:{secret.secret_arn}", ("secretsmanager:GetSecretValue",), secret.secret_arn)

    def _databases(self) -> None:
        for layer in LAYERS:
            database = glue.CfnDatabase(
                self,
                layer.capitalize(),
                catalog_id=self.account,
                database_input=glue.CfnDatabase.DatabaseInputProperty(
                    name=layer, location_uri=self.bucket.s3_url_for_object(f"{s3_layout.TABLES}{layer}")
                ),
            )
            database.apply_removal_policy(self._removal)
