"""Validates a request before it is sent to the sequencer's queue, so that the caller gets the error.

On the queue, a request that can never be served would be retried for hours and become a dead letter. The sequencer
validates every request itself as well.
"""

from __future__ import annotations

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.events import AdvanceWatermark, NameIndex
from catalog.core.point_in_time import check_name
from catalog.timeline.reader.timeline import Timeline


def validate_request(request: NameIndex | AdvanceWatermark, timeline: Timeline, published: int) -> None:
    """Raises if the sequencer is certain to refuse the request. `published`: the size of the published checkpoint.

    The reader may lag behind that checkpoint: a request that depends on newer leaves passes.
    """
    match request:
        case NameIndex(name=name, index=index):
            check_name(name)
            _check_name(name, index, timeline, published)
        case AdvanceWatermark(expected=expected, sequence=sequence) if expected is not None and sequence <= expected:
            raise Invalid(
                f"a watermark only advances: it cannot go from {expected} to {sequence}", subject=request.table
            )
        case AdvanceWatermark():
            size = timeline.head().checkpoint.size
            missing = timeline.source.of_table(str(request.table_uuid), request.sequence, size) is None
            if missing and size >= published:
                raise NotFound(
                    f"a watermark cannot be at leaf {request.sequence} of {request.table}: there is no such leaf",
                    subject=request.table,
                )


def _check_name(name: str, index: int, timeline: Timeline, published: int) -> None:
    if index >= published:
        raise NotFound(f"there is no index {index} to name: the timeline has {published} leaves", subject=name)
    try:
        named = timeline.named(name)
    except NotFound:
        return
    if index != named:
        raise Conflict(f"the name {name!r} is index {named} already: choose another", subject=name)
