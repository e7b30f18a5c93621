"""One run: a seed, its operations and faults, then the oracles. A failure says what to type to see it again."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import functions.ingest
import functions.sequencer
from catalog.tables import transactions
from tests.simulation.clients import Client, Told, set_up
from tests.simulation.cloud import BUCKET, Cloud
from tests.simulation.history import History, Violation
from tests.simulation.install import installed
from tests.simulation.memo import memoised
from tests.simulation.network import KINDS, Faults, Plan
from tests.simulation.oracles import Oracles
from tests.simulation.scheduler import Process, Stuck, World
from tests.simulation.workload import CLIENTS, Op, draw

OPS = 14
Defect = Callable[[ExitStack, "Cloud"], None]
"""Puts a known defect back, for the time of a run."""


@dataclass
class Outcome:
    """What came of a run. `failure`: the broken promise; None if all were kept."""

    seed: int
    ops: list[Op]
    faults: dict[tuple[str, int], str]
    trace: list[str] = field(default_factory=list)
    failure: str | None = None

    @property
    def digest(self) -> str:
        return sha256("\n".join(self.trace).encode()).hexdigest()


def simulate(
    seed: int,
    *,
    count: int = OPS,
    ops: Sequence[Op] | None = None,
    faults: Faults | None = None,
    defect: Defect | None = None,
) -> Outcome:
    """Runs a seed with `count` operations; with `ops` and `faults`, only these of it."""
    world = World(seed)
    random = world.random("plan")
    # Each seed has faults of some kinds only: one that always strikes hides what another one would find.
    kinds = tuple(kind for kind in KINDS if random.random() < 0.5) or KINDS
    plan = Plan(world, faults, random.choice((0.0, 0.005, 0.01, 0.02, 0.04)), kinds)
    chosen = draw(world, count) if ops is None else list(ops)
    cloud = Cloud(world, plan)
    cloud.moved.overlaps = random.random() < 0.5
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, cloud.variables))
        stack.enter_context(memoised())
        stack.enter_context(_quiet_functions(world))
        lags = world.random("lags")
        stack.enter_context(installed(world, cloud.client, BUCKET, lambda: lags.random() < 0.2))
        if defect is not None:
            defect(stack, cloud)
        outcome = Outcome(seed, chosen, plan.met)
        try:
            _run(world, cloud, plan, chosen, stack)
        except (Violation, Stuck) as failure:
            outcome.failure = f"{type(failure).__name__}: {failure}"
        outcome.trace = world.trace
        return outcome


def _run(world: World, cloud: Cloud, plan: Plan, ops: list[Op], stack: ExitStack) -> None:
    told = Told()
    history = History(cloud.bucket, {op.id: op for op in ops}, lambda: world.now)
    history.tokens |= {op.token: op.id for op in ops}
    cloud.glue.on_commit = history.on_commit
    stack.enter_context(patch.object(transactions, "_Attempt", _attempt_type(world, history)))
    cloud.bucket.on_put = lambda version: _note_landed(history, version)
    oracles = Oracles(world, cloud, history, told)

    plan.active = False
    setup = Process(world, "oracle.setup").spawn(lambda: set_up(cloud))
    world.run(lambda: setup.done, 100)
    if setup.error is not None:
        raise setup.error
    plan.active = True

    cloud.start()
    clients = [Client(cloud, history, told, n, [op for op in ops if op.client == n]) for n in range(CLIENTS)]
    tasks = [client.process.spawn(client.run) for client in clients]
    world.run(lambda: all(task.done for task in tasks), 20_000)
    for task in tasks:
        if task.error is not None:
            raise task.error
    plan.active = False
    oracles.recover()
    oracles.check()


def _attempt_type(world: World, history: History) -> Any:
    class Attempt(transactions._Attempt):
        """Tells the reference model which operation a transaction's id belongs to."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            op = world.task().op
            assert op is not None
            history.transactions[self.id] = op

    return Attempt


def _note_landed(history: History, version: Any) -> None:
    for op in history.ops.values():
        if op.kind == "land" and op.key == version.key:
            history.tokens[op.landed_token(version.version_id)] = op.id


class _TraceLogs(logging.Handler):
    """Warnings of the lake are lines of the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        process = self._world.current.process if self._world.current else None
        details = getattr(record, "error", None) or getattr(record, "reason", "")
        self._world.note(process, f"     {record.getMessage()} {details}")


def _quiet_functions(world: World) -> ExitStack:
    stack = ExitStack()
    root, handlers = logging.getLogger(), logging.getLogger().handlers[:]
    root.handlers[:] = [_TraceLogs(world)]
    stack.callback(root.handlers.__setitem__, slice(None), handlers)
    nothing = SimpleNamespace(add_metric=lambda **_: None, flush_metrics=lambda: None, add_dimension=lambda **_: None)
    for module in (functions.ingest, functions.sequencer):
        stack.enter_context(patch.object(module, "configure_logs", lambda *_: None))
        stack.enter_context(patch.object(module, "function_metrics", lambda _: nothing))
    return stack
