"""Change capture over HTTP: what happened to a table's rows, and how far a consumer has come with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from catalog.access.roles import Level
from catalog.changes.sequenced import At
from catalog.changes.wire import to_ipc, to_json_lines
from catalog.errors import Conflict
from catalog.events import MoveMark
from catalog.logs import correlation_id
from functions.api.app import JSON, answer, asked, lake, serve
from functions.api.formats import ARROW, MAX_ANSWER_BYTES, accepted, send
from functions.api.models import ChangeList, Elsewhere, MarkIn, MarkOut
from functions.api.pages import read_token, write_token
from functions.api.tables import Name, Page, allowed

Consumer = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
Moment = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=256,
        description="the sequence of a leaf (a watermark), a snapshot's id, a time (ISO 8601) or a name",
    ),
]


@serve(
    "GET /tables/{t}/changes",
    {200: {JSON: ChangeList, ARROW: None}, 204: {}, 303: {JSON: Elsewhere}},
    problems=(406, 422),
    tag="changes",
)
def read_changes(
    t: Name,
    since: Moment = None,
    until: Moment = None,
    limit: Annotated[int, Query(ge=1, le=100, description="change sets a page")] = 10,
    page: Page = None,
) -> Response[Any]:
    """What each commit after `since` did to the rows, oldest first, with the evidence that it is all of it.

    `next` is there until the feed has ended for now. As Arrow, a page is one change set, and `next` is the header
    Strandline-Next. Every change set is checked offline with the timeline's public key.
    """
    allowed(Level.READ, t)
    question = ["GET /tables/{t}/changes", t, since, until]
    after = read_token(question, page)
    feed = lake().changes(t, _moment(since) if after is None else int(after), _moment(until))
    if accepted((JSON, ARROW)) == ARROW:
        found = next(feed, None)
        if found is None:
            return answer(status=204)
        token = write_token(question, found.commit.sequence)
        return send(to_ipc(found), ARROW, {"Strandline-Next": token, "Vary": "Accept"})
    shown, size, last = list[str](), 0, None
    for changes in islice(feed, limit):
        head, *lines = to_json_lines(changes)
        shown.append(f'{{"head":{head},"changes":[{",".join(lines)}]}}')
        size, last = size + len(shown[-1]), changes.commit.sequence
        if size > MAX_ANSWER_BYTES // 2:
            break
    following = "" if last is None else f',"next":{json.dumps(write_token(question, last))}'
    return send(f'{{"change_sets":[{",".join(shown)}]{following}}}'.encode(), JSON, {"Vary": "Accept"})


@serve("GET /watermarks/{consumer}/{t}", {200: {JSON: MarkOut}}, problems=(422,), tag="changes")
def read_mark(consumer: Consumer, t: Name) -> Response[Any]:
    """How far a consumer has come with a table; no sequence if it has not begun."""
    allowed(Level.READ, t)
    found = lake().timeline.mark(consumer, t)
    shown = MarkOut(consumer=consumer, table=t)
    if found is not None:
        shown = MarkOut(consumer=consumer, table=t, sequence=found.sequence, holder=found.holder)
    return answer(shown, headers={"Cache-Control": "no-store"})


@serve("PUT /watermarks/{consumer}/{t}", {202: {JSON: MarkOut}}, problems=(403, 409, 413, 415, 422), tag="changes")
def move_mark(consumer: Consumer, t: Name, mark: MarkIn) -> Response[Any]:
    """A consumer has dealt with the table up to a leaf: its mark moves there a moment later (202).

    It never goes back, and moves only from where it is expected to stand: read it to know whether it did.
    """
    allowed(Level.WRITE, t)
    stands = lake().timeline.mark(consumer, t)
    if stands is not None and stands.sequence > mark.sequence:
        raise Conflict(f"the mark of {consumer} on {t} stands at {stands.sequence} already, and never goes back")
    lake().ask(
        MoveMark(
            consumer=consumer,
            table=t,
            table_uuid=lake().tables.load(t).metadata.table_uuid,
            sequence=mark.sequence,
            expected=mark.expected,
            holder=mark.holder,
            correlation_id=correlation_id() or asked().request_id,
        )
    )
    return answer(MarkOut(consumer=consumer, table=t, sequence=mark.sequence, holder=mark.holder), 202)


def _moment(text: str | None) -> At | None:
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return found if found.tzinfo else found.replace(tzinfo=UTC)
