"""`strandline doctor`: checks this machine, an account before a deployment, or a deployed lake. Changes nothing."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog import Invalid
from cli.lake_choice import use_chosen_tools
from cli.lake_commands import add_command
from cli.output import Output

if TYPE_CHECKING:
    from infra.doctor.finding import Finding
    from infra.stage import Stage

TIMEOUT_S = 20.0


def register(app: typer.Typer) -> None:
    add_command(app, doctor, "doctor", "doctor --aws --stage prod", "-o json doctor --deployed")


def doctor(
    context: typer.Context,
    aws: Annotated[bool, typer.Option("--aws", help="Check the account before a deployment.")] = False,
    deployed: Annotated[bool, typer.Option("--deployed", help="Walk a deployed lake.")] = False,
    stage: Annotated[
        str | None, typer.Option(help="A stage of cdk.json.", show_default="the one that cdk.json names")
    ] = None,
) -> None:
    """Say what is wrong, and what to type next. Exit code 1 if anything is."""
    use_chosen_tools()
    from infra.local.machine import machine

    output: Output = context.obj
    with output.progress("looking"):
        of_account = aws or deployed
        findings = _of_account(_stage(stage), aws=aws, deployed=deployed) if of_account else list(machine())
    lines = [f"{'ok ' if one.ok else 'NO '} {one.check:<13} {one.seen}{_then(one)}" for one in findings]
    rows = [{**asdict(one), "next": "" if one.ok else one.next} for one in findings]
    output.data(rows, "\n".join(lines).replace("[", r"\["))
    if not all(one.ok for one in findings):
        raise typer.Exit(1)


def _then(finding: Finding) -> str:
    return "" if finding.ok else f"\n                  -> {finding.next}"


def _stage(name: str | None) -> Stage:
    from infra.stage import StageError, load_stage

    try:
        return load_stage(name)
    except StageError as error:
        raise Invalid(str(error)) from None


def _of_account(stage: Stage, *, aws: bool, deployed: bool) -> list[Finding]:
    from catalog.core.clients import make_client
    from infra.doctor import account
    from infra.doctor import deployed as walk

    region = os.environ.get("AWS_REGION")

    @cache
    def client(service: str) -> Any:
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        return make_client(service, region=region, endpoint_url=endpoint, read_timeout_s=TIMEOUT_S)

    findings = list(account.account(stage, region, client)) if aws else []
    return findings + (list(walk.deployed(stage, client)) if deployed else [])
