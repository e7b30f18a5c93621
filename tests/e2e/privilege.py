"""Least privilege, from a run's record: each role allows all that was really asked under it, and no other write."""

from __future__ import annotations

from collections.abc import Iterator

from catalog import places
from infra.local.assembly import resources
from infra.local.cloud import EmbeddedCloud
from infra.local.endpoint import access_key
from infra.local.permissions import Asked, Policies, asked_of, policies_of

TABLES = {places.TABLES, places.ATTESTATIONS, places.TRANSACTIONS}
TIMELINE = {places.TIMELINE, places.TIMELINE_STORE}

# Where each role may write, and where delete. Said here once more on purpose: a stack that grants more fails.
WRITES = {
    "sequencer": TABLES | TIMELINE,
    "ingest": TABLES | {places.QUARANTINE, places.RULES, places.INGESTED, places.MEDIA},
    "api": TABLES | {places.LANDING, places.REQUESTS, places.RESULTS, places.QUERIES, places.HISTORY, places.RULES},
    "job": TABLES | {places.JOBS, places.VECTORS, places.QUERIES, places.HISTORY},
}
DELETES = {
    "sequencer": TIMELINE | {places.TABLES, places.TRANSACTIONS},
    "ingest": {places.TABLES},
    "api": {places.TABLES, places.QUERIES, places.RULES},
    "job": {places.TABLES, places.VECTORS, places.QUERIES},
}
EVERYWHERE = {value for name, value in vars(places).items() if name.isupper()} | {"elsewhere/", ""}
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
    found = cloud.endpoint.client("lambda").list_functions()["Functions"]
    return {one["FunctionName"].rpartition("-")[2]: policies_of(cloud.endpoint, one["Role"]) for one in found}


def job_role(cloud: EmbeddedCloud) -> Policies:
    return policies_of(cloud.endpoint, "role/strandline-dev-job")


def asked_by(cloud: EmbeddedCloud, principal: str) -> set[Asked]:
    """All that was asked with the principal's credentials, by links that it signed too."""
    made = cloud.server.log.since(where=lambda request: request.principal.startswith(access_key(principal)))
    return {asked for request in made for asked in asked_of(request, cloud.endpoint)}


def asked_for_it(cloud: EmbeddedCloud, function: str) -> Iterator[Asked]:
    """What Lambda itself does under the function's role: reads its queue, and writes its log."""
    client, account = cloud.endpoint.client("lambda"), f"{cloud.endpoint.region}:{cloud.endpoint.account}"
    name = f"strandline-dev-{function}"
    for mapping in client.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]:
        for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"):
            yield Asked(f"sqs:{action}", mapping["EventSourceArn"])
    for action in ("CreateLogStream", "PutLogEvents"):
        # AWS ends a log group's ARN with `:*`, for its streams; moto's attribute does not.
        yield Asked(f"logs:{action}", f"arn:aws:logs:{account}:log-group:/aws/lambda/{name}")


def excesses(cloud: EmbeddedCloud, role: str, policies: Policies) -> list[Asked]:
    """Writes that the role allows and should not."""
    buckets = resources(cloud.endpoint, "AWS::S3::Bucket")
    lake = next(name for logical, name in buckets.items() if logical.startswith("Lake"))
    logs = next(name for logical, name in buckets.items() if logical.startswith("AccessLogs"))
    probes = [Asked(action, f"arn:aws:s3:::{lake}") for action in NOT_OF_THE_BUCKET]
    probes += [
        Asked("s3:PutObject", f"arn:aws:s3:::{logs}/lake/x"),
        Asked("s3:PutObject", "arn:aws:s3:::other/tables/x"),
    ]
    for prefix in EVERYWHERE:
        objects = f"arn:aws:s3:::{lake}/{prefix}x"
        probes += [Asked(action, objects) for action in NOBODY]
        probes += [Asked("s3:PutObject", objects)] * (prefix not in WRITES[role])
        probes += [Asked("s3:DeleteObject", objects)] * (prefix not in DELETES[role])
    return sorted(probe for probe in probes if policies.allows(probe))
