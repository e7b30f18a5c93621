"""Typed settings: defaults, then those of the function, then the environment, validated once at start.

Reads nothing but the mapping it is passed. Holds no secret: a setting names a key, and does not contain it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError

from catalog.core.errors import Invalid

PREFIX = "STRANDLINE_"
ROLE_PREFIX = "strandline:"

# The AWS SDKs' own variables are used as they are: an endpoint URL turns AWS into the embedded cloud.
SDK_VARIABLES = {"region": "AWS_REGION", "endpoint_url": "AWS_ENDPOINT_URL", "function": PREFIX + "FUNCTION"}

STAGE_NAME = r"^[a-z][a-z0-9]{1,11}$"
"""A stage's name is part of the names of queues, roles and log groups. The stacks accept the same names."""

FUNCTIONS: dict[str, dict[str, Any]] = {
    # With a slow store the sequencer should return the message before Lambda's own timeout ends it.
    "sequencer": {"store_timeout_s": 20.0},
    # Its queries are strangers': a statement that ends its process must not end the function.
    "api": {"query_workers": 1},
}


class Settings(BaseModel):
    """The settings of one process. The environment variables are STRANDLINE_<FIELD>, upper case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str = Field(default="dev", pattern=STAGE_NAME, description="the stage of the lake, a name of your choice")
    function: str | None = Field(default=None, description="the function's name; decides some defaults")
    region: str = Field(
        min_length=1,
        description="the AWS region. Lambda sets it; for a job and a laptop somebody must: there is no default",
    )
    endpoint_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="the endpoint of AWS's services, if not AWS's own: the embedded cloud",
    )
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="the lake's bucket")
    origin: str = Field(
        default="strandline.local/lake",
        pattern=r"^[^\s+]+$",
        description="the timeline's origin, the first line of every checkpoint",
    )
    signer: str | None = Field(
        default=None, pattern=r"^(kms|secret):.+$", description="kms:<key id> or secret:<secret id>"
    )
    witnesses: str | None = Field(
        default=None,
        description="the text of a c2sp.org/tlog-policy file: the sequencer sends checkpoints to its witnesses' URLs",
    )
    moved_queue_url: str | None = Field(
        default=None, pattern=r"\.fifo$", description="the sequencer's queue, a FIFO queue with one message group"
    )
    moved_dead_queue_url: str | None = Field(
        default=None, pattern=r"\.fifo$", description="where the sequencer puts messages that it can never serve"
    )
    send_requests: Literal["sqs", "s3"] = Field(
        default="sqs",
        description="how requests reach the sequencer: `s3` for a process that cannot reach SQS, as a job on EMR",
    )
    landed_queue_url: str | None = Field(default=None, description="the landing queue: S3's events of landed files")
    erase_queue_url: str | None = Field(
        default=None, pattern=r"\.fifo$", description="the queue of requests to erase rows, a FIFO queue"
    )
    event_bus: str | None = Field(default=None, description="the EventBridge bus for the lake's events")
    jobs_application: str | None = Field(
        default=None, description="the EMR Serverless application that runs large queries"
    )
    jobs_role: str | None = Field(default=None, description="the ARN of the role of its job runs")
    principals: Json[dict[str, list[str]]] = Field(
        default={},
        description="ARNs of callers that sign their requests to the API (`*` matches anything) -> their roles",
    )
    role_prefix: str = Field(
        default=ROLE_PREFIX,
        pattern=r"^[A-Za-z0-9_.-]{1,64}:$",
        description="what a role in a token begins with, so that roles of other programs are none of the lake's",
    )
    public_entries: bool = Field(
        default=False,
        description="whether anybody may read the timeline's entries, which name tables with their counts and times; "
        "otherwise callers who may read every table",
    )
    limits_table: str | None = Field(
        default=None, description="the DynamoDB table that counts what each caller uses; none: nothing is limited"
    )
    limits: dict[str, dict[str, float]] | Json[dict[str, dict[str, float]]] = Field(
        default={},
        description="role (none, reader, writer, admin) -> limits of its callers that are not the default",
    )
    query_workers: int = Field(
        default=0,
        ge=0,
        le=64,
        description="processes that run queries apart from the caller's own, each with a hard limit of memory; 0: none",
    )
    store_timeout_s: float = Field(
        default=30.0, gt=0, le=600, description="how long a request to AWS may take before it counts as unavailable"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="the lowest level that is logged"
    )


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads the settings. Invalid lists every problem, by the name of the variable."""
    environ = os.environ if environ is None else environ
    from_environment = _from_environment(environ)
    layered = {
        **FUNCTIONS.get(from_environment.get("function", ""), {}),
        **from_environment,
    }
    try:
        return Settings.model_validate(layered)
    except ValidationError as error:
        raise Invalid(_problems(error)) from None


def variable_of(field: str) -> str:
    """`bucket` -> `STRANDLINE_BUCKET`. The stacks name the variables with it, too."""
    return SDK_VARIABLES.get(field, PREFIX + field.upper())


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    variables = {variable_of(field): field for field in Settings.model_fields}
    return {field: environ[variable] for variable, field in variables.items() if environ.get(variable)}


def _problems(error: ValidationError) -> str:
    lines = ["the settings are not usable:"]
    for problem in error.errors():
        field = str(problem["loc"][0]) if problem["loc"] else "?"
        lines.append(f"  {variable_of(field)}: {problem['msg']}")
    return "\n".join(lines)
