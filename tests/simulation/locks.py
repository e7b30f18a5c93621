"""What `threading` and `concurrent.futures` are in the simulation: tasks of the virtual clock, locks between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, Self

from tests.simulation.scheduler import Task, World


def threading_of(world: World) -> Any:
    """A stand-in for the module `threading`, for modules that use it."""

    def of(kind: type) -> type:
        return type(kind.__name__, (kind,), {"_world": world})

    semaphore = of(Semaphore)
    return SimpleNamespace(
        Lock=of(Lock),
        RLock=of(RLock),
        Event=of(Event),
        Thread=of(Thread),
        BoundedSemaphore=semaphore,
        Semaphore=semaphore,
    )


class Lock:
    """A lock between tasks. `_world` is the world of the module that stands in for `threading`."""

    _world: World
    reentrant = False

    def __init__(self) -> None:
        self._owner: Task | None = None
        self._depth = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        task = self._world.task()
        while self._owner is not None and not (self.reentrant and self._owner is task):
            if not self._owner.process.alive or self._owner.done:
                break
            if not blocking:
                return False
            self._waiting.append(task)
            task.park()
        self._owner, self._depth = task, self._depth + 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._owner, self._depth = None, 0
            waiting, self._waiting = self._waiting, []
            for task in waiting:
                self._world.at(self._world.now, task.resume)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        return self._owner is not None


class RLock(Lock):
    reentrant = True


class Semaphore(Lock):
    def __init__(self, value: int = 1) -> None:
        super().__init__()
        self._free = value

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        while self._free <= 0:
            self._waiting.append(self._world.task())
            self._world.task().park()
        self._free -= 1
        return True

    def release(self) -> None:
        self._free += 1
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._world.at(self._world.now, task.resume)


class Event:
    _world: World

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._world.at(self._world.now, task.resume)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        task = self._world.task()
        end = None if timeout is None else self._world.now + timeout
        while not self._set and (end is None or self._world.now < end):
            self._waiting.append(task)
            if end is not None:
                self._world.at(end, task.resume)
            task.park()
        return self._set


class Thread:
    _world: World

    def __init__(self, target: Callable[[], Any], name: str = "", daemon: bool = False) -> None:
        self._target, self._name = target, name
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._world.task().process.spawn(self._target, self._name)

    def join(self, timeout: float | None = None) -> None:
        assert self._task is not None
        self._task.join(self._world.task())


class Future:
    """The result of work that an executor runs as a task."""

    def __init__(self, world: World, task: Task) -> None:
        self._world, self._task = world, task

    def result(self, timeout: float | None = None) -> Any:
        self._task.join(self._world.task())
        if self._task.error is not None:
            raise self._task.error
        return self._task.value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._task.join(self._world.task())
        return self._task.error

    def done(self) -> bool:
        return self._task.done

    def cancel(self) -> bool:
        return False

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self.exception()
        callback(self)


def executor_of(world: World) -> Any:
    """A stand-in for ThreadPoolExecutor: as many tasks as are submitted, whatever its width."""

    class Executor:
        def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "", **_: Any) -> None:
            self._futures: list[Future] = []

        def submit(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Future:
            task = world.task().process.spawn(lambda: work(*arguments, **named), "pool")
            future = Future(world, task)
            self._futures.append(future)
            return future

        def map(self, work: Callable[..., Any], *arguments: Iterable[Any], timeout: Any = None) -> Iterator[Any]:
            futures = [self.submit(work, *values) for values in zip(*arguments, strict=False)]
            return (future.result() for future in futures)

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            if wait:
                for future in self._futures:
                    future.exception()
            self._futures.clear()

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.shutdown()

    return Executor
