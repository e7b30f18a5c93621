"""The stacks' exceptions to security rules, each with its reason. The tests accept no others.

A wildcard in a policy, a function without reserved concurrency and a cdk-nag finding each need an entry here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from catalog.core import s3_layout

PREFIXES = tuple(
    value
    for name, value in vars(s3_layout).items()
    if name.isupper() and isinstance(value, str) and value.endswith("/")
)


@dataclass(frozen=True)
class Wildcard:
    """An Allow statement with a `*`. `actions` and `resource` are regular expressions; `resource` as rendered."""

    actions: str
    resource: str
    reason: str

    def explains(self, action: str, resource: str) -> bool:
        return bool(re.fullmatch(self.actions, action) and re.fullmatch(self.resource, resource))


_PREFIX = "|".join(map(re.escape, PREFIXES))
WILDCARDS = (
    Wildcard(
        r"s3:(GetObject|GetObjectVersion|PutObject|AbortMultipartUpload|DeleteObject(Version)?)",
        rf"\$\{{.*Lake.*Arn.*\}}/({_PREFIX})(starts/)?\*",
        "objects below one prefix of catalog/core/s3_layout.py: their names are chosen when they are written",
    ),
    Wildcard(
        r"glue:\w+",
        r".*:(database|table)/\*",
        "the API and ingestion create databases and tables at run time; the whole Glue catalog belongs to the lake",
    ),
    Wildcard(
        r"emr-serverless:(Get|Cancel)JobRun",
        r"\$\{.*Application.*Arn.*\}/jobruns/\*",
        "job runs of the lake's application: EMR assigns their ids when they start",
    ),
    Wildcard(r"xray:Put(TraceSegments|TelemetryRecords)", r"\*", "X-Ray has no resources to name"),
    Wildcard(
        r"kms:\*",
        r"key policy: \*",
        "delegates the key to the account's IAM policies; without this nobody could use or manage it",
    ),
    Wildcard(r"kms:[A-Za-z]+\*?", r"key policy: \*", "in a key policy, `*` means that key"),
    Wildcard(r"s3:PutObject", r"\$\{AccessLogs\w+\.Arn\}/lake/\*", "S3 chooses the names of its access logs"),
    Wildcard(
        r"s3:(GetObjectVersion(ForReplication|Acl|Tagging)|Replicate(Object|Tags))",
        r".*(Lake.*Arn\}|-replica-.*)/\*",
        "every object is replicated",
    ),
    Wildcard(r"kms:Encrypt", r".*:key/\*", "the replica's key is in another region: a condition names it by its alias"),
)

UNRESERVED = {
    "canary": "a schedule invokes it, once in `canary_minutes`",
    "starter": "schedules invoke it, once in an hour",
    "sequencer": "its FIFO queue has one message group, so that one batch at a time is in flight",
    "ingest": "its event source mapping limits it to `ingest_concurrency`; reserving would set aside the same twice",
    "erase": "its FIFO queue has one message group, so that one request at a time is served",
    "public": "it shares what the API function leaves: stages of larger accounts set `api_concurrency`",
    "api": "API Gateway throttles, and a new account has too few concurrent executions to reserve any; stages of "
    "larger accounts set `api_concurrency`",
}


@dataclass(frozen=True)
class Finding:
    """An accepted cdk-nag finding. `where` is a regular expression for the end of the construct's path."""

    rule: str
    where: str
    reason: str


NAG = (
    Finding(
        "AwsSolutions-IAM5",
        r"Role/DefaultPolicy/Resource|Replicator/DefaultPolicy/Resource",
        "each wildcard has an entry in WILDCARDS, and a test checks every policy against them",
    ),
    Finding(
        "AwsSolutions-APIG4",
        r"-api/Get\w+",
        "public on purpose: catalog/access/routes.py lists the public routes, and a test allows no other",
    ),
    Finding(
        "AwsSolutions-SMG4",
        r"SigningKey/Resource",
        "the seed of the timeline's signing key: rotating it adds an entry to the published keyring, which a person "
        "does and announces, never a timer",
    ),
    Finding("AwsSolutions-DDB3", r"Usage/Resource", "counters of the last hour: there is nothing to restore"),
    Finding("AwsSolutions-SQS3", r"Undelivered/Resource", "it is the schedules' dead-letter queue"),
    Finding("AwsSolutions-SQS3", r"-jobs/Failed/Resource", "it is the jobs' dead-letter queue"),
    Finding("AwsSolutions-S1", r"Replica/Resource", "only S3 writes to it; the lake's bucket has access logs"),
    Finding(
        "AwsSolutions-COG8",
        r"People/Resource",
        "the Plus plan costs money per user; MFA is required, and self sign-up is off",
    ),
    Finding("AwsSolutions-CFR1", r"TimelineCdn/.*", "proofs are public in every country"),
    Finding("AwsSolutions-CFR2", r"TimelineCdn/.*", "public, static objects behind a cache: no need for a WAF"),
    Finding("AwsSolutions-CFR3", r"TimelineCdn/.*", "readers of public objects are not logged; metrics count requests"),
    Finding(
        "AwsSolutions-CFR4",
        r"TimelineCdn/.*",
        "without a custom domain it uses CloudFront's certificate, which fixes the TLS versions",
    ),
)


def unexplained(actions: Iterator[str], resource: str) -> list[str]:
    """The actions that have a wildcard, in the action or in the resource, without an entry in WILDCARDS."""
    return [
        action
        for action in actions
        if ("*" in action or "*" in resource) and not any(wildcard.explains(action, resource) for wildcard in WILDCARDS)
    ]
