"""The templates of a stage, synthesised once for a process, and what tests ask of them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from infra.app import build_app
from infra.local.assembly import Template, synthesise
from infra.stage import ROOT

Resources = dict[str, dict[str, Any]]
STAGES = ("dev", "prod")


PROD_WITH_SECRET = "prod, signing with a secret"


@cache
def templates(stage: str) -> tuple[Template, ...]:
    stages = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]
    if stage == PROD_WITH_SECRET:
        stage, stages["prod"]["signing"] = "prod", "secret"
    return tuple(synthesise(lambda context, out: build_app({**context, "stage": stage, "stages": stages}, out)))


def synthesise_dev(**changed: Any) -> tuple[Template, ...]:
    """The templates of the dev stage with other settings."""
    settings = json.loads((ROOT / "cdk.json").read_text())["context"]["stages"]["dev"] | changed
    return tuple(synthesise(lambda context, out: build_app({**context, "stages": {"dev": settings}}, out)))


@cache
def resources(stage: str) -> Resources:
    return {f"{one.stack}/{name}": body for one in templates(stage) for name, body in one.body["Resources"].items()}


def of_type(stage: str, type_: str) -> Resources:
    """Name -> properties, of every resource of a type."""
    return {name: body.get("Properties", {}) for name, body in resources(stage).items() if body["Type"] == type_}


def text_of(value: Any) -> str:
    """What an intrinsic function comes to, as far as it is known before deployment: `${Lake.Arn}/tables/*`."""
    match value:
        case str():
            return value
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(map(text_of, parts))
        case {"Fn::GetAtt": [name, attribute]}:
            return f"${{{name}.{attribute}}}"
        case {"Ref": name} | {"Fn::ImportValue": name}:
            return f"${{{name}}}"
        case _:
            return str(value)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
