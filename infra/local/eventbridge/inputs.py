"""The input of a rule's target: the event, a part of it (InputPath), a template (InputTransformer), or a constant.

moto fills templates by text replacement, which breaks on quotes, and supports neither InputPath nor Input.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from jsonpath_ng.ext.parser import parse as parse_path

Event = dict[str, Any]

# A template's tokens: an escape, a quote, or a placeholder. Inside a string literal a value is inserted without quotes.
_TOKEN = re.compile(r'\\.|"|<([A-Za-z0-9_.\-]+)>', re.DOTALL)
_ABSENT = object()


def shape_input(target: dict[str, Any], event: Event, rule_arn: str, ingestion_time: str) -> str:
    """The text that the target receives for `event`."""
    if "Input" in target:
        return str(target["Input"])
    if "InputPath" in target:
        value = _find(target["InputPath"], event)
        return json.dumps(None if value is _ABSENT else value)
    if "InputTransformer" in target:
        transformer = target["InputTransformer"]
        values = {name: _find(path, event) for name, path in transformer.get("InputPathsMap", {}).items()}
        return fill(transformer["InputTemplate"], values | _reserved(event, rule_arn, ingestion_time))
    return json.dumps(event)


def fill(template: str, values: dict[str, Any]) -> str:
    """The template with each `<name>` replaced: by JSON outside string literals, by escaped text inside one.

    A value that the event lacks becomes empty inside a literal and null outside. An undeclared name stays unchanged.
    """
    quoted = False

    def replace(token: re.Match[str]) -> str:
        nonlocal quoted
        name = token[1]
        if token[0] == '"':
            quoted = not quoted
        if name is None or name not in values:
            return token[0]
        value = None if values[name] is _ABSENT else values[name]
        if not quoted:
            return json.dumps(value)
        text = value if isinstance(value, str) else "" if value is None else json.dumps(value)
        return json.dumps(text)[1:-1]

    return _TOKEN.sub(replace, template)


def _reserved(event: Event, rule_arn: str, ingestion_time: str) -> dict[str, Any]:
    return {
        "aws.events.rule-arn": rule_arn,
        "aws.events.rule-name": rule_arn.rpartition("/")[2],
        "aws.events.event.ingestion-time": ingestion_time,
        "aws.events.event": {name: value for name, value in event.items() if name != "detail"},
        "aws.events.event.json": event,
    }


def _find(path: str, event: Event) -> Any:
    matches = _parsed(path).find(event)
    return matches[0].value if matches else _ABSENT


@cache
def _parsed(path: str) -> Any:
    return parse_path(path)
