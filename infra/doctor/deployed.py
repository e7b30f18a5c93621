"""A deployed lake, walked from the bucket to the jobs: each step that a file and a query take. Reads only."""

from __future__ import annotations

import json
from collections.abc import Iterator

from catalog.core import s3_layout
from infra.doctor.account import ClientFor
from infra.doctor.finding import Check, Finding, run_checks
from infra.stage import Stage

STACKS = ("storage", "compute", "jobs", "api", "observe")
FUNCTIONS = ("ingest", "sequencer", "api", "public", "starter", "canary")
DEAD_LETTERS = ("landed-dead", "moved-dead.fifo", "jobs-dead", "undelivered")
WAITING = "ApproximateNumberOfMessages"


def deployed(stage: Stage, client: ClientFor) -> Iterator[Finding]:
    checks: list[tuple[str, Check]] = [
        ("stacks", lambda: _stacks(stage, client)),
        ("bucket", lambda: _bucket(stage, client)),
        ("events", lambda: _events(stage, client)),
        ("functions", lambda: _functions(stage, client)),
        ("mappings", lambda: _mappings(stage, client)),
        ("dead letters", lambda: _dead_letters(stage, client)),
        ("checkpoint", lambda: _checkpoint(stage, client)),
        ("reads", lambda: _reads(stage, client)),
        ("jobs", lambda: _jobs(stage, client)),
        ("alarms", lambda: _alarms(stage, client)),
    ]
    return run_checks(checks)


def _stacks(stage: Stage, client: ClientFor) -> Finding:
    states = {
        stack["StackName"]: stack["StackStatus"] for stack in client("cloudformation").describe_stacks()["Stacks"]
    }
    wanted = [stage.resource(part) for part in STACKS]
    bad = [f"{name} is {states.get(name, 'not deployed')}" for name in wanted if not _complete(states.get(name, ""))]
    return Finding("stacks", not bad, ", ".join(bad) or "complete", f"run `cdk deploy --all -c stage={stage.name}`")


def _complete(status: str) -> bool:
    return status.endswith("_COMPLETE") and "ROLLBACK" not in status and "DELETE" not in status


def _bucket(stage: Stage, client: ClientFor) -> Finding:
    name = _lake_bucket(stage, client)
    versions = client("s3").get_bucket_versioning(Bucket=name).get("Status")
    return Finding("bucket", versions == "Enabled", f"{name}, versions {versions}", "deploy the storage stack again")


def _events(stage: Stage, client: ClientFor) -> Finding:
    configuration = client("s3").get_bucket_notification_configuration(Bucket=_lake_bucket(stage, client))
    announced = {
        rule["Value"]
        for entry in configuration.get("QueueConfigurations", [])
        for rule in entry["Filter"]["Key"]["FilterRules"]
        if entry["QueueArn"].endswith(f":{stage.resource('landed')}")
    }
    missing = [prefix for prefix in (s3_layout.LANDING, s3_layout.MESSAGES) if prefix not in announced]
    seen = f"S3 does not announce {', '.join(missing)}" if missing else "S3 announces landed files and jobs' messages"
    return Finding("events", not missing, seen, "deploy the storage stack again")


def _functions(stage: Stage, client: ClientFor) -> Finding:
    bad = []
    for name in (*FUNCTIONS, *(("erase",) if stage.erase_requests else ())):
        configuration = client("lambda").get_function_configuration(FunctionName=stage.resource(name))
        if configuration.get("State", "Active") not in ("Active", "Inactive"):  # idle ones become inactive
            bad.append(f"{name} is {configuration['State']}: {configuration.get('StateReason', '')}")
    return Finding("functions", not bad, ", ".join(bad) or "active", "see the function's log group, and deploy again")


def _mappings(stage: Stage, client: ClientFor) -> Finding:
    bad = []
    for name in ("ingest", "sequencer"):
        mappings = client("lambda").list_event_source_mappings(FunctionName=stage.resource(name))["EventSourceMappings"]
        if not any(mapping.get("State", "Enabled") == "Enabled" for mapping in mappings):
            bad.append(f"{name} does not receive messages")
    then = "enable it: `aws lambda update-event-source-mapping --enabled --uuid …`"
    return Finding("mappings", not bad, ", ".join(bad) or "both queues are read", then)


def _dead_letters(stage: Stage, client: ClientFor) -> Finding:
    sqs, full = client("sqs"), list[str]()
    for name in DEAD_LETTERS:
        url = sqs.get_queue_url(QueueName=stage.resource(name))["QueueUrl"]
        count = int(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[WAITING])["Attributes"][WAITING])
        if count:
            full.append(f"{count} in {stage.resource(name)}")
    then = "read them; `strandline ingest redrive` delivers files again"
    return Finding("dead letters", not full, ", ".join(full) or "none", then)


def _checkpoint(stage: Stage, client: ClientFor) -> Finding:
    listed = client("s3").list_objects_v2(
        Bucket=_lake_bucket(stage, client), Prefix=f"{s3_layout.TIMELINE}checkpoint", MaxKeys=1
    )
    if not listed.get("KeyCount"):
        then = "land a file (docs/guide/deploy.md); if one has landed, see the sequencer's log"
        return Finding("checkpoint", False, "the timeline has no checkpoint yet", then)
    return Finding("checkpoint", True, f"of {listed['Contents'][0]['LastModified']:%Y-%m-%d %H:%M:%S} UTC")


def _reads(stage: Stage, client: ClientFor) -> Finding:
    """What the canary's function reads under its own role, now."""
    then = "docs/guide/operate.md says what each read is; the canary's log has the whole error"
    response = client("lambda").invoke(FunctionName=stage.resource("canary"), Payload=b"{}")
    result = json.loads(response["Payload"].read())
    if "FunctionError" in response:
        return Finding("reads", False, f"the canary failed: {result.get('errorMessage', result)}", then)
    failed = [
        f"{read['read']}{' of ' + read['table'] if read['table'] else ''}: {read['error']['message']}"
        for read in result["reads"]
        if read["error"]
    ]
    seen = f"{len(result['reads'])} kinds of reads and proofs answered"
    return Finding("reads", not failed, "; ".join(failed) or seen, then)


def _jobs(stage: Stage, client: ClientFor) -> Finding:
    applications = client("emr-serverless").list_applications()["applications"]
    states = [one["state"] for one in applications if one["name"] == stage.resource("jobs")]
    live = [state for state in states if state not in ("TERMINATED", "STOPPING")]
    seen = live[0] if live else "there is no application"
    return Finding("jobs", bool(live), seen, "deploy the jobs stack again")


def _alarms(stage: Stage, client: ClientFor) -> Finding:
    pages = client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=stage.resource(""))
    alarms = [alarm for page in pages for alarm in page["MetricAlarms"]]
    names = [alarm["AlarmName"] for alarm in alarms if alarm["StateValue"] == "ALARM"]
    return Finding(
        "alarms", not names, ", ".join(names) or "none rings", "docs/guide/operate.md says what each one means"
    )


def _lake_bucket(stage: Stage, client: ClientFor) -> str:
    resources = client("cloudformation").describe_stack_resources(StackName=stage.resource("storage"))["StackResources"]
    return next(
        str(one["PhysicalResourceId"])
        for one in resources
        if one["ResourceType"] == "AWS::S3::Bucket" and one["LogicalResourceId"].startswith("Lake")
    )
