"""Change feeds as files: a sequence of change sets, in Arrow IPC or JSON lines. Needs no lake."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from catalog import Invalid, Unverified
from catalog.changes import (
    MAX_LINE_BYTES,
    MAX_VALUES,
    ChangeSet,
    from_ipc,
    from_json_lines,
    to_ipc,
    to_json_lines,
)
from catalog.core.strict_json import parse_strictly
from catalog.formats import stream_end


class FeedFormat(StrEnum):
    TEXT = "text"
    JSONL = "jsonl"
    ARROW = "arrow"


def write_set(stream: BinaryIO, changes: ChangeSet, format_: FeedFormat) -> None:
    if format_ is FeedFormat.ARROW:
        stream.write(to_ipc(changes))
    else:
        stream.writelines(f"{line}\n".encode() for line in to_json_lines(changes))
    stream.flush()


def read_sets(path: str) -> Iterator[ChangeSet]:
    """The change sets in the file's order, one in memory at a time. Nothing is verified yet.

    Invalid if the file cannot be opened; Unverified if its content is not a feed, or has a line over MAX_LINE_BYTES.
    """
    try:
        with Path(path).open("rb") as stream:
            is_json = stream.read(1) in (b"{", b"")
        yield from _from_lines(path) if is_json else _from_streams(path)
    except OSError as error:
        raise Invalid(f"{path} cannot be read as a change feed: {error}", subject=path) from None


def _from_lines(path: str) -> Iterator[ChangeSet]:
    """A line with a `format` begins a change set; the lines after it are its changes."""
    with Path(path).open("rb") as stream:
        block: list[str] = []
        for line in _lines(stream, path):
            if block and _is_head(line):
                yield from_json_lines(block)
                block = []
            block.append(line)
        if block:
            yield from_json_lines(block)


def _lines(stream: BinaryIO, path: str) -> Iterator[str]:
    for number in count(1):
        line = stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            raise Unverified(f"{path}: line {number} is longer than {MAX_LINE_BYTES} bytes", subject=path)
        try:
            yield line.decode()
        except UnicodeDecodeError:
            raise Unverified(f"{path}: line {number} is not UTF-8", subject=path) from None


def _is_head(line: str) -> bool:
    """Whether the line begins a change set. A change has no `format`, though a column of its rows may be called so."""
    if '"format"' not in line:
        return False
    try:
        value = parse_strictly(line, max_bytes=MAX_LINE_BYTES, max_values=MAX_VALUES)
    except ValueError:
        return False
    return isinstance(value, dict) and "format" in value


def _from_streams(path: str) -> Iterator[ChangeSet]:
    """Each change set is one IPC stream with its end-of-stream marker."""
    with pa.memory_map(path) as mapped:
        size = mapped.size()
        while (start := mapped.tell()) < size:
            try:
                end = stream_end(mapped)
            except Invalid as error:
                raise Unverified(f"{path}: no change set at byte {start}: {error.message}", subject=path) from None
            mapped.seek(start)
            yield from_ipc(mapped.read(end - start))
