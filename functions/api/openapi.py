"""The OpenAPI document: what Powertools derives from the routes, with what their signatures cannot express."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from aws_lambda_powertools.event_handler.openapi.models import HTTPBearer, Server

from functions.api.app import app
from functions.api.models import RowsIn
from functions.api.row_formats import ARROW, PARQUET

_HEADERS = {
    "CorrelationId": ("X-Correlation-Id", "your own id, which appears in all logs of the request", 128),
    "IdempotencyKey": ("Idempotency-Key", "repeated with the same key, a request is executed once", 128),
    "IfNoneMatch": ("If-None-Match", "ETags that you have cached: 304 if one is current", 1024),
}
_GATEWAY = {
    "description": "an error of API Gateway, before the function ran",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        }
    },
}
_GATEWAY_STATUSES = (401, 413, 429, 500, 503, 504)


def document() -> str:
    schema = app.get_openapi_schema(
        title="Strandline",
        version=_version(),
        openapi_version="3.1.0",
        description="A lakehouse that can prove what it says. Errors are problem+json (RFC 9457).",
        servers=[Server(url="/"), Server(url="/signed", description="for requests signed with AWS credentials")],
        security_schemes={"token": HTTPBearer(scheme="bearer", bearerFormat="JWT")},
    )
    openapi: dict[str, Any] = json.loads(schema.model_dump_json(by_alias=True, exclude_none=True))
    components = openapi.setdefault("components", {})
    components["parameters"] = {
        name: {"name": header, "in": "header", "description": description, "schema": _text(max_length)}
        for name, (header, description, max_length) in _HEADERS.items()
    }
    for unused in ("HTTPValidationError", "ValidationError", "ResponseValidationError"):
        components["schemas"].pop(unused, None)
    components["schemas"]["RowsIn"] = RowsIn.model_json_schema()
    for path in openapi["paths"].values():
        for method, operation in path.items():
            _complete(method, operation)
    write_rows = openapi["paths"]["/tables/{t}/rows"]["post"]
    binary = {"schema": {"type": "string", "format": "binary"}}
    write_rows["requestBody"] = {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/RowsIn"}},
            ARROW: binary,
            PARQUET: binary,
        },
    }
    return json.dumps(openapi, separators=(",", ":"))


def _complete(method: str, operation: dict[str, Any]) -> None:
    """Adds API Gateway's own errors and the common headers to an operation."""
    responses: dict[str, Any] = operation["responses"]
    if "HTTPValidationError" in json.dumps(responses.get("422", "")):
        del responses["422"]  # Powertools' own: here an invalid request is a 400
    for status in ("204", "304"):
        responses.get(status, {}).pop("content", None)
    for status_code in _GATEWAY_STATUSES:
        if status_code == 401 and "security" not in operation:
            continue
        response = responses.setdefault(str(status_code), {"description": "", "content": {}})
        response["description"] = response["description"] or str(_GATEWAY["description"])
        response["content"] = {**response["content"], **_GATEWAY["content"]}  # type: ignore[dict-item]
    headers = ["CorrelationId"]
    headers += ["IdempotencyKey"] if method in ("post", "patch", "delete", "put") else []
    headers += ["IfNoneMatch"] if "304" in responses else []
    parameters = operation.setdefault("parameters", [])
    parameters += [{"$ref": f"#/components/parameters/{name}"} for name in headers]


def _text(max_length: int) -> dict[str, Any]:
    return {"type": "string", "pattern": "^[!-~]+$", "minLength": 1, "maxLength": max_length}


def _version() -> str:
    try:
        return version("strandline")
    except PackageNotFoundError:  # a function's image has the code, not the package
        return "0"
