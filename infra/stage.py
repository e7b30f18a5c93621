"""A stage's settings from cdk.json, and the rule for resource names. Creates no resources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from catalog import LakeError
from catalog.core.settings import ROLE_PREFIX, STAGE_NAME
from catalog.timeline import Feeder

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "strandline"
MAX_WITNESSES_BYTES = 3000
PINNED_IMAGE = r"^[^\s@]+@sha256:[0-9a-f]{64}$"

Tiered = Literal["landing", "quarantine", "media", "bronze", "silver", "gold"]


class StageError(ValueError):
    """cdk.json has no such stage, or its settings are invalid; the message lists every problem."""


class Stage(BaseModel):
    """One entry of `context.stages` in cdk.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=STAGE_NAME)
    origin: str = Field(pattern=r"^[^\s+]+$", description="the timeline's name in every checkpoint")
    retain_data: bool = Field(description="keep buckets, keys and databases when the stack is deleted")
    customer_key: bool = Field(
        default=False,
        description="encrypt with a KMS key of the lake's own, rotated yearly: a dollar a month, plus KMS requests",
    )
    signing: Literal["secret", "kms"] = Field(
        default="secret",
        description="the key that signs checkpoints: a secret, with which whoever reads it can forge, or a key that "
        "never leaves KMS (a dollar a month, and a request for each checkpoint)",
    )
    tier_after_days: dict[Tiered, int] = Field(
        default={}, description="days until a layer's objects move to Intelligent-Tiering; other layers do not move"
    )
    replica_region: str | None = Field(
        default=None,
        pattern=r"^[a-z]{2}(-[a-z]+)+-\d$",
        description="the region that S3 replicates each new object to",
    )
    timeline_cdn: bool = Field(default=False, description="serve the timeline's public objects through CloudFront")
    public_entries: bool = Field(
        default=False,
        description="let anybody read the timeline's entries, which name tables with their counts and times; otherwise "
        "callers who may read every table do. The checkpoint and the tiles of hashes are always public",
    )
    lake_formation: bool = Field(
        default=False, description="register the tables' location in hybrid mode: IAM and Lake Formation grants apply"
    )
    erase_requests: bool = Field(
        default=False,
        description="serve requests of the API to erase rows, by a function that may delete versions of objects; "
        "otherwise only the command `strandline erase` does",
    )
    tracing: bool = Field(default=False, description="X-Ray traces of the functions")
    ingest_concurrency: int = Field(
        default=5,
        ge=2,
        le=1000,
        description="concurrent batches of landed files; a new account has 10 concurrent executions for all functions",
    )
    api_concurrency: int | None = Field(
        default=None,
        gt=0,
        description="the API function's reserved concurrency, of an account's that has more than a new one's; none: it "
        "shares the account's",
    )
    function_base: str | None = Field(
        default=None,
        pattern=PINNED_IMAGE,
        description="the base of the functions' images, by digest; without it AWS's tag, with which `cdk` refuses a "
        "stage that retains its data",
    )
    job_base: str | None = Field(
        default=None, pattern=PINNED_IMAGE, description="the base of the jobs' image, by digest, as function_base"
    )
    log_retention_days: Literal[1, 3, 7, 14, 30, 60, 90, 180, 365] = Field(description="of every log group and bucket")
    sweep_minutes: int = Field(gt=0, le=60, description="the sequencer sweeps all tables once in this time")
    canary_minutes: int = Field(
        default=15, gt=0, le=24 * 60, description="every kind of read and proof is asked once in this time"
    )
    witnesses: list[str] = Field(
        default=[],
        description="lines of a c2sp.org/tlog-policy file: the witnesses, with URLs, that cosign each checkpoint",
    )
    issuer: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="OIDC issuer of the API's tokens, the default of a stack parameter; none: a Cognito user pool",
    )
    audience: str | None = Field(default=None, min_length=1, description="the audience that tokens must name")
    principals: dict[str, list[str]] = Field(default={}, description="IAM principal ARN -> roles, for SigV4 requests")
    role_prefix: str = Field(
        default=ROLE_PREFIX,
        pattern=r"^[A-Za-z0-9_.-]{1,64}:$",
        description="what a role in a token begins with; stages with one issuer may each have their own",
    )
    limits: dict[str, dict[str, float]] = Field(
        default={},
        description="role (none, reader, writer, admin) -> limits of its callers that are not the default",
    )
    api_domain: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$",
        description="the API's custom domain name; you create its DNS record",
    )
    api_certificate: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f-]+$",
        description="ARN of the domain's ACM certificate, in the lake's region",
    )
    requests_per_second: int = Field(default=500, gt=0, description="per route of the API, from all callers together")
    request_burst: int = Field(default=1000, gt=0)
    job_executors: int = Field(
        default=1,
        ge=1,
        le=64,
        description="executors of a job run at most, of 4 vCPU each, besides its driver's 4: with one, two runs fit "
        "into the 16 vCPU of a new account",
    )
    budget_dollars: int | None = Field(
        default=None,
        gt=0,
        description="a monthly budget of what has the stage's tag, which must be activated as a cost allocation tag",
    )
    run_jobs: bool = Field(default=True, description="whether the job schedules are enabled")

    @model_validator(mode="after")
    def _witnesses_can_be_asked(self) -> Self:
        if len(self.witness_policy().encode()) > MAX_WITNESSES_BYTES:
            raise ValueError(f"witnesses are over {MAX_WITNESSES_BYTES} bytes, and Lambda's variables have 4 KB in all")
        if self.witnesses:
            try:
                Feeder.parse(self.witness_policy())
            except LakeError as error:
                raise ValueError(error.message) from None
        return self

    @model_validator(mode="after")
    def _issuer_has_an_audience(self) -> Self:
        if (self.issuer is None) != (self.audience is None):
            raise ValueError("set issuer and audience together, or neither: then the lake creates a Cognito user pool")
        return self

    @model_validator(mode="after")
    def _domain_has_a_certificate(self) -> Self:
        if (self.api_domain is None) != (self.api_certificate is None):
            raise ValueError("set api_domain and api_certificate together, or neither for AWS's name only")
        return self

    def resource(self, name: str) -> str:
        """A physical resource name, for example `strandline-dev-sequencer`."""
        return f"{PROJECT}-{self.name}-{name}"

    def witness_policy(self) -> str:
        """The witnesses as the text of a policy file; empty without one."""
        return "".join(f"{line}\n" for line in self.witnesses)

    def tags(self) -> dict[str, str]:
        return {"project": PROJECT, "stage": self.name}


def load_stage(name: str | None = None, context: dict[str, Any] | None = None) -> Stage:
    """The named stage of cdk.json, by default the one that `context.stage` names. Raises StageError."""
    if context is None:
        context = json.loads((ROOT / "cdk.json").read_text())["context"]
    stages = context["stages"]
    name = name or context["stage"]
    if name not in stages:
        raise StageError(f"cdk.json has no stage {name!r}; it has {', '.join(sorted(stages))}")
    try:
        return Stage(name=name, **stages[name])
    except ValidationError as error:
        problems = "\n".join(f"  {'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors())
        raise StageError(f"stage {name!r} in cdk.json is invalid:\n{problems}") from None
