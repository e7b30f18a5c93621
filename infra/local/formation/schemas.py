"""CloudFormation's own resource schemas, which cfn-lint carries: a property that a type does not have is an error.

docs.aws.amazon.com/cloudformation-cli/latest/userguide/resource-type-schema.html. Checks names only, at every depth:
values may be references that are not resolved yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

REGION = "us-east-1"
_INTRINSIC = ("Ref", "Condition")


def unknown_properties(template: Mapping[str, Any]) -> list[str]:
    """`<logical id>: <type> has no property <path>`, for each property that the schema of its type lacks."""
    return [
        f"{name}: {resource['Type']} has no property {path}"
        for name, resource in template.get("Resources", {}).items()
        if (schema := _schema(resource["Type"])) is not None
        for path in _unknown(resource.get("Properties", {}), schema, schema, "")
    ]


@cache
def _schema(type_: str) -> dict[str, Any] | None:
    """None for a type without a schema: CDK's own metadata, custom resources."""
    from cfnlint.schema import ResourceNotFoundError
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

    try:
        schema: dict[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, type_).schema
    except ResourceNotFoundError:
        return None
    return schema


def _unknown(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str) -> Iterator[str]:
    schema = _resolved(schema, root)
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, schema.get("items") or {}, root, path)
        return
    if not isinstance(value, dict) or _is_intrinsic(value):
        return
    known: dict[str, Any] = schema.get("properties") or {}
    closed = schema.get("additionalProperties") is False and not schema.get("patternProperties")
    for name, part in value.items():
        here = f"{path}.{name}" if path else name
        if name in known:
            yield from _unknown(part, known[name], root, here)
        elif closed and known:
            yield here


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    while isinstance(reference := schema.get("$ref"), str) and reference.startswith("#/"):
        schema = root
        for part in reference[2:].split("/"):
            schema = schema.get(part, {})
        root = root if schema else {}
    return schema


def _is_intrinsic(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and any(name.startswith("Fn::") or name in _INTRINSIC for name in value)
