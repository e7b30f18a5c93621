"""`strandline demo`: runs and times the steps of `cli.demo_steps` on an embedded cloud, and prints what each shows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from catalog import load_settings, open_lake
from cli.demo_steps import Demo
from cli.interrupts import ignore_signals, wait_for_interrupt
from cli.output import Output
from infra.local.cloud import EmbeddedCloud


class Steps:
    """Numbers and times the steps, and keeps the facts of each for `--output json`."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began = time.perf_counter()
        self.done: list[dict[str, Any]] = []
        self.progress: Callable[[str], None] = lambda text: None
        """Shows the progress of the current step."""

    @contextmanager
    def step(self, title: str) -> Iterator[dict[str, Any]]:
        facts: dict[str, Any] = {}
        began = time.perf_counter()
        with self._output.progress(title) as self.progress:
            yield facts
        seconds = time.perf_counter() - began
        self.done.append({"step": title, "seconds": round(seconds, 3), **facts})
        self._output.caption(f"[bold]{len(self.done)}. {title}[/]  [dim]{seconds:.2f} s[/]")
        for line in str(facts.get("shown", "")).splitlines():
            self._output.caption("   " + line.replace("[", r"\["))

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


def run_demo(output: Output, *, keep: bool) -> None:
    steps = Steps(output)
    cloud = EmbeddedCloud()
    try:
        with steps.step("The lake starts: the CDK stacks, in memory, on loopback") as facts:
            cloud.start()
            cloud.serve_page()
            facts["shown"] = "\n".join(f"{name}: {state}" for name, state in cloud.status()["stacks"].items())
        if keep:
            output.caption(f"   Watch it here: {cloud.gateway.url}")
        os.environ.update(cloud.environment("person"))
        Demo(steps, cloud, open_lake(load_settings())).run()
        _print_summary(output, steps, cloud, keep)
    finally:
        ignore_signals()
        cloud.stop()


def _print_summary(output: Output, steps: Steps, cloud: EmbeddedCloud, keep: bool) -> None:
    output.caption(f"\n{len(steps.done)} steps in {steps.seconds:.0f} s, all of it on this machine.")
    if output.is_json:
        output.data({"seconds": round(steps.seconds, 1), "endpoint": cloud.endpoint.url, "steps": steps.done})
    if not keep:
        output.caption("Next: type [bold].venv/bin/strandline dev[/] for a lake of your own and its web page.")
        output.caption("Then follow docs/guide/first-ten-minutes.md in another terminal.")
        return
    output.caption(f"The lake runs until Ctrl-C. Its page in the browser: {cloud.gateway.url}")
    output.caption(f"In another terminal:\n  export STRANDLINE_DEV={cloud.endpoint.url}")
    output.caption("  .venv/bin/strandline table list\n  .venv/bin/strandline timeline log")
    output.caption("  .venv/bin/strandline timeline verify --deep   # finds the flipped byte")
    with suppress(KeyboardInterrupt):
        wait_for_interrupt()
    output.caption("stopping")
