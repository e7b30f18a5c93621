"""What a role may do with the lake's objects, prefix by prefix, in the exact actions that it needs.

The CDK's own `grant_read` and `grant_put` give patterns of actions: tagging, legal hold, retention, bucket settings.
"""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

READ_GLUE = ("glue:GetDatabase", "glue:GetDatabases", "glue:GetTable", "glue:GetTables")


def grant_objects(
    role: iam.IGrantable,
    bucket: s3.IBucket,
    key: kms.IKey | None,
    *,
    read: Iterable[str] = (),
    versions: Iterable[str] = (),
    put: Iterable[str] = (),
    delete: Iterable[str] = (),
) -> None:
    """Objects below the prefixes may be read, read by their version, written, deleted. Nothing else of the bucket.

    Deleting leaves the older versions: only the bucket's lifecycle removes those. Listing is of the whole bucket, for
    names say little, and without it S3 answers 403 instead of 404 for an object that is not there; a condition on the
    prefix would do the same, since a GET has none.
    """
    _allow(role, bucket, ["s3:GetObject"], read)
    _allow(role, bucket, ["s3:GetObjectVersion"], versions)
    _allow(role, bucket, ["s3:PutObject", "s3:AbortMultipartUpload"], put)
    _allow(role, bucket, ["s3:DeleteObject"], delete)
    role.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(actions=["s3:ListBucket"], resources=[bucket.bucket_arn])
    )
    if key is not None:
        role.grant_principal.add_to_principal_policy(
            iam.PolicyStatement(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[key.key_arn])
        )


def grant_catalog(role: iam.IGrantable, stack: Stack, *actions: str) -> None:
    """Glue actions on every database and table: which there are is known at run time only."""
    arns = [stack.format_arn(service="glue", resource=what) for what in ("catalog", "database/*", "table/*")]
    role.grant_principal.add_to_principal_policy(iam.PolicyStatement(actions=list(actions), resources=arns))


def _allow(role: iam.IGrantable, bucket: s3.IBucket, actions: list[str], prefixes: Iterable[str]) -> None:
    arns = [bucket.arn_for_objects(f"{prefix}*") for prefix in prefixes]
    if arns:
        role.grant_principal.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=arns))
