"""Typed settings: defaults by base -> stage -> function, then the environment, checked once at start.

Never reads anything but the mapping it is given, and never holds a secret: a key is named here, not kept here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from catalog.errors import Invalid

PREFIX = "STRANDLINE_"

# The SDKs' own variables win over a second name for the same thing: an endpoint turns AWS into the embedded cloud.
SDK_VARIABLES = {"region": "AWS_REGION", "endpoint_url": "AWS_ENDPOINT_URL", "function": PREFIX + "FUNCTION"}

BASE: dict[str, Any] = {"stage": "dev", "region": "us-east-1"}
STAGES: dict[str, dict[str, Any]] = {
    "dev": {"log_level": "INFO"},
    "prod": {"log_level": "WARNING"},
}
FUNCTIONS: dict[str, dict[str, Any]] = {
    # One warm writer that meets a slow store should give the message back before Lambda's own time-out does.
    "sequencer": {"store_timeout_s": 20.0},
}


class Settings(BaseModel):
    """What one process of the lake needs to know. Environment names are STRANDLINE_<FIELD>, upper case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Literal["dev", "prod"] = Field(description="which of the lakes; decides some defaults")
    function: str | None = Field(default=None, description="the function's name; decides some defaults")
    region: str = Field(min_length=1, description="the AWS region")
    endpoint_url: str | None = Field(
        default=None, pattern=r"^https?://", description="where AWS is, if not at its own addresses: the embedded cloud"
    )
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="the lake's bucket")
    origin: str = Field(
        default="strandline.local/lake",
        pattern=r"^[^\s+]+$",
        description="the timeline's name, first line of every checkpoint",
    )
    signer: str | None = Field(
        default=None, pattern=r"^(kms|secret):.+$", description="kms:<key id> or secret:<secret id>"
    )
    moved_queue_url: str | None = Field(default=None, description='where writers say "table T moved"')
    landed_queue_url: str | None = Field(default=None, description="where S3 says that files landed")
    event_bus: str | None = Field(default=None, description="EventBridge bus for what the lake announces")
    jobs_application: str | None = Field(default=None, description="EMR Serverless application that runs large queries")
    jobs_role: str | None = Field(default=None, description="ARN of the role its runs have")
    principals: Json[dict[str, list[str]]] = Field(
        default={},
        description="ARNs of those who sign their requests to the API (`*` stands for anything) -> their roles",
    )
    store_timeout_s: float = Field(
        default=30.0, gt=0, le=600, description="how long the timeline's store may take before it counts as unavailable"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="what is logged")


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads settings; every problem is listed in one Invalid, by the name of the variable to mend."""
    environ = os.environ if environ is None else environ
    given = _from_environment(environ)
    layered = {
        **BASE,
        **STAGES.get(given.get("stage", BASE["stage"]), {}),
        **FUNCTIONS.get(given.get("function", ""), {}),
        **given,
    }
    try:
        return Settings.model_validate(layered)
    except ValidationError as error:
        raise Invalid(_explain(error)) from None


def variable_of(field: str) -> str:
    """`bucket` -> `STRANDLINE_BUCKET`: the one rule that names variables, used by the stacks too."""
    return SDK_VARIABLES.get(field, PREFIX + field.upper())


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    named = {variable_of(field): field for field in Settings.model_fields}
    return {field: environ[variable] for variable, field in named.items() if environ.get(variable)}


def _explain(error: ValidationError) -> str:
    lines = ["the settings are not usable:"]
    for problem in error.errors():
        field = str(problem["loc"][0]) if problem["loc"] else "?"
        lines.append(f"  {variable_of(field)}: {problem['msg']}")
    return "\n".join(lines)
