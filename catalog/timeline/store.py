"""The timeline's database: SlateDB on S3, behind a few blocking calls. The only module that imports slatedb.

One writer at a time: the newest to open fences the older, whose `write` then raises Fenced. A reader follows
the latest state and never writes. Every call ends within the time it was given, with an answer or an
Unavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import struct
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

import botocore.session

from catalog import places
from catalog.errors import Conflict, Internal, LakeError, Unavailable, Unverified
from catalog.settings import Settings

T = TypeVar("T")


class _SlateDB:
    """slatedb's bindings, imported at their first use: a quarter of a second that a function which never opens the
    timeline does not pay."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(), name)


@cache
def _imported() -> Any:
    from slatedb import uniffi

    _bindings()._UniffiFfiConverterBytes.lower = staticmethod(_lower_bytes)
    _bindings()._UniffiFfiConverterSequenceTypeKeyValue.read = staticmethod(_read_rows)
    return uniffi


@cache
def _bindings() -> Any:
    from slatedb.uniffi._slatedb_uniffi import slatedb

    return slatedb


slate: Any = _SlateDB()

DATABASE = places.TIMELINE_STORE.rstrip("/")
SCAN_ROWS = 5000
OPEN_ATTEMPTS = 3

# A writer that lives in a function: no background work that would meet a frozen process, nothing written but
# what `write` flushes. SlateDB's own retries come on top of those of its S3 client (ten, for about two
# seconds), and multiply them; without a limit it retries for ever.
_WRITER: dict[str, Any] = {
    "compactor_options": None,
    "garbage_collector_options": None,
    "manifest_poll_interval": "60s",
    "object_store_max_retries": 0,
    "flush_interval": None,
    "l0_max_ssts": 10_000,
    "l0_max_ssts_per_key": 10_000,
}
# The same writer while `compact` runs: size-tiered, and looking often, because somebody waits for it.
_COMPACTING: dict[str, Any] = {
    "compactor_options.poll_interval": "100ms",
    "compactor_options.commit_compacted_interval": "100ms",
    "compactor_options.worker.compactions_poll_interval": "100ms",
    "compactor_options.checkpoint_lifetime": "60s",
    "manifest_poll_interval": "200ms",
}


class Fenced(Conflict):
    """Another writer opened the database: what this one wrote since its last flush does not exist."""


@dataclass(frozen=True)
class Place:
    """Where a database lies. `store` is SlateDB's handle of a bucket, or of a memory that handles share."""

    store: Any
    path: str
    timeout_s: float = 30.0

    @classmethod
    def from_settings(cls, settings: Settings) -> Place:
        """The lake's own: in its bucket, with the credentials that every AWS SDK would find."""
        found = botocore.session.get_session().get_credentials()
        if found is None:
            raise Unavailable("no AWS credentials were found for the timeline's store")
        frozen = found.get_frozen_credentials()
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
        return cls(builder.build(), DATABASE, settings.store_timeout_s)

    @classmethod
    def in_memory(cls, timeout_s: float = 30.0) -> Place:
        """A store that lives as long as this object: for laws that thousands of databases must obey."""
        return cls(slate.ObjectStoreBuilder(slate.ObjectStoreType.IN_MEMORY).build(), DATABASE, timeout_s)


class Database:
    """What writer and reader share: reads. Safe to call from any thread."""

    def __init__(self, place: Place, handle: Any) -> None:
        self._place = place
        self._handle = handle

    def get(self, key: bytes) -> bytes | None:
        """One value: nothing when warm, up to 3 GETs when cold."""
        found: bytes | None = self._wait(self._handle.get(key))
        return found

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, in their order, read at once."""

        async def gather() -> list[bytes | None]:
            return list(await asyncio.gather(*(self._handle.get(key) for key in keys)))

        return self._wait(gather()) if keys else []

    def scan(
        self, start: bytes, end: bytes, *, limit: int | None = None, descending: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows with start <= key < end, in order, a few thousand held at a time."""
        if start >= end:
            return
        span = slate.KeyRange(start=start, start_inclusive=True, end=end, end_inclusive=False)
        order = slate.IterationOrder.DESCENDING if descending else slate.IterationOrder.ASCENDING
        options = slate.ScanOptions(
            durability_filter=slate.DurabilityLevel.MEMORY,
            dirty=False,
            read_ahead_bytes=1 << 20 if limit is None else 0,
            cache_blocks=True,
            max_fetch_tasks=4,
            order=order,
        )
        rows = self._wait(self._handle.scan_with_options(span, options))
        left = limit
        while left is None or left > 0:
            wanted = SCAN_ROWS if left is None else min(left, SCAN_ROWS)
            batch = self._wait(rows.next_batch(wanted))
            yield from ((row.key, row.value) for row in batch)
            if len(batch) < wanted:
                return
            left = None if left is None else left - wanted

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return _wait(work, self._place.timeout_s)


class Writer(Database):
    """The one writer. Warm it costs one PUT per batch; opening costs about 20 requests."""

    @classmethod
    def open(cls, place: Place) -> Writer:
        """Opens the database for writing, creating it if need be, and fences whoever had it open."""
        return cls(place, _open(place, _settings(_WRITER)))

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        """All of it or nothing, durable when this returns: one PUT.

        When it raises, the batch may or may not be stored, and this handle may show either: close it, and
        learn the truth from the next one that opens.
        """
        batch = slate.WriteBatch()
        for key, value in puts:
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)

        async def write() -> None:
            # A fenced writer's write still returns: only the flush tells.
            await self._handle.write(batch)
            await self._handle.flush()

        self._wait(write())

    def close(self) -> None:
        """Lets go, writing nothing. Never raises: the next writer fences whatever this leaves behind."""
        _abandon(self._handle.shutdown_with_options(slate.CloseOptions(flush_type=None)))

    def compact(self) -> Writer:
        """Merges what the batches left (size-tiered), collects the garbage; gives the writer to go on with.

        This writer is closed by it. A crash anywhere within leaves a database that opens as it was.
        """
        flush = slate.FlushOptions(flush_type=slate.FlushType.MEM_TABLE)
        self._wait(self._handle.flush_with_options(flush))
        self.close()
        admin = slate.AdminBuilder(self._place.path, self._place.store).build()
        merging = Writer(self._place, _open(self._place, _settings({**_WRITER, **_compacting()})))
        try:
            _wait(_until_merged(admin), self._place.timeout_s)
        finally:
            merging.close()
        _wait(admin.run_gc_once(_garbage()), self._place.timeout_s)
        return Writer.open(self._place)


class Reader(Database):
    """Follows the latest durable state, at most `poll_ms` behind it, and writes nothing at all."""

    @classmethod
    def open(cls, place: Place, poll_ms: int = 1000) -> Reader:
        builder = slate.DbReaderBuilder(place.path, place.store)
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
        return cls(place, _wait(builder.build(), place.timeout_s))

    def close(self) -> None:
        _abandon(self._handle.shutdown())


def _open(place: Place, settings: Any) -> Any:
    for attempt in range(1, OPEN_ATTEMPTS + 1):
        builder = slate.DbBuilder(place.path, place.store)
        builder.with_settings(settings)
        try:
            return _wait(builder.build(), place.timeout_s)
        except Conflict:  # two openers met at one manifest: the store is sound, the loser asks again
            if attempt == OPEN_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _settings(values: dict[str, Any]) -> Any:
    settings = slate.Settings.default()
    for key, value in values.items():
        settings.set(key, json.dumps(value))
    return settings


def _compacting() -> dict[str, Any]:
    defaults = json.loads(slate.Settings.default().to_json_string())
    return {"compactor_options": defaults["compactor_options"], **_COMPACTING}


async def _until_merged(admin: Any) -> None:
    """Size-tiered compaction leaves fewer than four young tables alone: that is merged enough."""
    while len((await admin.read_manifest(None)).l0) >= 4:
        await asyncio.sleep(0.05)


def _garbage() -> Any:
    # Young files stay: a reader, or a writer about to learn that it is fenced, may still be at them.
    aged = slate.GarbageCollectorDirectoryOptions(min_age_ms=300_000, dry_run=False)
    return slate.GarbageCollectorOptions(
        manifest_options=aged,
        wal_options=aged,
        compacted_options=aged,
        compactions_options=aged,
        object_store_max_retries=0,
    )


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """SlateDB's calls are coroutines; one loop in a thread of its own serves handlers and threads alike."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="slatedb", daemon=True).start()
    return loop


def _wait(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, timeout_s)

    try:
        return asyncio.run_coroutine_threadsafe(bounded(), _loop()).result()
    except TimeoutError:
        raise Unavailable(f"the timeline's store did not answer within {timeout_s:g} s; try again") from None
    except slate.Error as error:
        raise _explain(error) from None


def _abandon(work: Coroutine[Any, Any, Any]) -> None:
    async def quietly() -> None:
        # It may be closed already, or fenced, or the store is away: all the same to who lets go.
        with contextlib.suppress(slate.Error, TimeoutError):
            await asyncio.wait_for(work, 1)

    asyncio.run_coroutine_threadsafe(quietly(), _loop()).result()


def _explain(error: Any) -> LakeError:
    text = str(getattr(error, "message", error))
    if isinstance(error, slate.Error.Closed):
        if error.reason == slate.CloseReason.FENCED:
            return Fenced("another sequencer has opened the timeline since: this one wrote nothing; start again")
        return Unavailable(f"the timeline's store is closed: {text}")
    if isinstance(error, slate.Error.Unavailable):
        return Unavailable(f"the timeline's store is away: {text}")
    if isinstance(error, slate.Error.Data):
        if "already exists" in text:
            return Conflict(f"another writer was faster: {text}")
        return Unverified(f"the timeline's store cannot be read: {text}", subject=DATABASE)
    return Internal(f"the timeline's store failed: {text}")


def _lower_bytes(value: bytes) -> Any:
    """One copy into Rust. The generated code does the same byte by byte, at 0.2 s of CPU per megabyte."""
    data = struct.pack(">i", len(value)) + value
    buffer = _bindings()._UniffiRustBuffer.alloc(len(data))
    ctypes.memmove(buffer.data, data, len(data))
    buffer.len = len(data)
    return buffer


class _Row(NamedTuple):
    key: bytes
    value: bytes


def _read_rows(buffer: Any) -> list[_Row]:
    """The rows of a scan out of one copy. The generated code makes about twenty calls for each of them."""
    data = ctypes.string_at(buffer.data, buffer.len)
    rows, at = list[_Row](), buffer.offset + 4
    length = _LENGTH.unpack_from
    for _ in range(*length(data, buffer.offset)):
        key_end = at + 4 + length(data, at)[0]
        value_end = key_end + 4 + length(data, key_end)[0]
        rows.append(_Row(data[at + 4 : key_end], data[key_end + 4 : value_end]))
        at = value_end + 25 if data[value_end + 16] else value_end + 17  # seq, create_ts, perhaps expire_ts
    if at != len(data):
        raise Internal("a scan's answer is not laid out as this version of slatedb lays it out")
    buffer.offset = at
    return rows


_LENGTH = struct.Struct(">i")
