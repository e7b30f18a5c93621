"""What IAM would be asked for each recorded request, and what a deployed role's policies answer.

Nothing is refused here: the record of a run and the roles it ran under are compared afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from infra.local.endpoint import Endpoint
from infra.local.requests import Request


@dataclass(frozen=True, order=True)
class Asked:
    action: str
    resource: str


@dataclass(frozen=True)
class Policies:
    """All statements of a role. Conditions are not evaluated: a statement that has one allows nothing."""

    statements: tuple[dict[str, Any], ...]

    def allows(self, asked: Asked) -> bool:
        effects = {one["Effect"] for one in self.statements if _covers(one, asked)}
        return "Allow" in effects and "Deny" not in effects


def policies_of(endpoint: Endpoint, role_arn: str) -> Policies:
    """As they are deployed, inline and attached."""
    iam, role = endpoint.client("iam"), role_arn.rpartition("/")[2]
    documents = [
        iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    for attached in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        version = iam.get_policy(PolicyArn=attached["PolicyArn"])["Policy"]["DefaultVersionId"]
        found = iam.get_policy_version(PolicyArn=attached["PolicyArn"], VersionId=version)
        documents.append(found["PolicyVersion"]["Document"])
    return Policies(tuple(statement for document in documents for statement in _listed(document["Statement"])))


def asked_of(request: Request, endpoint: Endpoint) -> Iterator[Asked]:
    """The permissions that AWS would want for the request. What is not known here asks for one that nobody has."""
    match request.service:
        case "s3":
            yield from _s3(request)
        case "glue":
            yield from _glue(request, endpoint)
        case "sqs":
            (queue,) = request.subjects
            yield Asked(f"sqs:{request.action}", _arn(endpoint, "sqs", queue.rpartition("/")[2]))
        case "secretsmanager":
            (secret,) = request.subjects
            yield Asked(f"secretsmanager:{request.action}", secret)
        case "events":
            for bus in request.subjects:
                name = bus.rpartition("/")[2]
                yield Asked(f"events:{request.action}", _arn(endpoint, "events", f"event-bus/{name}"))
        case "emr-serverless":
            verb = {"POST": "StartJobRun", "GET": "GetJobRun", "DELETE": "CancelJobRun"}[request.method]
            yield Asked(f"emr-serverless:{verb}", _arn(endpoint, "emr-serverless", request.path))
        case other:
            yield Asked(f"{other}:{request.action}", "unknown: describe it in infra/local/permissions.py")


def _s3(request: Request) -> Iterator[Asked]:
    bucket, _, key = request.path.lstrip("/").partition("/")
    arn = f"arn:aws:s3:::{bucket}"
    query = parse_qs(request.query, keep_blank_values=True)
    if not key:
        if request.action == "POST?delete":
            yield from (Asked("s3:DeleteObject", f"{arn}/{one}") for one in request.subjects)
        elif request.method in ("GET", "HEAD") and request.action in ("GET", "HEAD", "GET?list-type"):
            yield Asked("s3:ListBucket", arn)
        else:
            yield Asked(f"s3:{request.action}", arn)
        return
    version = "Version" if "versionId" in query else ""
    match request.method:
        case "GET" | "HEAD" if "uploadId" not in query:
            yield Asked(f"s3:GetObject{version}", f"{arn}/{key}")
        case "PUT" | "POST" if "tagging" not in query:
            yield Asked("s3:PutObject", f"{arn}/{key}")
            yield from (Asked("s3:GetObject", f"arn:aws:s3:::{source}") for source in request.subjects)
        case "DELETE" if "uploadId" in query:
            yield Asked("s3:AbortMultipartUpload", f"{arn}/{key}")
        case "DELETE":
            yield Asked(f"s3:DeleteObject{version}", f"{arn}/{key}")
        case _:
            yield Asked(f"s3:{request.action}", f"{arn}/{key}")


def _glue(request: Request, endpoint: Endpoint) -> Iterator[Asked]:
    """Glue wants the permission on the catalog, the database and the table alike."""
    action = f"glue:{request.action}"
    yield Asked(action, _arn(endpoint, "glue", "catalog"))
    if request.subjects:
        yield Asked(action, _arn(endpoint, "glue", f"database/{request.subjects[0]}"))
    if len(request.subjects) > 1:
        yield Asked(action, _arn(endpoint, "glue", f"table/{'/'.join(request.subjects[:2])}"))


def _arn(endpoint: Endpoint, service: str, resource: str) -> str:
    return f"arn:aws:{service}:{endpoint.region}:{endpoint.account}:{resource}"


def _covers(statement: dict[str, Any], asked: Asked) -> bool:
    if statement.get("Condition"):
        return False
    actions, resources = _listed(statement["Action"]), _listed(statement["Resource"])
    return any(_like(one.lower(), asked.action.lower()) for one in actions) and any(
        _like(one, asked.resource) for one in resources
    )


def _like(pattern: str, text: str) -> bool:
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text, re.DOTALL))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
