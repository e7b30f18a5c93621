"""Grants on the lake's objects by prefix, and on the Glue catalog, with exactly the actions that a role needs.

The CDK's `grant_read` and `grant_put` grant action patterns that include tagging, legal hold, retention and more.
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
    purge: Iterable[str] = (),
) -> None:
    """Lets the role read, read by version, write and delete objects below the prefixes, and list the whole bucket.

    A delete keeps the older versions, which only the bucket's lifecycle rules remove, and a role with `purge`. Without
    ListBucket, S3 responds 403 instead of 404 to a GET of a missing object. A condition on the prefix would have the
    same effect, since a GET has no prefix; so the grant covers all names.
    """
    _allow(role, bucket, ["s3:GetObject"], read)
    _allow(role, bucket, ["s3:GetObjectVersion"], versions)
    _allow(role, bucket, ["s3:PutObject", "s3:AbortMultipartUpload"], put)
    _allow(role, bucket, ["s3:DeleteObject"], delete)
    _allow(role, bucket, ["s3:DeleteObjectVersion"], purge)
    if purge:
        role.grant_principal.add_to_principal_policy(
            iam.PolicyStatement(actions=["s3:ListBucketVersions"], resources=[bucket.bucket_arn])
        )
    role.grant_principal.add_to_principal_policy(
        iam.PolicyStatement(actions=["s3:ListBucket"], resources=[bucket.bucket_arn])
    )
    if key is not None:
        role.grant_principal.add_to_principal_policy(
            iam.PolicyStatement(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[key.key_arn])
        )


def grant_catalog(role: iam.IGrantable, stack: Stack, *actions: str) -> None:
    """Grants Glue actions on every database and table, because they are created at run time."""
    arns = [stack.format_arn(service="glue", resource=name) for name in ("catalog", "database/*", "table/*")]
    role.grant_principal.add_to_principal_policy(iam.PolicyStatement(actions=list(actions), resources=arns))


def grant_job_runs(role: iam.IGrantable, application_arn: str, job_role_arn: str) -> None:
    """Allows starting and reading job runs of the lake's application, with the lake's job role."""
    for statement in (
        iam.PolicyStatement(actions=["emr-serverless:StartJobRun"], resources=[application_arn]),
        iam.PolicyStatement(actions=["emr-serverless:GetJobRun"], resources=[f"{application_arn}/jobruns/*"]),
        iam.PolicyStatement(
            actions=["iam:PassRole"],
            resources=[job_role_arn],
            conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
        ),
    ):
        role.grant_principal.add_to_principal_policy(statement)


def _allow(role: iam.IGrantable, bucket: s3.IBucket, actions: list[str], prefixes: Iterable[str]) -> None:
    arns = [bucket.arn_for_objects(f"{prefix}*") for prefix in prefixes]
    if arns:
        role.grant_principal.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=arns))
