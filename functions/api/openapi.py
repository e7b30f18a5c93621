"""The OpenAPI document: what Powertools derives from the routes, mended where HTTP says more than a signature can."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from aws_lambda_powertools.event_handler.openapi.models import HTTPBearer, Server

from functions.api.app import app
from functions.api.formats import ARROW, PARQUET
from functions.api.models import RowsIn

_HEADERS = {
    "CorrelationId": ("X-Correlation-Id", "an id of yours that follows the request through all logs", 128),
    "IdempotencyKey": ("Idempotency-Key", "the same key and request: done once, answered the same each time", 128),
    "IfNoneMatch": ("If-None-Match", "ETags you hold: 304 if one is still right", 1024),
}
_GATEWAY = {
    "description": "API Gateway refused it before anything ran",
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        }
    },
}
_REFUSED_FIRST = (401, 413, 429, 500, 503, 504)


def document() -> str:
    schema = app.get_openapi_schema(
        title="Strandline",
        version=_version(),
        openapi_version="3.1.0",
        description="A lakehouse that can prove what it says. Errors are problem+json (RFC 9457).",
        servers=[Server(url="/"), Server(url="/signed", description="for requests signed with AWS credentials")],
        security_schemes={"token": HTTPBearer(scheme="bearer", bearerFormat="JWT")},
    )
    found: dict[str, Any] = json.loads(schema.model_dump_json(by_alias=True, exclude_none=True))
    components = found.setdefault("components", {})
    components["parameters"] = {
        name: {"name": header, "in": "header", "description": said, "schema": _text(most)}
        for name, (header, said, most) in _HEADERS.items()
    }
    for unused in ("HTTPValidationError", "ValidationError", "ResponseValidationError"):
        components["schemas"].pop(unused, None)
    components["schemas"]["RowsIn"] = RowsIn.model_json_schema()
    for path in found["paths"].values():
        for method, operation in path.items():
            _mend(method, operation)
    written = found["paths"]["/tables/{t}/rows"]["post"]
    binary = {"schema": {"type": "string", "format": "binary"}}
    written["requestBody"] = {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/RowsIn"}},
            ARROW: binary,
            PARQUET: binary,
        },
    }
    return json.dumps(found, separators=(",", ":"))


def _mend(method: str, operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation["responses"]
    if "HTTPValidationError" in json.dumps(responses.get("422", "")):
        del responses["422"]  # Powertools' own: here an invalid request is a 400
    for status in ("204", "304"):
        responses.get(status, {}).pop("content", None)
    for refused in _REFUSED_FIRST:
        if refused == 401 and "security" not in operation:
            continue
        said = responses.setdefault(str(refused), {"description": "", "content": {}})
        said["description"] = said["description"] or str(_GATEWAY["description"])
        said["content"] = {**said["content"], **_GATEWAY["content"]}  # type: ignore[dict-item]
    wanted = ["CorrelationId"]
    wanted += ["IdempotencyKey"] if method in ("post", "patch", "delete", "put") else []
    wanted += ["IfNoneMatch"] if "304" in responses else []
    held = operation.setdefault("parameters", [])
    held += [{"$ref": f"#/components/parameters/{name}"} for name in wanted]


def _text(most: int) -> dict[str, Any]:
    return {"type": "string", "pattern": "^[!-~]+$", "minLength": 1, "maxLength": most}


def _version() -> str:
    try:
        return version("strandline")
    except PackageNotFoundError:  # a function's image has the code, not the package
        return "0"
