"""Change feeds as files: change sets one after another, in Arrow IPC or JSON lines. Needs nothing of a lake."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from catalog.changes.feed import ChangeSet
from catalog.changes.wire import from_ipc, from_json_lines, to_ipc, to_json_lines
from catalog.errors import Invalid


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
    """The change sets in the file's order, one in memory; Invalid, with the position, for anything else."""
    try:
        with Path(path).open("rb") as stream:
            lines = stream.read(1) in (b"{", b"")
        yield from _from_lines(path) if lines else _from_streams(path)
    except OSError as error:
        raise Invalid(f"{path} cannot be read as a change feed: {error}", subject=path) from None


def _from_lines(path: str) -> Iterator[ChangeSet]:
    """A line with a format begins a change set; those below it are its changes."""
    with Path(path).open(encoding="utf-8") as stream:
        block: list[str] = []
        for line in stream:
            if block and _is_head(line):
                yield from_json_lines(block)
                block = []
            block.append(line)
        if block:
            yield from_json_lines(block)


def _is_head(line: str) -> bool:
    if '"format"' not in line:
        return False
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and "format" in found


def _from_streams(path: str) -> Iterator[ChangeSet]:
    """Each change set is an IPC stream of its own, with an end that its reader stops at."""
    with pa.memory_map(path) as mapped:
        size = mapped.size()
        while (start := mapped.tell()) < size:
            try:
                pa.ipc.open_stream(mapped).read_all()
            except pa.ArrowException as error:
                raise Invalid(f"{path}: no change set at byte {start}: {error}", subject=path) from None
            end = mapped.tell()
            mapped.seek(start)
            yield from_ipc(mapped.read(end - start))


SIGNS = {"INSERT": "+", "UPDATE": "~", "DELETE": "-"}


def text_lines(changes: ChangeSet, when: str) -> Iterator[str]:
    """For people: the commit, then a line for each change; of an update, the key and the columns that differ."""
    from cli.row_exports import json_value

    commit, shown = changes.commit, len(changes)
    count = f"{shown} of {changes.count} changes" if shown < changes.count else f"{shown} changes"
    yield f"leaf {commit.index} · {when} · snapshot {commit.snapshot_id} · {count}"
    for change in changes.changes.to_pylist():
        yield f"  {SIGNS[change['op']]} {json.dumps(_brief(change, changes.key, json_value), ensure_ascii=False)}"


def _brief(change: dict[str, Any], key: Iterable[str], plain: Any) -> Any:
    before, after = plain(change["before"]), plain(change["after"])
    if before is None or after is None:
        return after or before
    same = {name: after[name] for name in key}
    return same | {name: [before[name], after[name]] for name in after if before[name] != after[name]}
