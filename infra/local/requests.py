"""The log of AWS requests to the embedded cloud, each with its principal. Tests count requests here."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, unquote

from infra.local.endpoint import principal_of

# An S3 operation is a method and a sub-resource; these are the sub-resources that the lake uses.
VERSIONED = "?versionId"
"""How a key ends of which DeleteObjects names a version."""
_S3_SUBRESOURCES = (
    "versions",
    "uploads",
    "uploadId",
    "delete",
    "tagging",
    "policy",
    "notification",
    "versions",
    "list-type",
)


@dataclass(frozen=True)
class Request:
    """One request as the server received it. `action` is the API action of JSON services, and for S3 the method with
    the sub-resource, for example `POST?delete`."""

    principal: str
    service: str
    method: str
    path: str
    query: str
    action: str
    subjects: tuple[str, ...] = ()
    """The resources that body or headers name: a queue, a table, the keys of DeleteObjects, a copy's source."""
    status: int = 0

    @classmethod
    def from_environ(cls, environ: dict[str, Any]) -> Request:
        """Reads the body only if it names resources, and leaves it readable for the application."""
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        query = environ.get("QUERY_STRING", "")
        credential = authorization.partition("Credential=")[2].split(",")[0].split("/")
        service = credential[3] if len(credential) == 5 else "s3"
        principal = principal_of(authorization)
        if not authorization and "X-Amz-Credential" in query:  # a presigned URL
            principal = parse_qs(query)["X-Amz-Credential"][0].split("/")[0]
        return cls(
            principal=principal,
            service=service,
            method=environ["REQUEST_METHOD"],
            path=environ.get("PATH_INFO", ""),
            query=query,
            action=_action(service, environ, query),
            subjects=_subjects(environ, query),
        )

    def touches(self, text: str) -> bool:
        return text in self.path


def _action(service: str, environ: dict[str, Any], query: str) -> str:
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return str(target.rpartition(".")[2])
    method = str(environ["REQUEST_METHOD"])
    if service != "s3":
        return method
    names = parse_qs(query, keep_blank_values=True)
    subresource = next((name for name in _S3_SUBRESOURCES if name in names), None)
    return f"{method}?{subresource}" if subresource else method


# The parameters by which JSON services name a resource; a table's database comes first.
_NAMES = ("DatabaseName", "TableName", "Name", "QueueUrl", "QueueName", "SecretId", "KeyId", "EventBusName")


def _subjects(environ: dict[str, Any], query: str) -> tuple[str, ...]:
    if source := environ.get("HTTP_X_AMZ_COPY_SOURCE"):
        return (unquote(source).lstrip("/"),)
    if environ.get("HTTP_X_AMZ_TARGET"):
        try:
            return tuple(_resource_names(json.loads(peek_body(environ))))
        except ValueError:
            return ()
    if environ["REQUEST_METHOD"] == "POST" and query.split("=")[0] == "delete":
        body = peek_body(environ).decode(errors="replace")
        named = re.findall("<Key>(.*?)</Key>(<VersionId>)?", body)
        return tuple(key + (VERSIONED if version else "") for key, version in named)
    return ()


def _resource_names(body: dict[str, Any]) -> list[str]:
    names = [str(body[parameter]) for parameter in _NAMES if parameter in body]
    for nested in (body.get("TableInput"), body.get("DatabaseInput"), *(body.get("Entries") or ())):
        names += (
            [str(nested[parameter]) for parameter in _NAMES if parameter in nested] if isinstance(nested, dict) else []
        )
    return names


def peek_body(environ: dict[str, Any]) -> bytes:
    """The request's body, which stays readable for the application."""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = BytesIO(body)
    return body


class RequestLog:
    """An append-only list of requests, safe to read while it grows."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._lock = threading.Lock()

    def add(self, request: Request, status: int) -> None:
        with self._lock:
            self._requests.append(replace(request, status=status))

    def mark(self) -> int:
        """The current end of the log; `since(mark)` returns the requests after it."""
        return len(self._requests)

    def since(self, mark: int = 0, where: Callable[[Request], bool] | None = None) -> list[Request]:
        with self._lock:
            requests = self._requests[mark:]
        return [request for request in requests if where is None or where(request)]

    def counts(self, mark: int = 0) -> Counter[str]:
        """`{"s3 PUT": 3, "glue GetTable": 1}` since the mark."""
        return Counter(f"{request.service} {request.action}" for request in self.since(mark))
