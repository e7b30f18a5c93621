"""A stage's settings, typed, and the one place names come from. Never creates a resource."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "strandline"

Tiered = Literal["landing", "quarantine", "media", "bronze", "silver", "gold"]


class StageError(ValueError):
    """cdk.json does not describe a usable stage; the message lists every problem at once."""


class Stage(BaseModel):
    """One entry of `context.stages` in cdk.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9]{1,11}$")
    origin: str = Field(pattern=r"^[^\s+]+$", description="the timeline's name in every checkpoint")
    retain_data: bool = Field(description="keep buckets, keys and databases when the stack goes")
    customer_key: bool = Field(
        default=False,
        description="encrypt with the lake's own key, rotated yearly: a dollar a month, and its requests",
    )
    tier_after_days: dict[Tiered, int] = Field(
        default={}, description="after how many days a layer's objects go to Intelligent-Tiering; those not named stay"
    )
    replica_region: str | None = Field(
        default=None,
        pattern=r"^[a-z]{2}(-[a-z]+)+-\d$",
        description="where each object is copied to, as it is written",
    )
    timeline_cdn: bool = Field(default=False, description="CloudFront before the timeline's public objects")
    lake_formation: bool = Field(
        default=False, description="register the tables' location in hybrid mode: grants of both kinds then count"
    )
    tracing: bool = Field(default=False, description="X-Ray traces of the functions")
    ingest_concurrency: int = Field(default=10, ge=2, le=1000, description="batches of landed files at once")
    api_concurrency: int | None = Field(
        default=None, gt=0, description="kept free for the API in the account's pool, and its limit; none: the pool's"
    )
    log_retention_days: Literal[1, 3, 7, 14, 30, 60, 90, 180, 365] = Field(description="of every log, in days")
    sweep_minutes: int = Field(gt=0, le=60, description="how often every table is caught up without being asked")
    issuer: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="OIDC issuer of the API's tokens; a deployment may say another. Without one: a Cognito pool",
    )
    audience: str | None = Field(default=None, min_length=1, description="what the issuer's tokens must be for")
    principals: dict[str, list[str]] = Field(default={}, description="ARNs of signed requests' callers -> their roles")
    api_domain: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$",
        description="the API's own name, besides the one that AWS gives it; you point the name there",
    )
    api_certificate: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:acm:[a-z0-9-]+:\d{12}:certificate/[0-9a-f-]+$",
        description="ARN of the name's certificate in ACM, in the lake's region",
    )
    requests_per_second: int = Field(default=500, gt=0, description="to one route of the API, from all callers")
    request_burst: int = Field(default=1000, gt=0)
    run_jobs: bool = Field(default=True, description="whether jobs run by their schedules, or only when asked")

    @model_validator(mode="after")
    def _issuer_has_an_audience(self) -> Self:
        if (self.issuer is None) != (self.audience is None):
            raise ValueError("issuer and audience go together; without both the lake has a Cognito pool of its own")
        return self

    @model_validator(mode="after")
    def _domain_has_a_certificate(self) -> Self:
        if (self.api_domain is None) != (self.api_certificate is None):
            raise ValueError("api_domain and api_certificate go together; without both the API has AWS's name only")
        return self

    def resource(self, what: str) -> str:
        """`strandline-dev-sequencer`: the one rule for physical names."""
        return f"{PROJECT}-{self.name}-{what}"

    def tags(self) -> dict[str, str]:
        return {"project": PROJECT, "stage": self.name}


def load_stage(name: str | None = None, context: dict[str, Any] | None = None) -> Stage:
    """The named stage of cdk.json (its `context.stage` when no name is given)."""
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
        raise StageError(f"stage {name!r} in cdk.json is not usable:\n{problems}") from None
