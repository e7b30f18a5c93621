"""`strandline dev`, `demo` and `status`: the embedded cloud from the command line."""

from __future__ import annotations

import signal
import threading
from typing import Annotated, Any

import typer

from cli.embedded import DEFAULT_PORT, ask_embedded_cloud
from cli.output import Output


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: `strandline dev` · `strandline dev --port 0` · `strandline -o json dev`")(dev)
    app.command(epilog="Examples: `strandline demo` · `strandline demo --keep` · `strandline -o json demo`")(demo)
    app.command(epilog="Examples: `strandline status` · `strandline -o json status`")(status)


Port = Annotated[int, typer.Option(help="Where the AWS endpoint listens on loopback; 0 takes any free port.")]


def dev(context: typer.Context, port: Port = DEFAULT_PORT) -> None:
    """Start the whole lake on this machine, in memory, and keep it up until Ctrl-C."""
    from infra.local.cloud import EmbeddedCloud

    output: Output = context.obj
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with output.progress("starting the embedded cloud …"):
        cloud = EmbeddedCloud(port=port).start()
        cloud.serve_page()
    try:
        output.data({"environment": cloud.environment("person"), "status": cloud.status()}, _greeting(cloud))
        stop.wait()
    finally:
        with output.progress("stopping …"):
            cloud.stop()


def _greeting(cloud: Any) -> str:
    lines = [f"The lake is up ({cloud.started_in:.1f} s). Ctrl-C stops it and forgets everything.", ""]
    lines += [f"  {name:<12} {where}" for name, where in cloud.addresses().items()]
    if "api" in cloud.addresses():
        lines += ["", "A token for the API, with all roles, good for a day:", f"  {cloud.token('admin')}"]
    lines += ["", f"See it: {cloud.gateway.url}", "In another terminal: strandline status"]
    if cloud.server.port != DEFAULT_PORT:
        lines.append(f"  (export STRANDLINE_DEV={cloud.endpoint.url} first: this is not the default port)")
    lines += ["", "For other AWS tools:"]
    lines += [f"  export {key}={value}" for key, value in cloud.environment("person").items()]
    return "\n".join(lines)


def demo(
    context: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the embedded cloud up afterwards.")] = False,
) -> None:
    """Watch the lake work: dropped files, Spark, SQL then and now, search, proofs, and a flipped byte that is found."""
    from cli.demo import run_demo

    run_demo(context.obj, keep=keep)


def status(context: typer.Context) -> None:
    """What the running embedded cloud holds: stacks, functions, queues, jobs, the timeline's head."""
    output: Output = context.obj
    answer = ask_embedded_cloud("status")
    output.data(answer, "\n".join(_status_lines(answer)))


def _status_lines(answer: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for section, entries in answer.items():
        lines.append(f"[bold]{section}[/]")
        pairs = entries.items() if isinstance(entries, dict) else enumerate(entries)
        lines += [f"  {key}: {value}" for key, value in pairs] or ["  none"]
    return lines
