"""The virtual clock, and the tasks that it schedules. One thread: a task is a greenlet, and runs until it waits.

A process has tasks of its own, a clock of its own, and memory that dies with it. Killing one ends its tasks where they
wait, and everything that they still try while they unwind fails without an effect.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

EPOCH_S = 1_800_000_000.0
MAX_EVENTS = 200_000


class Killed(BaseException):
    """The process is dead. Not an Exception: no handler may go on after it."""


class Stuck(AssertionError):
    """Nothing is left to run, or far too much was."""


class Process:
    """One simulated process: its memory (`memo`), its clock, and whether it lives."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.alive = True
        self.frozen_until = 0.0
        self.clock_offset = 0.0
        self.requests = 0
        self.memo: dict[Any, Any] = {}
        self.tasks: list[Task] = []

    def spawn(self, work: Callable[[], Any], label: str = "") -> Task:
        task = Task(self, work, label)
        self.tasks.append(task)
        self.world.at(self.world.now, task.resume)
        return task

    def kill(self) -> None:
        """Ends the process at this moment. The caller, if it is one of its tasks, must raise Killed itself."""
        if not self.alive:
            return
        self.alive = False
        self.world.note(self, "killed")
        for task in [*self.tasks]:
            if task.green is not getcurrent():
                self.world.at(self.world.now, task.resume)

    def check(self) -> None:
        if not self.alive:
            raise Killed(self.name)


class Task:
    """Work in a process. `op`: the client's operation that it works on."""

    def __init__(self, process: Process, work: Callable[[], Any], label: str) -> None:
        self.process, self.label = process, label
        self.op: int | None = None
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._waiters: list[Task] = []

        def run() -> None:
            try:
                process.check()
                self.value = work()
            except BaseException as error:
                self.error = error
            self.done = True
            process.tasks.remove(self)
            for waiter in self._waiters:
                process.world.at(process.world.now, waiter.resume)

        self.green = greenlet(run, parent=process.world.hub)

    def resume(self) -> None:
        """Continues the task; an event for a task that is done, or frozen, does nothing now."""
        if self.done:
            return
        world = self.process.world
        if self.process.alive and self.process.frozen_until > world.now:
            world.at(self.process.frozen_until, self.resume)
            return
        world.current = self
        self.green.switch()

    def park(self) -> None:
        """Waits until somebody calls `resume`."""
        self.process.world.hub.switch()
        self.process.check()

    def join(self, waiter: Task) -> None:
        """Waits until this task is done. It may have failed: see `error`."""
        while not self.done:
            self._waiters.append(waiter)
            waiter.park()


class World:
    """The clock and the event queue. `seed` decides everything that is random."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0
        self.hub: greenlet = getcurrent()
        self.current: Task | None = None
        self.trace: list[str] = []
        self.events = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def random(self, *names: object) -> random.Random:
        """A generator for this name: what one part draws does not change what another one does."""
        return random.Random(f"{self.seed}/{'/'.join(map(str, names))}")

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (max(time, self.now), self._number, event))

    def task(self) -> Task:
        """The task that runs now."""
        assert self.current is not None and self.current.green is getcurrent(), "a request from outside of any task"
        return self.current

    def sleep(self, seconds: float) -> None:
        """Waits, in the current task, by the virtual clock."""
        task = self.task()
        task.process.check()
        until = self.now + max(seconds, 0.0)
        while True:
            self.at(until, task.resume)
            task.park()
            if self.now >= until:
                return

    def run(self, until: Callable[[], bool], limit_s: float) -> None:
        """Runs events until the condition holds; Stuck if it does not by the limit of virtual seconds."""
        self.hub = getcurrent()
        end = self.now + limit_s
        while not until():
            if not self._queue:
                raise Stuck("nothing is left to run, and the run is not over")
            time, _, event = heapq.heappop(self._queue)
            self.now = max(self.now, time)
            self.events += 1
            if self.now > end or self.events > MAX_EVENTS:
                raise Stuck(f"the run is not over after {limit_s:g} s of virtual time and {self.events} events")
            event()
            self.current = None

    def note(self, process: Process | None, what: str) -> None:
        """A line of the trace: a run of the same seed has the same lines."""
        self.trace.append(f"{self.now:10.3f} {process.name if process else '-':14} {what}")
