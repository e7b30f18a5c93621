"""`strandline cost`: what the stacks cost a month, from their templates and a price list. Sends no request."""

from __future__ import annotations

from typing import Annotated

import typer

from catalog import Invalid
from cli.lake_commands import add_command
from cli.output import Output


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="What the lake costs on AWS.", no_args_is_help=True)
    add_command(
        group,
        estimate,
        "cost estimate",
        "cost estimate --stage prod --size medium",
        "-o json cost estimate",
    )
    app.add_typer(group, name="cost")


def estimate(
    context: typer.Context,
    stage: Annotated[
        str | None, typer.Option(help="A stage of cdk.json.", show_default="the one that cdk.json names")
    ] = None,
    size: Annotated[str | None, typer.Option(help="Itemise one size: idle, small, medium or large.")] = None,
) -> None:
    """Dollars a month by list prices (catalog/prices.json), for an idle lake and three sizes."""
    from infra.app import build_app
    from infra.cost.estimate import Inventory
    from infra.cost.estimate import estimate as estimate_lines
    from infra.cost.workload import WORKLOADS
    from infra.local.assembly import synthesise
    from infra.stage import StageError

    output: Output = context.obj
    by_name = {workload.name: workload for workload in WORKLOADS}
    if size is not None and size not in by_name:
        raise Invalid(f"there is no size {size!r}: choose one of {', '.join(by_name)}")
    overrides = {} if stage is None else {"stage": stage}
    with output.progress("reading the stacks"):
        try:
            templates = synthesise(lambda context_, out: build_app({**context_, **overrides}, out))
        except StageError as error:
            raise Invalid(str(error)) from None
    inventory = Inventory.of(template.body for template in templates)
    if size is None:
        rows = [
            {
                "size": workload.name,
                "dollars": round(sum(line.dollars for line in estimate_lines(inventory, workload)), 2),
                "gb_stored": workload.gb_stored,
                "files_a_day": workload.files_a_day,
                "api_requests_a_day": workload.api_requests_a_day,
                "queries_a_day": workload.queries_a_day,
                "job_vcpu_hours_a_day": workload.job_vcpu_hours_a_day,
            }
            for workload in WORKLOADS
        ]
        output.table(rows, list(rows[0]), title="A month, by list prices")
        return
    lines = estimate_lines(inventory, by_name[size])
    rows = [
        {"price": line.price, "quantity": f"{line.quantity:,.10g}", "dollars": round(line.dollars, 2), "why": line.why}
        for line in lines
    ]
    rows.append({"price": "total", "quantity": "", "dollars": round(sum(line.dollars for line in lines), 2), "why": ""})
    output.table(rows, ["price", "quantity", "dollars", "why"], title=f"A month of the {size} lake, by list prices")
