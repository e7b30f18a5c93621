"""Least privilege, from a run's record: each role allows all that was really asked under it, and no other write."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.core import s3_layout
from infra.local.assembly import resources
from infra.local.cloud import EmbeddedCloud
from infra.local.endpoint import access_key
from infra.local.permissions import Policies, RequestedAction, policies_of, required_actions

TABLES = {s3_layout.TABLES, s3_layout.ATTESTATIONS, s3_layout.TRANSACTIONS}
TIMELINE = {s3_layout.TIMELINE, s3_layout.TIMELINE_ENTRIES, s3_layout.TIMELINE_STORE}

# Where each role may write, and where delete. Said here once more on purpose: a stack that grants more fails.
WRITES = {
    "sequencer": TABLES | TIMELINE,
    "ingest": TABLES | {s3_layout.QUARANTINE, s3_layout.RULES, s3_layout.INGESTED, s3_layout.MEDIA},
    "api": TABLES
    | {s3_layout.LANDING, s3_layout.REQUESTS, s3_layout.RESULTS, s3_layout.QUERIES, s3_layout.HISTORY, s3_layout.RULES}
    | {s3_layout.ERASE_REQUESTS},
    "public": set[str](),
    "canary": set[str](),
    "starter": set[str](),
    "job": TABLES | {s3_layout.JOBS, s3_layout.VECTORS, s3_layout.QUERIES, s3_layout.HISTORY, s3_layout.MESSAGES},
}
DELETES = {
    "sequencer": TIMELINE | {s3_layout.TABLES, s3_layout.TRANSACTIONS},
    "ingest": {s3_layout.TABLES},
    "api": {s3_layout.TABLES, s3_layout.QUERIES, s3_layout.RULES},
    "public": set[str](),
    "canary": set[str](),
    "starter": set[str](),
    "job": {s3_layout.TABLES, s3_layout.VECTORS, s3_layout.QUERIES},
}
EVERYWHERE = {value for name, value in vars(s3_layout).items() if name.isupper()} | {"elsewhere/", ""}
NOBODY = (
    "s3:DeleteObjectVersion",
    "s3:PutObjectAcl",
    "s3:PutObjectRetention",
    "s3:PutObjectTagging",
    "s3:BypassGovernanceRetention",
    "s3:ReplicateObject",
)
NOT_OF_THE_BUCKET = ("s3:DeleteBucket", "s3:PutBucketPolicy", "s3:PutLifecycleConfiguration", "s3:PutBucketVersioning")


def function_roles(cloud: EmbeddedCloud) -> dict[str, Policies]:
    """`{"ingest": what its role may}` of every deployed function."""
    functions = cloud.endpoint.client("lambda").list_functions()["Functions"]
    return {one["FunctionName"].rpartition("-")[2]: policies_of(cloud.endpoint, one["Role"]) for one in functions}


def job_role(cloud: EmbeddedCloud) -> Policies:
    return policies_of(cloud.endpoint, "role/strandline-dev-job")


def asked_by(cloud: EmbeddedCloud, principal: str) -> set[RequestedAction]:
    """All that was asked with the principal's credentials, by links that it signed too."""
    made = cloud.server.log.since(where=lambda request: request.principal.startswith(access_key(principal)))
    return {asked for request in made for asked in required_actions(request, cloud.endpoint)}


def asked_for_it(cloud: EmbeddedCloud, function: str) -> Iterator[RequestedAction]:
    """What Lambda itself does under the function's role: reads its queue, and writes its log."""
    client, account = cloud.endpoint.client("lambda"), f"{cloud.endpoint.region}:{cloud.endpoint.account}"
    name = f"strandline-dev-{function}"
    for mapping in client.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]:
        for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"):
            yield RequestedAction(f"sqs:{action}", mapping["EventSourceArn"])
    for action in ("CreateLogStream", "PutLogEvents"):
        # AWS ends a log group's ARN with `:*`, for its streams; moto's attribute does not.
        yield RequestedAction(f"logs:{action}", f"arn:aws:logs:{account}:log-group:/aws/lambda/{name}")


def excesses(cloud: EmbeddedCloud, role: str, policies: Policies) -> list[RequestedAction]:
    """Writes that the role allows and should not."""
    buckets = resources(cloud.endpoint, "AWS::S3::Bucket")
    lake = next(name for logical, name in buckets.items() if logical.startswith("Lake"))
    logs = next(name for logical, name in buckets.items() if logical.startswith("AccessLogs"))
    probes = [RequestedAction(action, f"arn:aws:s3:::{lake}") for action in NOT_OF_THE_BUCKET]
    probes += [
        RequestedAction("s3:PutObject", f"arn:aws:s3:::{logs}/lake/x"),
        RequestedAction("s3:PutObject", "arn:aws:s3:::other/tables/x"),
    ]
    for prefix in EVERYWHERE:
        objects = f"arn:aws:s3:::{lake}/{prefix}x"
        probes += [RequestedAction(action, objects) for action in NOBODY]
        probes += [RequestedAction("s3:PutObject", objects)] * (prefix not in WRITES[role])
        probes += [RequestedAction("s3:DeleteObject", objects)] * (prefix not in DELETES[role])
    return sorted(probe for probe in probes if policies.allows(probe))
