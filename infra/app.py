"""The CDK app: `cdk deploy` runs this on AWS, `infra.local` in the embedded cloud. Both get the same stacks."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import App, Environment, Tags

from infra.stacks.api import ApiStack
from infra.stacks.compute import ComputeStack
from infra.stacks.jobs import JobsStack
from infra.stacks.observe import ObserveStack
from infra.stacks.replica import ReplicaStack
from infra.stacks.storage import StorageStack
from infra.stage import ROOT, load_stage


def build_app(context: dict[str, Any] | None = None, outdir: str | None = None) -> App:
    """The whole lake for the stage that the context names. Needs no account, no credentials, no Docker."""
    settings = {**json.loads((ROOT / "cdk.json").read_text())["context"], **(context or {})}
    app = App(context=settings, outdir=outdir, analytics_reporting=False)
    # What `cdk -c stage=prod` says comes through the app's own context, and wins.
    stage = load_stage(app.node.try_get_context("stage"), settings)
    storage = StorageStack(app, stage.resource("storage"), stage=stage)
    if stage.replica_region:
        elsewhere = Environment(region=stage.replica_region)
        storage.add_dependency(ReplicaStack(app, stage.resource("replica"), stage=stage, env=elsewhere))
    compute = ComputeStack(app, stage.resource("compute"), stage=stage, storage=storage)
    jobs = JobsStack(app, stage.resource("jobs"), stage=stage, storage=storage, compute=compute)
    api = ApiStack(app, stage.resource("api"), stage=stage, storage=storage, compute=compute, jobs=jobs)
    ObserveStack(app, stage.resource("observe"), stage=stage, api_id=api.api.ref, key=storage.key)
    for key, value in stage.tags().items():
        Tags.of(app).add(key, value)
    return app


if __name__ == "__main__":
    build_app().synth()
