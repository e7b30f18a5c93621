"""The CDK app: `cdk deploy` deploys it to AWS, `infra.local` to the embedded cloud. Both get the same stacks."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from aws_cdk import App, Environment, Tags

from infra.pinned_bases import require_pinned_bases, unpinned_bases
from infra.stacks.api import ApiStack
from infra.stacks.compute import ComputeStack
from infra.stacks.jobs import JobsStack
from infra.stacks.observe import ObserveStack
from infra.stacks.replica import ReplicaStack
from infra.stacks.storage import StorageStack
from infra.stage import ROOT, load_stage

OUTDIR = "cdk.out"
"""The CDK's default output directory: `cdk deploy --app cdk.out` deploys the assembly in it without synthesising."""


def build_app(context: dict[str, Any] | None = None, outdir: str | None = None) -> App:
    """Builds all stacks for the stage that the context names. Needs no account, no credentials and no Docker."""
    settings = {**json.loads((ROOT / "cdk.json").read_text())["context"], **(context or {})}
    app = App(context=settings, outdir=outdir, analytics_reporting=False)
    # `cdk -c stage=prod` sets the app's own context, which overrides cdk.json.
    stage = load_stage(app.node.try_get_context("stage"), settings)
    storage = StorageStack(app, stage.resource("storage"), stage=stage)
    if stage.replica_region:
        replica_env = Environment(region=stage.replica_region)
        storage.add_dependency(ReplicaStack(app, stage.resource("replica"), stage=stage, env=replica_env))
    compute = ComputeStack(app, stage.resource("compute"), stage=stage, storage=storage)
    jobs = JobsStack(app, stage.resource("jobs"), stage=stage, storage=storage, compute=compute)
    api = ApiStack(app, stage.resource("api"), stage=stage, storage=storage, compute=compute, jobs=jobs)
    ObserveStack(
        app, stage.resource("observe"), stage=stage, api_id=api.api.ref, key=storage.key, bucket=storage.bucket
    )
    require_pinned_bases(stage, {"function_base": (compute, jobs, api), "job_base": (jobs,)})
    for key, value in stage.tags().items():
        Tags.of(app).add(key, value)
    return app


def main() -> None:
    """Synthesises into cdk.out/ and prints each stack's template, and which of the images' bases are not pinned.

    When the CDK's command line runs it, synthesises into CDK_OUTDIR and prints nothing: the command line prints.
    """
    if "CDK_OUTDIR" in os.environ:
        build_app().synth()
        return
    app = build_app(outdir=OUTDIR)
    assembly = app.synth()
    width = max(len(stack.stack_name) for stack in assembly.stacks)
    for stack in assembly.stacks:
        sys.stdout.write(f"{stack.stack_name:<{width}}  {OUTDIR}/{stack.template_file}\n")
    stage = load_stage(app.node.try_get_context("stage"))
    for _, problem in unpinned_bases(stage):
        sys.stdout.write(f"\n{'refused by cdk deploy' if stage.retain_data else 'note'}: {problem}\n")


if __name__ == "__main__":
    main()
