"""The page of the settings: each variable, its allowed values, and its defaults, also by function."""

from __future__ import annotations

from typing import Any

from catalog import Settings
from catalog.core.settings import FUNCTIONS, PREFIX, variable_of
from strandline.embedded import DEFAULT_PORT
from strandline.endpoints import ENDPOINT, TOKEN
from tools.reference.markdown import code, paragraph, table

_COMMAND = (
    (code(PREFIX + "DEV"), "the address of `strandline dev`", code(f"http://127.0.0.1:{DEFAULT_PORT}")),
    (code(ENDPOINT), "the endpoint of the API, for `strandline api`", "the embedded cloud's"),
    (code(TOKEN), "the token for that endpoint", "one of the embedded cloud's, with all roles"),
    (code("NO_COLOR"), "if set, text has no colour", ""),
)


def page() -> str:
    lines = ["# Settings", "", paragraph(Settings.__doc__ or ""), ""]
    lines += ["A process reads its environment once, when it starts. One error lists every wrong variable by its name."]
    lines += ["The stacks set these variables on the functions and jobs that they deploy.", ""]
    properties = Settings.model_json_schema()["properties"]
    rows = []
    for name, field in Settings.model_fields.items():
        schema = properties[name]
        value = None if field.is_required() else field.get_default()
        shown = "required" if field.is_required() else code(str(value)) if value not in (None, "", {}) else ""
        rows.append((code(variable_of(name)), field.description or "", _allowed(schema), shown))
    lines += table(("variable", "what it is", "allowed", "default"), rows)
    lines += ["## By function", "", "These override the defaults; the environment overrides them.", ""]
    layers = [(f"function `{function}`", values) for function, values in FUNCTIONS.items()]
    lines += table(
        ("where", "variable", "value"),
        [
            (layer, code(variable_of(name)), code(str(value)))
            for layer, values in layers
            for name, value in values.items()
        ],
    )
    lines += ["## Variables of the command", ""]
    lines += table(("variable", "what it is", "default"), _COMMAND)
    return "\n".join(lines)


def _allowed(schema: dict[str, Any]) -> str:
    for option in (schema, *schema.get("anyOf", ())):
        if "enum" in option:
            return " or ".join(code(choice) for choice in option["enum"])
        if "pattern" in option:
            return code(option["pattern"])
        if "maximum" in option:
            return f"over {option.get('exclusiveMinimum', option.get('minimum')):g}, up to {option['maximum']:g}"
    return "JSON" if "contentMediaType" in schema else ""
