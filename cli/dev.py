"""`strandline dev`, `demo` and `status`: commands for the embedded cloud."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.markup import escape

from cli.environment import embedded_exports, export_lines
from cli.interrupts import INTERRUPTED, ignore_signals, interrupt_on_signals, signals_held, wait_for_interrupt
from cli.lake_choice import get_embedded, use_chosen_tools
from cli.output import Output
from strandline.embedded import DEFAULT_PORT
from strandline.endpoints import ENDPOINT, TOKEN


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: `strandline dev` · `strandline dev --port 0` · `strandline dev --latency aws`")(dev)
    app.command(epilog="Examples: `strandline demo` · `strandline demo --keep` · `strandline -o json demo`")(demo)
    app.command(epilog="Examples: `strandline status` · `strandline -o json status`")(status)


Port = Annotated[int, typer.Option(help="The port of the AWS endpoint on loopback; 0 chooses a free one.")]


class Latencies(StrEnum):
    """How long the embedded cloud's requests take."""

    NONE = "none"
    AWS = "aws"


Latency = Annotated[
    Latencies, typer.Option(help="`aws` adds the time that a request takes on AWS to every request, from a fixed seed.")
]


def dev(context: typer.Context, port: Port = DEFAULT_PORT, latency: Latency = Latencies.NONE) -> None:
    """Start a lake on this machine, in memory. It runs until Ctrl-C."""
    output: Output = context.obj
    use_chosen_tools()
    interrupt_on_signals()
    try:
        _run(output, port, latency)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _run(output: Output, port: int, latency: Latencies) -> None:
    """Runs until Ctrl-C. Ctrl-C before the greeting is an interruption (exit code 130); after it, the normal end."""
    with signals_held():  # the import starts jsii's Node; Ctrl-C must not reach it before it has left our process group
        from infra.local.cloud import EmbeddedCloud
    cloud = EmbeddedCloud(port=port)
    try:
        with output.progress("starting the embedded cloud …"):
            cloud.start()
            cloud.serve_page()
        if latency is Latencies.AWS:
            cloud.add_latency()
        exports = _exports(cloud)
        output.data({"environment": exports, "status": cloud.status()}, escape(_greeting(cloud, exports)))
        with suppress(KeyboardInterrupt):
            wait_for_interrupt()
    finally:
        ignore_signals()
        with output.progress("stopping …"):
            cloud.stop()


def _exports(cloud: Any) -> dict[str, str]:
    session = cloud.session() if "api" in cloud.addresses() else None
    return embedded_exports(cloud.endpoint.url, session, cloud.environment("person"))


def _greeting(cloud: Any, exports: dict[str, str]) -> str:
    lines = [f"The lake is up ({cloud.started_in:.1f} s). Ctrl-C stops it and deletes everything.", ""]
    lines += [f"  {name:<12} {address}" for name, address in cloud.addresses().items()]
    lines += ["", f"Open it in a browser: {cloud.gateway.url}", "", "In another terminal, paste these lines:"]
    lines += [f"  {line}" for line in export_lines(exports)]
    lines += [
        "",
        "Then strandline, other AWS tools and curl use this lake. The token has all roles, for a day:",
    ]
    lines += ["  strandline status"]
    if ENDPOINT in exports:
        lines += [f'  curl -H "Authorization: Bearer ${TOKEN}" "${ENDPOINT}/tables"']
    return "\n".join(lines)


def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the embedded cloud running afterwards.")] = False,
) -> None:
    """Run the demo: ingest, Spark, SQL and time travel, search, proofs, and the detection of a flipped byte."""
    use_chosen_tools()
    interrupt_on_signals()
    try:
        with signals_held():
            from cli.demo import run_demo
        run_demo(context.obj, keep=keep)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def status(context: typer.Context) -> None:
    """Show the stacks, functions, queues, jobs and checkpoint of the running embedded cloud."""
    output: Output = context.obj
    answer = get_embedded("status")
    output.data(answer, "\n".join(_status_lines(answer)))


def _status_lines(answer: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for section, entries in answer.items():
        lines.append(f"[bold]{section}[/]")
        pairs = entries.items() if isinstance(entries, dict) else enumerate(entries)
        lines += [f"  {key}: {value}" for key, value in pairs] or ["  none"]
    return lines
