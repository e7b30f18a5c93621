"""The timeline's database: SlateDB on S3, with blocking calls.

One writer at a time: opening a new writer fences the previous one, whose `write` then raises Fenced. A reader follows
the latest state and never writes. Every call returns within its timeout or raises Unavailable.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import botocore.session

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import LakeError, Unavailable, Unverified
from catalog.core.retries import Retry
from catalog.core.settings import Settings
from catalog.timeline.log.slate_bindings import DATABASE, abandon, slate, wait
from catalog.timeline.log.slate_bindings import Fenced as Fenced

T = TypeVar("T")

SCAN_ROWS = 5000
READ_AHEAD = 1 << 20
BLOCK = 4096
"""SlateDB's block size, and the read-ahead of a scan with a limit. With a read-ahead of 0, SlateDB 0.17 panics as soon
as a row is in an SST."""
OPENING = Retry(attempts=3, base_s=0.0)
FLUSH_AFTER = 32
"""Batches between two flushes. Each is a file of the WAL, and costs two requests at the next opening."""
COMPACT_AT = 8
"""SSTs of level 0 at which they are merged. A read of a key looks into each, with two or three requests when cold."""
GARBAGE_AGE_MS = 300_000
"""How old garbage must be: a reader, or a writer that does not know yet that it is fenced, may still read it."""

# For a writer in a Lambda function: no background work, because the process is frozen between invocations, and only
# `write` writes. SlateDB's retries multiply those of its S3 client (ten, for about two seconds), and have no limit by
# default.
_WRITER: dict[str, Any] = {
    "compactor_options": None,
    "garbage_collector_options": None,
    "manifest_poll_interval": "60s",
    "object_store_max_retries": 0,
    "flush_interval": None,
    "l0_max_ssts": 10_000,
    "l0_max_ssts_per_key": 10_000,
}
# The same writer while `compact` runs: size-tiered, with short polling intervals, because the caller waits for it.
_COMPACTING: dict[str, Any] = {
    "compactor_options.poll_interval": "100ms",
    "compactor_options.commit_compacted_interval": "100ms",
    "compactor_options.worker.compactions_poll_interval": "100ms",
    "compactor_options.checkpoint_lifetime": "60s",
    "manifest_poll_interval": "200ms",
}


@dataclass(frozen=True)
class StoreLocation:
    """Where a database is stored. `store` is SlateDB's handle of a bucket, or of memory that handles share.

    SlateDB keeps the credentials that it is given, so a process that outlives them needs another location: `renewed`.
    """

    store: Any
    path: str
    timeout_s: float = 30.0
    settings: Settings | None = None
    credentials: Any = None
    """botocore's, which refresh themselves; None for a store in memory."""
    frozen: Any = None
    """The credentials that SlateDB was given."""

    @classmethod
    def from_settings(cls, settings: Settings, credentials: Any = None) -> StoreLocation:
        """The database in the lake's bucket, with the given credentials or those of the AWS SDK's default chain."""
        credentials = credentials or botocore.session.get_session().get_credentials()
        if credentials is None:
            raise Unavailable("no AWS credentials were found for the timeline's store")
        frozen = credentials.get_frozen_credentials()
        config = {
            "bucket": settings.bucket,
            "region": settings.region,
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "connect_timeout": "5 seconds",
            "timeout": f"{max(1, int(settings.store_timeout_s))} seconds",
        }
        if frozen.token:
            config["token"] = frozen.token
        if settings.endpoint_url:
            config["endpoint"] = settings.endpoint_url
            config["allow_http"] = "true"
        builder = slate.ObjectStoreBuilder(slate.ObjectStoreType.S3)
        for key, value in config.items():
            builder.with_config(key, value)
        return cls(builder.build(), DATABASE, settings.store_timeout_s, settings, credentials, frozen)

    @property
    def is_outdated(self) -> bool:
        """Whether the credentials have been refreshed since, which botocore does minutes before they expire.

        Costs no request unless they are about to expire.
        """
        return self.credentials is not None and self.credentials.get_frozen_credentials() != self.frozen

    def renewed(self) -> StoreLocation:
        """The same database with the credentials of now; itself if they did not change."""
        if self.settings is None or not self.is_outdated:
            return self
        return self.from_settings(self.settings, self.credentials)

    @classmethod
    def in_memory(cls, timeout_s: float = 30.0) -> StoreLocation:
        """A store in memory that exists as long as this object: for property tests and measurements."""
        return cls(slate.ObjectStoreBuilder(slate.ObjectStoreType.IN_MEMORY).build(), DATABASE, timeout_s)


class Store:
    """The reads that writer and reader have in common. Safe to call from any thread."""

    def __init__(self, location: StoreLocation, handle: Any) -> None:
        self._location = location
        self._handle = handle

    def get(self, key: bytes) -> bytes | None:
        """One value: no request when its block is cached, otherwise up to 3 GETs."""
        value: bytes | None = self._read(lambda handle: handle.get(key))
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, in their order, read in parallel."""

        async def gather(handle: Any) -> list[bytes | None]:
            return list(await asyncio.gather(*(handle.get(key) for key in keys)))

        return self._read(gather) if keys else []

    def scan(
        self, start: bytes, end: bytes, *, limit: int | None = None, descending: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < end, in order, with at most SCAN_ROWS in memory."""
        remaining, replaced = limit, False
        while start < end and (remaining is None or remaining > 0):
            handle = self._current()
            try:
                for batch in self._batches(handle, start, end, remaining, descending):
                    yield from batch
                    if batch:
                        start, end = (start, batch[-1][0]) if descending else (batch[-1][0] + b"\x00", end)
                        remaining, replaced = None if remaining is None else remaining - len(batch), False
                return
            except LakeError as error:
                if replaced or not self._replace(handle, error):
                    raise
                replaced = True  # goes on after the last row, once without progress

    def _batches(
        self, handle: Any, start: bytes, end: bytes, limit: int | None, descending: bool
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        key_range = slate.KeyRange(start=start, start_inclusive=True, end=end, end_inclusive=False)
        order = slate.IterationOrder.DESCENDING if descending else slate.IterationOrder.ASCENDING
        options = slate.ScanOptions(
            durability_filter=slate.DurabilityLevel.MEMORY,
            dirty=False,
            read_ahead_bytes=READ_AHEAD if limit is None else BLOCK,
            cache_blocks=True,
            max_fetch_tasks=4,
            order=order,
        )
        rows = self._wait(handle.scan_with_options(key_range, options))
        while limit is None or limit > 0:
            batch_size = SCAN_ROWS if limit is None else min(limit, SCAN_ROWS)
            batch = self._wait(rows.next_batch(batch_size))
            yield [(row.key, row.value) for row in batch]
            if len(batch) < batch_size:
                return
            limit = None if limit is None else limit - batch_size

    def _read(self, call: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        handle = self._current()
        try:
            return self._wait(call(handle))
        except LakeError as error:
            if not self._replace(handle, error):
                raise
        return self._wait(call(self._current()))

    def _current(self) -> Any:
        """The handle to read with."""
        return self._handle

    def _replace(self, handle: Any, error: LakeError) -> bool:
        """Whether the read that failed with this handle is worth another try, with the current one."""
        return False

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return wait(work, self._location.timeout_s)


class StoreWriter(Store):
    """The only writer. Costs one PUT per batch once it is open; opening costs about 20 requests."""

    def __init__(self, location: StoreLocation, handle: Any) -> None:
        super().__init__(location, handle)
        # What it found at its opening is not known: the files of a writer that crashed early, time after time.
        self._replayed = FLUSH_AFTER

    @classmethod
    def open(cls, location: StoreLocation) -> StoreWriter:
        """Opens the database for writing, creating it if necessary, and fences any other writer.

        Replays the files of the write-ahead log (WAL) since the last `flush`, with about two requests for each.
        """
        return cls(location, _open(location, _settings(_WRITER)))

    @property
    def is_flush_due(self) -> bool:
        """Whether FLUSH_AFTER batches or more would be replayed at the next opening."""
        return self._replayed >= FLUSH_AFTER

    def flush(self) -> int:
        """Writes the rows that only the WAL has as an SST of level 0. Returns how many of those there are.

        About five requests. A crash at any step leaves a database with the same contents.
        """
        self._wait(self._handle.flush_with_options(slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE)))
        self._replayed = 0
        return len(self._wait(self._admin().read_manifest(None)).l0)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """Writes atomically; the batch is durable when this returns. One PUT.

        When it raises, the batch may or may not be stored, and this handle may show either state: close it and open
        another one to see which.
        """
        batch = slate.WriteBatch()
        for key, value in puts:
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)

        async def write() -> None:
            # In a fenced writer `write` still returns; only `flush` raises.
            await self._handle.write(batch)
            await self._handle.flush()

        self._wait(write())
        self._replayed += 1

    def close(self) -> None:
        """Closes the handle without writing. Never raises: the next writer fences this one in any case."""
        abandon(self._handle.shutdown_with_options(slate.CloseOptions(flush_type=None)))

    def compact(self) -> StoreWriter:
        """Collects garbage and merges the batches' files (size-tiered). Returns the writer to continue with.

        Closes this writer. A crash at any step leaves a database with the same contents. What this merge replaces is
        garbage from now on, and the next `compact` deletes it: until then readers learn of the merge.
        """
        self.flush()
        self.close()
        self._wait(self._admin().run_gc_once(_gc_options()))
        compacting = StoreWriter(self._location, _open(self._location, _settings({**_WRITER, **_compacting()})))
        try:
            self._wait(_until_merged(self._admin()))
        finally:
            compacting.close()
        return StoreWriter.open(self._location)

    def _admin(self) -> Any:
        return slate.AdminBuilder(self._location.path, self._location.store).build()


class StoreReader(Store):
    """Follows the latest durable state, with a delay of at most `poll_ms`. Writes nothing.

    Opens the database again when its credentials were refreshed, and when a file is missing: a process that was frozen
    looks for files that a compaction has replaced since.
    """

    def __init__(self, location: StoreLocation, handle: Any, poll_ms: int = 1000) -> None:
        super().__init__(location, handle)
        self._poll_ms = poll_ms
        self._opening = threading.Lock()

    @classmethod
    def open(cls, location: StoreLocation, poll_ms: int = 1000) -> StoreReader:
        return cls(location, _open_reader(location, poll_ms), poll_ms)

    def close(self) -> None:
        abandon(self._handle.shutdown())

    def _current(self) -> Any:
        if self._location.is_outdated:
            self._reopen(self._handle)
        return self._handle

    def _replace(self, handle: Any, error: LakeError) -> bool:
        if not isinstance(error, Unverified) and handle is self._handle:
            return False
        self._reopen(handle)  # if the file is missing now as well, it is not this reader that is wrong
        return True

    def _reopen(self, handle: Any) -> None:
        """Replaces the handle, unless another thread has. Reads that still use it fail, and find the new one."""
        with self._opening:
            if handle is self._handle:
                self._location = self._location.renewed()
                self._handle = _open_reader(self._location, self._poll_ms)
                abandon(handle.shutdown())


def count_wal_files(s3: Any, bucket: str) -> int:
    """The files of the write-ahead log, garbage included. One request per thousand."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{DATABASE}/wal/")
    with translate_errors(DATABASE):
        return sum(len(page.get("Contents", ())) for page in pages)


def _open_reader(location: StoreLocation, poll_ms: int) -> Any:
    builder = slate.DbReaderBuilder(location.path, location.store)
    builder.with_reader_mode(slate.ReaderMode.FOLLOW_LATEST())
    builder.with_options(
        slate.ReaderOptions(
            manifest_poll_interval_ms=poll_ms,
            checkpoint_lifetime_ms=600_000,
            max_memtable_bytes=64 << 20,
            skip_wal_replay=False,
            object_store_max_retries=0,
        )
    )
    return wait(builder.build(), location.timeout_s)


def _open(location: StoreLocation, settings: Any) -> Any:
    def attempt() -> Any:
        builder = slate.DbBuilder(location.path, location.store)
        builder.with_settings(settings)
        return wait(builder.build(), location.timeout_s)

    return OPENING.run(attempt)  # of two writers that open at the same time, one loses the race for the manifest


def _settings(values: dict[str, Any]) -> Any:
    settings = slate.Settings.default()
    for key, value in values.items():
        settings.set(key, json.dumps(value))
    return settings


def _compacting() -> dict[str, Any]:
    defaults = json.loads(slate.Settings.default().to_json_string())
    return {"compactor_options": defaults["compactor_options"], **_COMPACTING}


async def _until_merged(admin: Any) -> None:
    """Waits until fewer than four L0 SSTs are left: size-tiered compaction does not merge those."""
    while len((await admin.read_manifest(None)).l0) >= 4:
        await asyncio.sleep(0.05)


def _gc_options() -> Any:
    aged = slate.GarbageCollectorDirectoryOptions(min_age_ms=GARBAGE_AGE_MS, dry_run=False)
    return slate.GarbageCollectorOptions(
        manifest_options=aged,
        wal_options=aged,
        compacted_options=aged,
        compactions_options=aged,
        object_store_max_retries=0,
    )
