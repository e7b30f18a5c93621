"""`strandline demo`: the main job end to end on the embedded cloud, each step real and each number measured here."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from catalog.lake import open_lake
from catalog.settings import load_settings
from cli.demo_steps import Demo
from cli.output import Output
from infra.local.cloud import EmbeddedCloud


class Steps:
    """Numbers the steps, times them, and keeps what each one found for `--output json`."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._began = time.perf_counter()
        self.done: list[dict[str, Any]] = []
        self.tell: Callable[[str], None] = lambda text: None
        """Says how far the step at hand is, to whoever watches."""

    @contextmanager
    def step(self, title: str) -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        began = time.perf_counter()
        with self._output.progress(title) as self.tell:
            yield found
        seconds = time.perf_counter() - began
        self.done.append({"step": title, "seconds": round(seconds, 3), **found})
        self._output.caption(f"[bold]{len(self.done)}. {title}[/]  [dim]{seconds:.2f} s[/]")
        for line in str(found.get("shown", "")).splitlines():
            self._output.caption("   " + line.replace("[", r"\["))

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


def run_demo(output: Output, *, keep: bool) -> None:
    steps = Steps(output)
    cloud = EmbeddedCloud()
    _on_signals(_stop)
    try:
        with steps.step("The lake starts: the CDK stacks, in memory, on loopback") as found:
            cloud.start()
            cloud.serve_page()
            found["shown"] = "\n".join(f"{name}: {state}" for name, state in cloud.status()["stacks"].items())
        if keep:
            output.caption(f"   See it as it happens: {cloud.gateway.url}")
        os.environ.update(cloud.environment("person"))
        Demo(steps, cloud, open_lake(load_settings())).run()
        _close(output, steps, cloud, keep)
    finally:
        _on_signals(signal.SIG_IGN)  # whoever is impatient would leave a process behind
        cloud.stop()


def _close(output: Output, steps: Steps, cloud: EmbeddedCloud, keep: bool) -> None:
    output.caption(f"\n{len(steps.done)} steps in {steps.seconds:.0f} s, all of it on this machine.")
    if output.is_json:
        output.data({"seconds": round(steps.seconds, 1), "endpoint": cloud.endpoint.url, "steps": steps.done})
    if not keep:
        output.caption("Next, type [bold].venv/bin/strandline dev[/], which keeps a lake up with a page to look at it,")
        output.caption("and in another terminal what docs/guide/first-ten-minutes.md says.")
        return
    output.caption(f"Kept up until Ctrl-C, with a page to look at it: {cloud.gateway.url}")
    output.caption(f"In another terminal:\n  export STRANDLINE_DEV={cloud.endpoint.url}")
    output.caption("  .venv/bin/strandline table list\n  .venv/bin/strandline timeline log")
    output.caption("  .venv/bin/strandline timeline verify --deep   # finds the byte again")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    output.caption("stopping")


def _stop(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _on_signals(what: Any) -> None:
    """Both ways of being told to end undo everything. Signals are the main thread's alone."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, what)
