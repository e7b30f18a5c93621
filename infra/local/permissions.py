"""The IAM actions that each request requires, and whether a deployed role's policies allow them.

`authorization` denies requests by it; tests also compare what was asked in a run with what its roles allow besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qs

from infra.local.endpoint import Endpoint
from infra.local.requests import VERSIONED, Request


@dataclass(frozen=True, order=True)
class RequestedAction:
    action: str
    resource: str


@dataclass(frozen=True)
class Policies:
    """All statements of a role. Conditions are not evaluated: a statement with one does not apply."""

    statements: tuple[dict[str, Any], ...]

    def allows(self, request: RequestedAction) -> bool:
        effects = {statement["Effect"] for statement in self.statements if _covers(statement, request)}
        return "Allow" in effects and "Deny" not in effects


def policies_of(endpoint: Endpoint, role_arn: str) -> Policies:
    """The role's deployed policies, inline and attached."""
    iam, role = endpoint.client("iam"), role_arn.rpartition("/")[2]
    documents = [
        iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        version = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]["DefaultVersionId"]
        response = iam.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)
        documents.append(response["PolicyVersion"]["Document"])
    return Policies(tuple(statement for document in documents for statement in _as_list(document["Statement"])))


def required_actions(request: Request, endpoint: Endpoint) -> Iterator[RequestedAction]:
    """The actions that AWS would require for the request. An unknown service yields an action that no role has."""
    match request.service:
        case "s3":
            yield from _s3(request)
        case "glue":
            yield from _glue(request, endpoint)
        case "sqs":
            (queue,) = request.subjects
            action = request.action.removesuffix("Batch")  # IAM has no actions of their own for batches
            yield RequestedAction(f"sqs:{action}", _arn(endpoint, "sqs", queue.rpartition("/")[2]))
        case "secretsmanager":
            (secret,) = request.subjects
            yield RequestedAction(f"secretsmanager:{request.action}", secret)
        case "events":
            for bus in request.subjects:
                name = bus.rpartition("/")[2]
                yield RequestedAction(f"events:{request.action}", _arn(endpoint, "events", f"event-bus/{name}"))
        case "kms":
            (key,) = request.subjects
            named = key if key.startswith("arn:") else _arn(endpoint, "kms", f"key/{key}")
            yield RequestedAction(f"kms:{request.action}", named)
        case "dynamodb":
            (table,) = request.subjects
            yield RequestedAction(f"dynamodb:{request.action}", _arn(endpoint, "dynamodb", f"table/{table}"))
        case "emr-serverless":
            verb = {"POST": "StartJobRun", "GET": "GetJobRun", "DELETE": "CancelJobRun"}[request.method]
            # A run is started in an application; only once it exists it is a resource of its own.
            path = request.path.removesuffix("/jobruns")
            yield RequestedAction(f"emr-serverless:{verb}", _arn(endpoint, "emr-serverless", path))
        case other:
            yield RequestedAction(f"{other}:{request.action}", "unknown service: add it to infra/local/permissions.py")


def _s3(request: Request) -> Iterator[RequestedAction]:
    bucket, _, key = request.path.lstrip("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    query = parse_qs(request.query, keep_blank_values=True)
    if not key:
        if request.action == "POST?delete":
            for subject in request.subjects:
                action = "s3:DeleteObjectVersion" if subject.endswith(VERSIONED) else "s3:DeleteObject"
                yield RequestedAction(action, f"{arn}/{subject.removesuffix(VERSIONED)}")
        elif request.action == "GET?versions":
            yield RequestedAction("s3:ListBucketVersions", arn)
        elif request.method in ("GET", "HEAD") and request.action in ("GET", "HEAD", "GET?list-type"):
            yield RequestedAction("s3:ListBucket", arn)
        else:
            yield RequestedAction(f"s3:{request.action}", arn)
        return
    version = "Version" if "versionId" in query else ""
    match request.method:
        case "GET" | "HEAD" if "uploadId" not in query:
            yield RequestedAction(f"s3:GetObject{version}", f"{arn}/{key}")
        case "PUT" | "POST" if "tagging" not in query:
            yield RequestedAction("s3:PutObject", f"{arn}/{key}")
            yield from (RequestedAction("s3:GetObject", f"arn:aws:s3:::{source}") for source in request.subjects)
        case "DELETE" if "uploadId" in query:
            yield RequestedAction("s3:AbortMultipartUpload", f"{arn}/{key}")
        case "DELETE":
            yield RequestedAction(f"s3:DeleteObject{version}", f"{arn}/{key}")
        case _:
            yield RequestedAction(f"s3:{request.action}", f"{arn}/{key}")


def _glue(request: Request, endpoint: Endpoint) -> Iterator[RequestedAction]:
    """Glue requires the action on the catalog, the database and the table."""
    action = f"glue:{request.action}"
    yield RequestedAction(action, _arn(endpoint, "glue", "catalog"))
    if request.subjects:
        yield RequestedAction(action, _arn(endpoint, "glue", f"database/{request.subjects[0]}"))
    if len(request.subjects) > 1:
        yield RequestedAction(action, _arn(endpoint, "glue", f"table/{'/'.join(request.subjects[:2])}"))


def _arn(endpoint: Endpoint, service: str, resource: str) -> str:
    return f"arn:aws:{service}:{endpoint.region}:{endpoint.account}:{resource}"


def _covers(statement: dict[str, Any], request: RequestedAction) -> bool:
    if statement.get("Condition"):
        return False
    actions, resources = _as_list(statement["Action"]), _as_list(statement["Resource"])
    return any(_matches(pattern.lower(), request.action.lower()) for pattern in actions) and any(
        _matches(pattern, request.resource) for pattern in resources
    )


def _matches(pattern: str, text: str) -> bool:
    return bool(_expression(pattern).fullmatch(text))


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
