"""The settings' page: each variable, what it may be, and what it is by default at each stage."""

from __future__ import annotations

from typing import Any

from catalog.settings import BASE, FUNCTIONS, PREFIX, STAGES, Settings, variable_of
from cli.embedded import DEFAULT_PORT
from cli.endpoint import ENDPOINT, TOKEN
from tools.reference.markdown import code, paragraph, table

_COMMAND = (
    (code(PREFIX + "DEV"), "where `strandline dev` listens", code(f"http://127.0.0.1:{DEFAULT_PORT}")),
    (code(ENDPOINT), "the API that `strandline api` talks to", "the embedded cloud's"),
    (code(TOKEN), "the token it brings", "one of the embedded cloud's, with all roles"),
    (code("NO_COLOR"), "text without colour, whatever the terminal can do", ""),
)


def page() -> str:
    lines = ["# Settings", "", paragraph(Settings.__doc__ or ""), ""]
    lines += [
        "A process reads its environment once, when it starts; every problem is told in one error, by the name of"
    ]
    lines += ["the variable to mend. The stacks set these on the functions and jobs they deploy.", ""]
    properties = Settings.model_json_schema()["properties"]
    rows = []
    for name, field in Settings.model_fields.items():
        schema = properties[name]
        default = "" if name in BASE or field.is_required() else field.get_default()
        needed = "required" if field.is_required() and name not in BASE else ""
        told = BASE.get(name, default)
        shown = needed if needed else code(str(told)) if told not in (None, "", {}) else ""
        rows.append((code(variable_of(name)), field.description or "", _allowed(schema), shown))
    lines += table(("variable", "what it is", "allowed", "default"), rows)
    lines += ["## By stage and by function", "", "Stronger than the default, weaker than the environment.", ""]
    layers = [(f"stage `{stage}`", given) for stage, given in STAGES.items()]
    layers += [(f"function `{function}`", given) for function, given in FUNCTIONS.items()]
    lines += table(
        ("where", "variable", "value"),
        [
            (where, code(variable_of(name)), code(str(value)))
            for where, given in layers
            for name, value in given.items()
        ],
    )
    lines += ["## Of the command alone", ""]
    lines += table(("variable", "what it is", "default"), _COMMAND)
    return "\n".join(lines)


def _allowed(schema: dict[str, Any]) -> str:
    for one in (schema, *schema.get("anyOf", ())):
        if "enum" in one:
            return " or ".join(code(choice) for choice in one["enum"])
        if "pattern" in one:
            return code(one["pattern"])
        if "maximum" in one:
            return f"over {one.get('exclusiveMinimum', one.get('minimum')):g}, up to {one['maximum']:g}"
    return "JSON" if "contentMediaType" in schema else ""
