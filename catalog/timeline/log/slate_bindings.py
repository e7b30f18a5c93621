"""SlateDB's bindings: imported at first use, with blocking calls and the lake's errors. The only import of slatedb."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import struct
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, NamedTuple, TypeVar

from catalog.core import s3_layout
from catalog.core.errors import Conflict, Internal, LakeError, Unavailable, Unverified

T = TypeVar("T")

DATABASE = s3_layout.TIMELINE_STORE.rstrip("/")


class Fenced(Conflict):
    """Another writer opened the database: what this one wrote since its last flush is lost."""


class _SlateDB:
    """slatedb's bindings, imported at first use: it takes a quarter of a second that many functions need not spend."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_imported(), name)


@cache
def _imported() -> Any:
    from slatedb import uniffi

    bindings()._UniffiFfiConverterBytes.lower = staticmethod(_lower_bytes)
    bindings()._UniffiFfiConverterSequenceTypeKeyValue.read = staticmethod(_read_rows)
    return uniffi


@cache
def bindings() -> Any:
    from slatedb.uniffi._slatedb_uniffi import slatedb

    return slatedb


slate: Any = _SlateDB()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """SlateDB's calls are coroutines. One event loop, in its own thread, runs them for all threads."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="slatedb", daemon=True).start()
    return loop


def wait(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, timeout_s)

    try:
        return asyncio.run_coroutine_threadsafe(bounded(), _loop()).result()
    except TimeoutError:
        raise Unavailable(f"the timeline's store did not respond within {timeout_s:g} s; try again") from None
    except slate.Error as error:
        raise _explain(error) from None
    except bindings().InternalError as error:
        raise Internal(f"the timeline's store failed: SlateDB panicked: {error}", subject=DATABASE) from None


def abandon(work: Coroutine[Any, Any, Any]) -> None:
    async def quietly() -> None:
        # The handle may be closed or fenced already, or the store unavailable: closing it succeeds in any case.
        with contextlib.suppress(slate.Error, TimeoutError):
            await asyncio.wait_for(work, 1)

    asyncio.run_coroutine_threadsafe(quietly(), _loop()).result()


def _explain(error: Any) -> LakeError:
    text = str(getattr(error, "message", error))
    if isinstance(error, slate.Error.Closed):
        if error.reason == slate.CloseReason.FENCED:
            return Fenced("another sequencer has opened the timeline since: this one wrote nothing; run it again")
        return Unavailable(f"the timeline's store is closed: {text}")
    if isinstance(error, slate.Error.Unavailable):
        return Unavailable(f"the timeline's store is unavailable: {text}")
    if isinstance(error, slate.Error.Data):
        if "already exists" in text:
            return Conflict(f"another writer opened the timeline's store at the same time; run it again: {text}")
        return Unverified(f"the timeline's store cannot be read: {text}", subject=DATABASE)
    return Internal(f"the timeline's store failed: {text}")


def _lower_bytes(value: bytes) -> Any:
    """Passes bytes to Rust with one copy. The generated code copies byte by byte: 0.2 s of CPU per megabyte."""
    data = struct.pack(">i", len(value)) + value
    buffer = bindings()._UniffiRustBuffer.alloc(len(data))
    ctypes.memmove(buffer.data, data, len(data))
    buffer.len = len(data)
    return buffer


class _Row(NamedTuple):
    key: bytes
    value: bytes


def _read_rows(buffer: Any) -> list[_Row]:
    """Parses the rows of a scan from one copy. The generated code makes about twenty calls per row."""
    data = ctypes.string_at(buffer.data, buffer.len)
    rows, at = list[_Row](), buffer.offset + 4
    length = _LENGTH.unpack_from
    for _ in range(*length(data, buffer.offset)):
        key_end = at + 4 + length(data, at)[0]
        value_end = key_end + 4 + length(data, key_end)[0]
        rows.append(_Row(data[at + 4 : key_end], data[key_end + 4 : value_end]))
        at = value_end + 25 if data[value_end + 16] else value_end + 17  # seq, create_ts, perhaps expire_ts
    if at != len(data):
        raise Internal("the rows of a scan do not have the layout of slatedb 0.17: install slatedb==0.17.0")
    buffer.offset = at
    return rows


_LENGTH = struct.Struct(">i")
