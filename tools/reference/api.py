"""The API's page: its OpenAPI document, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import functions.api  # the routes, which register themselves
from catalog.access.routes import ROUTES
from functions.api.openapi import document
from tools.reference.markdown import code, paragraph, table

__all__ = ["functions", "page"]

_PROBLEMS = "application/problem+json"


def page() -> str:
    found = json.loads(document())
    said = "The guide to it is [the HTTP API](../guide/api.md); a running lake gives the same as `GET /openapi.json`."
    lines = ["# The HTTP API", "", paragraph(found["info"]["description"]), said, ""]
    lines += ["These headers may be sent with every request that names them below:", ""]
    headers = found["components"]["parameters"].values()
    lines += table(("header", "what it does"), [(code(one["name"]), one["description"]) for one in headers])
    tags: dict[str, list[str]] = {}
    for route in ROUTES:
        operation = found["paths"][route.path.replace("+}", "}")][route.method.lower()]
        tags.setdefault(operation["tags"][0], []).extend(_operation(route.key, operation, found["components"]))
    for tag, sections in tags.items():
        lines += [f"## {tag.capitalize()}", "", *sections]
    lines += ["## Bodies", ""]
    for name, schema in sorted(found["components"]["schemas"].items()):
        lines += [f"### {name}", "", *_schema(schema)]
    return "\n".join(lines)


def _operation(key: str, operation: dict[str, Any], components: dict[str, Any]) -> Iterator[str]:
    yield from [f"### {key}", "", paragraph(operation.get("summary", "")), ""]
    if described := operation.get("description"):
        yield from [paragraph(described), ""]
    yield from [] if operation.get("security") else ["Public: asks for no token.", ""]
    rows, headers = [], []
    for parameter in operation.get("parameters", ()):
        if "$ref" in parameter:
            headers.append(components["parameters"][parameter["$ref"].rpartition("/")[2]]["name"])
            continue
        schema = parameter["schema"]
        told = parameter.get("description", "")
        rows.append((code(parameter["name"]), parameter["in"], _type(schema), _limits(schema, told)))
    yield from table(("parameter", "in", "type", "what it is"), rows)
    if body := operation.get("requestBody"):
        yield from ["Body: " + ", ".join(_content(body["content"])) + ".", ""]
    answers, problems = [], []
    for status, answer in sorted(operation["responses"].items()):
        content = answer.get("content", {})
        if _PROBLEMS in content or int(status) >= 400:
            problems.append(status)
        else:
            answers.append(f"{status} " + (", ".join(_content(content)) or "without a body"))
    yield from [f"Answers: {'; '.join(answers)}. Problems: {', '.join(problems)}.", ""]
    yield from [f"Headers: {', '.join(map(code, headers))}.", ""] if headers else []


def _content(content: dict[str, Any]) -> Iterator[str]:
    for media, described in content.items():
        schema = described.get("schema", {})
        yield f"{_type(schema)} as `{media}`" if "$ref" in schema else code(media)


def _schema(schema: dict[str, Any]) -> Iterator[str]:
    if described := schema.get("description"):
        yield from [paragraph(described), ""]
    required = schema.get("required", ())
    rows = [
        (code(name) + ("" if name in required else " ?"), _type(inner), _limits(inner, inner.get("description", "")))
        for name, inner in schema.get("properties", {}).items()
    ]
    yield from table(("field", "type", "what it is"), rows)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"] if one.get("type") != "null"))
    if "enum" in schema:
        return " or ".join(code(str(one)) for one in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any")


def _limits(schema: dict[str, Any], told: str) -> str:
    """What is said of it, then what it must be."""
    inner = [one for one in (schema, *schema.get("anyOf", ())) if isinstance(one, dict)]
    notes = [told] if told else []
    for name, word in (("minimum", "at least"), ("maximum", "at most"), ("maxLength", "characters at most")):
        for one in inner:
            if name in one:
                notes.append(f"{word} {one[name]:g}" if name != "maxLength" else f"{one[name]} {word}")
    if schema.get("default") not in (None, [], {}, ""):
        notes.append(f"default {code(json.dumps(schema['default']))}")
    return "; ".join(notes)
