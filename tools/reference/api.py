"""The page of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import functions.api  # importing it registers the routes
from catalog.access import ROUTES
from functions.api.openapi import document
from tools.reference.markdown import code, paragraph, table

__all__ = ["functions", "page"]

_PROBLEMS = "application/problem+json"


def page() -> str:
    openapi = json.loads(document())
    links = "See also the guide to [the HTTP API](../guide/api.md). A running lake serves this as `GET /openapi.json`."
    lines = ["# The HTTP API", "", paragraph(openapi["info"]["description"]), links, ""]
    lines += ["Headers of the requests that name them below:", ""]
    headers = openapi["components"]["parameters"].values()
    lines += table(("header", "what it does"), [(code(header["name"]), header["description"]) for header in headers])
    tags: dict[str, list[str]] = {}
    for route in ROUTES:
        operation = openapi["paths"][route.path.replace("+}", "}")][route.method.lower()]
        tags.setdefault(operation["tags"][0], []).extend(_operation(route.key, operation, openapi["components"]))
    for tag, sections in tags.items():
        lines += [f"## {tag.capitalize()}", "", *sections]
    lines += ["## Bodies", ""]
    for name, schema in sorted(openapi["components"]["schemas"].items()):
        lines += [f"### {name}", "", *_schema(schema)]
    return "\n".join(lines)


def _operation(key: str, operation: dict[str, Any], components: dict[str, Any]) -> Iterator[str]:
    yield from [f"### {key}", "", paragraph(operation.get("summary", "")), ""]
    if description := operation.get("description"):
        yield from [paragraph(description), ""]
    yield from [] if operation.get("security") else ["Public: needs no token.", ""]
    rows, headers = [], []
    for parameter in operation.get("parameters", ()):
        if "$ref" in parameter:
            headers.append(components["parameters"][parameter["$ref"].rpartition("/")[2]]["name"])
            continue
        schema = parameter["schema"]
        description = parameter.get("description", "")
        rows.append((code(parameter["name"]), parameter["in"], _type(schema), _described(schema, description)))
    yield from table(("parameter", "in", "type", "what it is"), rows)
    if body := operation.get("requestBody"):
        yield from ["Body: " + ", ".join(_content(body["content"])) + ".", ""]
    successes, problems = [], []
    for status, response in sorted(operation["responses"].items()):
        content = response.get("content", {})
        if _PROBLEMS in content or int(status) >= 400:
            problems.append(status)
        else:
            successes.append(f"{status} " + (", ".join(_content(content)) or "without a body"))
    yield from [f"Responses: {'; '.join(successes)}. Problems: {', '.join(problems)}.", ""]
    yield from [f"Headers: {', '.join(map(code, headers))}.", ""] if headers else []


def _content(content: dict[str, Any]) -> Iterator[str]:
    for media, body in content.items():
        schema = body.get("schema", {})
        yield f"{_type(schema)} as `{media}`" if "$ref" in schema else code(media)


def _schema(schema: dict[str, Any]) -> Iterator[str]:
    if description := schema.get("description"):
        yield from [paragraph(description), ""]
    required = schema.get("required", ())
    rows = [
        (code(name) + ("" if name in required else " ?"), _type(field), _described(field, field.get("description", "")))
        for name, field in schema.get("properties", {}).items()
    ]
    yield from table(("field", "type", "what it is"), rows)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(option) for option in schema["anyOf"] if option.get("type") != "null"))
    if "enum" in schema:
        return " or ".join(code(str(value)) for value in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any")


def _described(schema: dict[str, Any], description: str) -> str:
    """The description, then the limits and the default."""
    options = [option for option in (schema, *schema.get("anyOf", ())) if isinstance(option, dict)]
    notes = [description] if description else []
    for name, word in (("minimum", "at least"), ("maximum", "at most"), ("maxLength", "characters at most")):
        for option in options:
            if name in option:
                notes.append(f"{word} {option[name]:g}" if name != "maxLength" else f"{option[name]} {word}")
    if schema.get("default") not in (None, [], {}, ""):
        notes.append(f"default {code(json.dumps(schema['default']))}")
    return "; ".join(notes)
