"""Routes of change capture: a table's change feed, and the watermarks of its consumers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from catalog import Conflict, Denied
from catalog.access import Level
from catalog.changes import ChangeSet, to_ipc, to_json_lines
from catalog.core.events import AdvanceWatermark
from catalog.core.logs import correlation_id
from catalog.core.point_in_time import FEED_GRAMMAR, TableSequence
from catalog.timeline import OWNER_DIGITS, owner_of
from functions.api.app import JSON, caller, current_request, lake, respond, serve
from functions.api.models import ChangeList, Elsewhere, MarkIn, MarkOut
from functions.api.page_tokens import read_token, write_token
from functions.api.row_formats import ARROW, MAX_ANSWER_BYTES, accepted, send
from functions.api.tables import Name, Page, authorize

Consumer = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
Position = Annotated[str | None, Query(min_length=1, max_length=256, description=FEED_GRAMMAR)]


@serve(
    "GET /tables/{t}/changes",
    {200: {JSON: ChangeList, ARROW: None}, 204: {}, 303: {JSON: Elsewhere}},
    problems=(406, 409, 422),
    tag="changes",
)
def read_changes(
    t: Name,
    since: Position = None,
    until: Position = None,
    limit: Annotated[int, Query(ge=1, le=100, description="change sets per page")] = 10,
    page: Page = None,
    extends: Annotated[
        int | None,
        Query(ge=1, lt=2**53, description="the size of a checkpoint that you kept: proves that it is extended"),
    ] = None,
) -> Response[Any]:
    """The change sets of the commits after `since`, oldest first, with the evidence that they are complete.

    A page without `next` is the end of the feed for now. As Arrow, a page is one change set, and `next` is the header
    Strandline-Next. Every change set can be verified offline with the timeline's public key; the first one of a page
    proves that its tree extends that of the page before. 409 if the table was dropped and made anew between two pages.
    """
    authorize(Level.READ, t)
    scope = ["GET /tables/{t}/changes", t, since, until]
    after = read_token(scope, page)
    if after is None:
        feed = lake().changes(t, since, until, extends=extends)
    else:
        sequence, uuid, seen = after
        feed = lake().changes(t, TableSequence(int(sequence)), until, table_uuid=str(uuid), extends=int(seen))
    if accepted((JSON, ARROW)) == ARROW:
        change_set = next(feed, None)
        if change_set is None:
            return respond(status=204)
        return send(to_ipc(change_set), ARROW, {"Strandline-Next": _next(scope, change_set), "Vary": "Accept"})
    encoded, size = list[str](), 0
    last: ChangeSet | None = None
    for change_set in islice(feed, limit):
        head, *lines = to_json_lines(change_set)
        encoded.append(f'{{"head":{head},"changes":[{",".join(lines)}]}}')
        size, last = size + len(encoded[-1]), change_set
        if size > MAX_ANSWER_BYTES // 2:
            break
    following = "" if last is None else f',"next":{json.dumps(_next(scope, last))}'
    return send(f'{{"change_sets":[{",".join(encoded)}]{following}}}'.encode(), JSON, {"Vary": "Accept"})


def _next(scope: Sequence[Any], last: ChangeSet) -> str:
    """The token of the next page: the position, and what the receiver has seen of table and tree."""
    assert last.evidence is not None
    return write_token(scope, [last.commit.sequence, last.commit.table_uuid, last.evidence.checkpoint_size])


@serve("GET /watermarks/{consumer}/{t}", {200: {JSON: MarkOut}}, problems=(422,), tag="changes")
def read_mark(consumer: Consumer, t: Name) -> Response[Any]:
    """A consumer's watermark on a table; without a sequence if it has not begun."""
    authorize(Level.READ, t)
    mark = lake().timeline.watermark(consumer, t)
    shown = MarkOut(consumer=consumer, table=t)
    if mark is not None:
        shown = MarkOut(consumer=consumer, table=t, sequence=mark.sequence, holder=_run_of(mark.holder))
    return respond(shown, headers={"Cache-Control": "no-store"})


@serve("PUT /watermarks/{consumer}/{t}", {202: {JSON: MarkOut}}, problems=(403, 409, 413, 415, 422), tag="changes")
def move_mark(consumer: Consumer, t: Name, mark: MarkIn) -> Response[Any]:
    """Move a consumer's watermark to the last leaf of the table that it has processed. It moves a moment later (202).

    A watermark never goes back, and moves only if it is at `expected`: read it to learn whether it moved. It belongs to
    whoever moved it first: others need the role `admin` for the table.
    """
    authorize(Level.WRITE, t)
    current = lake().timeline.watermark(consumer, t)
    if current is not None and current.owner != _owner() and not caller().may(Level.ADMIN, t):
        raise Denied(f"the watermark of {consumer} on {t} is another caller's: choose another consumer", subject=t)
    if current is not None and current.sequence > mark.sequence:
        raise Conflict(f"the watermark of {consumer} on {t} is at {current.sequence} already, and never goes back")
    lake().advance_watermark(
        AdvanceWatermark(
            consumer=consumer,
            table=t,
            table_uuid=lake().tables.load(t).metadata.table_uuid,
            sequence=mark.sequence,
            expected=mark.expected,
            holder="-".join(filter(None, (_owner() if current is None else current.owner, mark.holder))),
            correlation_id=correlation_id() or current_request().request_id,
        )
    )
    return respond(MarkOut(consumer=consumer, table=t, sequence=mark.sequence, holder=mark.holder), 202)


def _owner() -> str:
    """The first part of the holder in a watermark that the caller moves: the sequencer stores and signs it."""
    return sha256(caller().subject.encode()).hexdigest()[:OWNER_DIGITS]


def _run_of(holder: str) -> str:
    return holder.partition("-")[2] if owner_of(holder) else holder
