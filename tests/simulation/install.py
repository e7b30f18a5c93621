"""Puts the simulation in place of what the lake stands on: clients, clocks, threads, random ids, caches of a process.

A module that holds one of them under its own name gets the stand-in instead, and the original back afterwards.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import random as real_random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import boto3
from pyiceberg.utils.concurrent import ExecutorFactory

import functions.ingest
import functions.sequencer
import functions.sqs_batch
from catalog.changes import changes_root
from catalog.iceberg import ObjectIO, object_store
from catalog.timeline.log import slate_bindings, store
from catalog.timeline.sequencer import sequencer
from catalog.timeline.verify import objects as verified_objects
from tests.simulation import slatedb
from tests.simulation.locks import executor_of, threading_of
from tests.simulation.scheduler import EPOCH_S, Process, World

T = TypeVar("T")
ROOMS = ("catalog.", "functions.", "pyiceberg.")
CACHES = ("functions.ingest", "functions.sequencer", "functions.sqs_batch", "catalog.iceberg.object_store")
"""Modules whose caches are the memory of one process: every function in them with `functools.cache` or `lru_cache`."""


def time_of(world: World) -> Any:
    """A stand-in for the module `time`: the clock of the current process, which a fault may set."""

    def wall() -> float:
        offset = world.current.process.clock_offset if world.current else 0.0
        return EPOCH_S + world.now + offset

    return SimpleNamespace(
        time=wall,
        time_ns=lambda: int(wall() * 1e9),
        monotonic=lambda: world.now,
        perf_counter=lambda: world.now,
        sleep=world.sleep,
        process_time=time.process_time,
        strftime=time.strftime,
        gmtime=time.gmtime,
    )


def wait_synchronously(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Runs a coroutine of the model, whose waits are scheduling points already."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    except slatedb.Error as error:
        raise slate_bindings._explain(error) from None
    raise AssertionError("the model of SlateDB waited for an event loop")


def abandon_synchronously(work: Coroutine[Any, Any, Any]) -> None:
    with contextlib.suppress(slatedb.Error, StopIteration):
        work.send(None)


def asyncio_of(world: World) -> Any:
    async def gather(*works: Coroutine[Any, Any, Any]) -> list[Any]:
        return [await work for work in works]

    async def sleep(seconds: float) -> None:
        world.sleep(seconds)

    return SimpleNamespace(gather=gather, sleep=sleep)


def per_process(world: World, function: Callable[..., T]) -> Callable[..., T]:
    """`functools.cache`, with one cache for each simulated process."""
    original: Callable[..., T] = function.__wrapped__  # type: ignore[attr-defined]

    @functools.wraps(original)
    def cached(*arguments: Any) -> T:
        memo, key = world.task().process.memo, (original, arguments)
        if key not in memo:
            memo[key] = original(*arguments)
        value: T = memo[key]
        return value

    return cached


class SweptLakes(list[Any]):
    """`functions.sequencer._swept_lakes`, one list for each process."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _own(self) -> list[Any]:
        own: list[Any] = self._world.task().process.memo.setdefault("swept", [])
        return own

    def __contains__(self, lake: Any) -> bool:
        return lake in self._own()

    def __setitem__(self, where: Any, value: Any) -> None:
        self._own()[where] = value


@contextmanager
def installed(
    world: World, clients: Callable[[Process, str, dict[str, Any]], Any], bucket: str, lags: Callable[[], bool]
) -> Iterator[None]:
    """`clients(process, service, options)` makes the client that boto3 would."""
    ids = world.random("ids")
    stand_in_uuid4 = functools.partial(_uuid4, ids)
    executor = executor_of(world)
    stand_ins: list[tuple[Any, Any]] = [
        (time, time_of(world)),
        (threading, threading_of(world)),
        (uuid.uuid4, stand_in_uuid4),
        (uuid, _like(uuid, uuid4=stand_in_uuid4)),
        (concurrent.futures.ThreadPoolExecutor, executor),
        (real_random, _like(real_random, uniform=world.random("jitter").uniform)),
    ]

    def client(service: str, **options: Any) -> Any:
        return clients(world.task().process, service, options)

    def store_client() -> Any:
        process = world.task().process
        if "slatedb" not in process.memo:
            process.memo["slatedb"] = clients(process, "s3", {})
        return process.memo["slatedb"]

    model = slatedb.bindings(
        store_client, bucket, lambda: f"{ids.getrandbits(64):016x}", lambda: EPOCH_S + world.now, lags
    )
    location = classmethod(lambda cls, settings, credentials=None: cls(None, store.DATABASE, settings.store_timeout_s))
    with ExitStack() as stack:
        for module in _modules():
            for name, value in [*vars(module).items()]:
                for original, stand_in in stand_ins:
                    if value is original:
                        stack.enter_context(patch.object(module, name, stand_in))
        # It limits memory, and processes do not share it.
        stack.enter_context(patch.object(changes_root, "_COMPARISONS", contextlib.nullcontext()))
        for module in map(sys.modules.__getitem__, CACHES):
            for name, value in [*vars(module).items()]:
                if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == module.__name__:
                    stack.enter_context(patch.object(module, name, per_process(world, value)))
        for target, name, value in (
            (boto3, "client", client),
            (verified_objects, "load_file_io", lambda properties, location: _UncachedIO(properties)),
            (functions.sequencer, "_swept_lakes", SweptLakes(world)),
            (store, "slate", model),
            (store, "wait", wait_synchronously),
            (store, "abandon", abandon_synchronously),
            (store, "asyncio", asyncio_of(world)),
            (store, "FLUSH_AFTER", 3),
            (sequencer, "COMPACT_AT", 4),
            (store.StoreLocation, "from_settings", location),
            (slate_bindings, "slate", model),
            (ExecutorFactory, "get_or_create", staticmethod(executor)),
        ):
            stack.enter_context(patch.object(target, name, value))
        yield


class _UncachedIO(ObjectIO):
    """The verifier's FileIO: every read is a request. pyiceberg's own would ask AWS."""

    def __init__(self, properties: Any) -> None:
        super().__init__(properties)
        self.store = object_store.ObjectStore(self.store.client)
        self.store._cache_metadata = lambda path, data: None  # type: ignore[method-assign]


def _modules() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.startswith(ROOMS) and module is not None]


def _uuid4(ids: real_random.Random) -> uuid.UUID:
    return uuid.UUID(int=ids.getrandbits(128), version=4)


def _like(module: ModuleType, **replaced: Any) -> Any:
    return SimpleNamespace(**{**vars(module), **replaced})
