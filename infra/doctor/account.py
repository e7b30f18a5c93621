"""An account before a deployment: credentials, bootstrap, quotas, names, issuer, region. Reads only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import botocore.session
import urllib3
from botocore.exceptions import ClientError

from infra.doctor.finding import Check, Finding, run_checks
from infra.job_workers import maximum_capacity
from infra.pinned_bases import unpinned_bases
from infra.stacks.storage import LAYERS
from infra.stage import PROJECT, Stage

BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_MIN = 28
"""The asset repository of an older bootstrap may not let EMR Serverless pull images."""
UNRESERVED_MINIMUM = 100
OTHERS = 4
"""Executions that the sequencer, the starter, the canary and the API need at least, besides ingestion's."""
SERVICES = (
    *("apigatewayv2", "cloudformation", "cognito-idp", "ecr", "emr-serverless", "events", "glue", "kms", "lambda"),
    *("logs", "s3", "scheduler", "secretsmanager", "sns", "sqs"),
)
REQUEST_QUOTA = "request more: `aws service-quotas request-service-quota-increase`"

ClientFor = Callable[[str], Any]


def account(stage: Stage, region: str | None, client: ClientFor) -> Iterator[Finding]:
    """The findings for a deployment of the stage. `client` makes a client of a service in the region."""
    checks: list[tuple[str, Check]] = [
        ("region", lambda: _region(region)),
        ("credentials", lambda: _credentials(client)),
        ("bootstrap", lambda: _bootstrap(client, region)),
        ("lambda quota", lambda: _lambda_quota(stage, client)),
        ("emr quota", lambda: _emr_quota(stage, client)),
        ("names", lambda: _names(stage, client)),
        ("issuer", lambda: _issuer(stage)),
        ("images", lambda: _images(stage)),
    ]
    return run_checks(checks)


def _region(region: str | None) -> Finding:
    if region is None:
        return Finding("region", False, "none", "choose one: `export AWS_REGION=eu-west-1`")
    session = botocore.session.get_session()
    missing = [name for name in SERVICES if region not in session.get_available_regions(name)]
    seen = f"{region} lacks {', '.join(missing)}" if missing else region
    return Finding("region", not missing, seen, "choose a region that has every service: `export AWS_REGION=eu-west-1`")


def _credentials(client: ClientFor) -> Finding:
    try:
        caller = client("sts").get_caller_identity()
    except Exception as error:
        return Finding("credentials", False, " ".join(str(error).split()), "run `aws configure sso` or `aws login`")
    return Finding("credentials", True, str(caller["Arn"]))


def _bootstrap(client: ClientFor, region: str | None) -> Finding:
    then = f"run `cdk bootstrap aws://ACCOUNT/{region}`"
    try:
        version = int(client("ssm").get_parameter(Name=BOOTSTRAP)["Parameter"]["Value"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        return Finding("bootstrap", False, "the region is not bootstrapped", then)
    return Finding("bootstrap", version >= BOOTSTRAP_MIN, f"version {version}", then)


def _lambda_quota(stage: Stage, client: ClientFor) -> Finding:
    limit = int(client("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"])
    needed = stage.ingest_concurrency + OTHERS
    if stage.api_concurrency:
        needed = max(needed, stage.api_concurrency + UNRESERVED_MINIMUM)
    seen = f"{limit} concurrent executions, and the stage needs {needed}"
    return Finding(
        "lambda quota", limit >= needed, seen, f"lower `ingest_concurrency` and `api_concurrency`, or {REQUEST_QUOTA}"
    )


def _emr_quota(stage: Stage, client: ClientFor) -> Finding:
    pages = client("service-quotas").get_paginator("list_service_quotas").paginate(ServiceCode="emr-serverless")
    quotas = {quota["QuotaName"]: float(quota["Value"]) for page in pages for quota in page["Quotas"]}
    limit = next((value for name, value in quotas.items() if "vcpu" in name.lower()), None)
    if limit is None:
        return Finding(
            "emr quota", False, "EMR Serverless lists no quota of vCPUs", "look at the Service Quotas console"
        )
    needed = maximum_capacity(stage).vcpus
    seen = f"{limit:g} vCPU, and two runs of the stage need {needed}"
    return Finding("emr quota", limit >= needed, seen, f"lower `job_executors`, or {REQUEST_QUOTA}")


def _names(stage: Stage, client: ClientFor) -> Finding:
    """Whether what the storage stack would create exists already, though the stack does not."""
    if _stack_exists(client, stage.resource("storage")):
        return Finding("names", True, f"{stage.resource('storage')} is deployed: its names are its own")
    pages = client("glue").get_paginator("get_databases").paginate()
    databases = {database["Name"] for page in pages for database in page["DatabaseList"]}
    taken = [f"Glue database {name}" for name in LAYERS if name in databases]
    listed = client("sqs").list_queues(QueueNamePrefix=f"{PROJECT}-{stage.name}-").get("QueueUrls", [])
    taken += [f"queue {url.rpartition('/')[2]}" for url in listed]
    then = "deploy to another account or region, or remove or import what is there"
    return Finding("names", not taken, ", ".join(taken) or "free", then)


def _issuer(stage: Stage) -> Finding:
    if stage.issuer is None:
        return Finding("issuer", True, "a Cognito user pool of the stack's own")
    url = f"{stage.issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        response = urllib3.PoolManager(timeout=5.0, retries=False).request("GET", url)
        good = response.status == 200 and json.loads(response.data).get("issuer") == stage.issuer
        seen = stage.issuer if good else f"{url} does not name {stage.issuer}"
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        good, seen = False, f"{url} cannot be read: {' '.join(str(error).split())[:200]}"
    return Finding(
        "issuer", good, seen, "correct `issuer` in cdk.json, or leave it out: API Gateway reads that document"
    )


def _images(stage: Stage) -> Finding:
    """Whether the images' bases are pinned; a stage that keeps no data may do without."""
    unpinned = [setting for setting, _ in unpinned_bases(stage)]
    seen = f"no digest in {', '.join(unpinned)}" if unpinned else "pinned by digest"
    then = "look up the digest (`docker buildx imagetools inspect TAG`), and set it in cdk.json"
    return Finding("images", not (unpinned and stage.retain_data), seen, then)


def _stack_exists(client: ClientFor, name: str) -> bool:
    try:
        client("cloudformation").describe_stacks(StackName=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return False
    return True
