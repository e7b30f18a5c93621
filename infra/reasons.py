"""Why the stacks are as they are where a rule would have them otherwise. Tests ask for a reason here, and for no other.

A wildcard in a policy, a function without a limit of its own, a finding of cdk-nag: each has a line, or the tests fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from catalog import places

PREFIXES = tuple(
    value for name, value in vars(places).items() if name.isupper() and isinstance(value, str) and value.endswith("/")
)


@dataclass(frozen=True)
class Wildcard:
    """An Allow that has a `*`: for these actions, on this resource as it is rendered. Both are patterns."""

    actions: str
    resource: str
    reason: str

    def explains(self, action: str, resource: str) -> bool:
        return bool(re.fullmatch(self.actions, action) and re.fullmatch(self.resource, resource))


_PREFIX = "|".join(map(re.escape, PREFIXES))
WILDCARDS = (
    Wildcard(
        r"s3:(GetObject|GetObjectVersion|PutObject|AbortMultipartUpload|DeleteObject)",
        rf"\$\{{.*Lake.*Arn.*\}}/({_PREFIX})\*",
        "objects below one prefix of catalog/places.py: what they are called is known when they are written",
    ),
    Wildcard(
        r"glue:\w+",
        r".*:(database|table)/\*",
        "databases and tables are made at run time, by the API and by what lands; all of the catalog is the lake's",
    ),
    Wildcard(
        r"emr-serverless:(Get|Cancel)JobRun",
        r"\$\{.*Application.*Arn.*\}/jobruns/\*",
        "runs of the one application: each is named when it starts",
    ),
    Wildcard(r"xray:Put(TraceSegments|TelemetryRecords)", r"\*", "X-Ray knows no resources to name"),
    Wildcard(
        r"kms:\*", r"key policy: \*", "the account's own policies decide about its key; without this nobody could"
    ),
    Wildcard(r"kms:[A-Za-z]+\*?", r"key policy: \*", "in a key's own policy the resource is that key, however written"),
    Wildcard(r"s3:PutObject", r"\$\{AccessLogs\w+\.Arn\}/lake/\*", "S3 names its access logs itself"),
    Wildcard(
        r"s3:(GetObjectVersion(ForReplication|Acl|Tagging)|Replicate(Object|Tags))",
        r".*(Lake.*Arn\}|-replica-.*)/\*",
        "every object is replicated",
    ),
    Wildcard(
        r"kms:Encrypt", r".*:key/\*", "the replica's key is of another region: known by its alias, in a condition"
    ),
)

UNRESERVED = {
    "ingest": "its event source takes `ingest_concurrency` batches at once; a reservation would count twice",
    "api": "the gateway throttles, and a new account has too few concurrent executions to set any aside: see "
    "`api_concurrency` for stages that can",
}


@dataclass(frozen=True)
class Finding:
    """A finding of cdk-nag that stays: of this rule, at constructs whose path ends so (a pattern)."""

    rule: str
    where: str
    reason: str


NAG = (
    Finding(
        "AwsSolutions-IAM5",
        r"Role/DefaultPolicy/Resource|Replicator/DefaultPolicy/Resource",
        "each wildcard has a line of its own in WILDCARDS, and a test holds every policy to them",
    ),
    Finding(
        "AwsSolutions-APIG4",
        r"-api/(Get\w+|Elsewhere)",
        "public on purpose: catalog/access/routes.py says which, and a test that no other is",
    ),
    Finding(
        "AwsSolutions-SMG4",
        r"SigningKey/Resource",
        "the seed of the timeline's key: a new one is a new entry in the published key list, made by a person who "
        "announces it and never by a timer",
    ),
    Finding("AwsSolutions-SQS3", r"Undelivered/Resource", "it is the dead-letter queue, of the schedules"),
    Finding("AwsSolutions-SQS3", r"-jobs/Failed/Resource", "it is the dead-letter queue, of the jobs"),
    Finding("AwsSolutions-S1", r"Replica/Resource", "S3 alone writes there; who reads the lake is in the lake's log"),
    Finding(
        "AwsSolutions-COG8",
        r"People/Resource",
        "the Plus plan is paid for by the user; MFA is required, and nobody signs up by themselves",
    ),
    Finding("AwsSolutions-CFR1", r"TimelineCdn/.*", "proofs are for anybody, wherever they are"),
    Finding("AwsSolutions-CFR2", r"TimelineCdn/.*", "public, static objects behind a cache: nothing to keep out"),
    Finding("AwsSolutions-CFR3", r"TimelineCdn/.*", "who reads what is public is nobody's business; metrics count"),
    Finding(
        "AwsSolutions-CFR4",
        r"TimelineCdn/.*",
        "without a domain of its own it has CloudFront's certificate, which fixes the protocols",
    ),
)


def unexplained(actions: Iterator[str], resource: str) -> list[str]:
    """Those of the actions whose wildcard, in them or in the resource, nothing above explains."""
    return [
        action
        for action in actions
        if ("*" in action or "*" in resource) and not any(one.explains(action, resource) for one in WILDCARDS)
    ]
