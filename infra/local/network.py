"""Which services a kind of compute reaches. A function without a VPC reaches all; a job without one only some.

docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/vpc-access.html: without a VPC, a job reaches these in its own
region, and nothing else.
"""

from __future__ import annotations

JOB_PRINCIPAL = "job."
REACHED_BY_JOBS = frozenset({"s3", "glue", "lakeformation", "logs", "kms", "sts", "dynamodb", "secretsmanager"})


def reaches(principal: str, service: str) -> bool:
    """`principal` as an access key id: `job.compact`."""
    return not principal.startswith(JOB_PRINCIPAL) or service in REACHED_BY_JOBS
