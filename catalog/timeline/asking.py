"""What can never be served is refused to whoever asks, before it is put on the sequencer's queue.

There it would come again for hours and end among the dead letters, with nobody told. The sequencer still judges every
request itself: this only answers sooner.
"""

from __future__ import annotations

from catalog.errors import Conflict, Invalid, NotFound
from catalog.events import MoveMark, NameIndex
from catalog.timeline.proofs import Timeline


def check_servable(request: NameIndex | MoveMark, timeline: Timeline, published: int) -> None:
    """Raises if the sequencer would refuse the request. `published`: the leaves of the checkpoint that stands in S3.

    A reader may be behind that checkpoint: what it cannot know yet, it lets pass.
    """
    if not published:
        raise NotFound("there is nothing in the timeline yet: commit to a table first")
    match request:
        case NameIndex(name=name, index=index):
            _check_name(name, index, timeline, published)
        case MoveMark(expected=expected, sequence=sequence) if expected is not None and sequence <= expected:
            raise Invalid(f"a mark moves forward: not from {expected} to {sequence}", subject=request.table)
        case MoveMark():
            size = timeline.head().checkpoint.size
            missing = timeline.source.of_table(str(request.table_uuid), request.sequence, size) is None
            if missing and size >= published:
                raise NotFound(
                    f"{request.table} has no leaf {request.sequence} in the timeline to put a mark at",
                    subject=request.table,
                )


def _check_name(name: str, index: int | None, timeline: Timeline, published: int) -> None:
    if index is not None and index >= published:
        raise NotFound(f"there is no index {index} to name: the timeline has {published} leaves", subject=name)
    try:
        named = timeline.named(name)
    except NotFound:
        return
    if index not in (None, named):
        raise Conflict(f"the name {name!r} is index {named} already: choose another", subject=name)
