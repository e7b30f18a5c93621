"""Routes of erasure: a request to erase rows from a table's history, and what became of it.

This function cannot erase: it sends the request to the one that can (functions/erase.py).
"""

from __future__ import annotations

from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path

from catalog import Invalid, Unavailable
from catalog.core.aws_errors import translate_aws_errors
from catalog.erasure import ErasureRequest, ErasureStatus, ErasureStatuses, begun
from catalog.tables import check_hold
from functions.api.app import JSON, caller, lake, respond, serve
from functions.api.idempotency import Attempt, run_once
from functions.api.models import ErasureIn, ErasureOut
from functions.api.tables import Name

GROUP = "erase"
"""The one message group: requests are served one by one."""
RequestId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$", description="the `id` of the request")]


@serve("POST /tables/{t}/erasures", {202: {JSON: ErasureOut}}, problems=(403, 409, 413, 415), tag="tables")
def request_erasure(t: Name, erasure: ErasureIn) -> Response[Any]:
    """Erase rows from all of a table's history, for good. Needs the role `eraser` for the table.

    The rows leave every kept snapshot and all versions of its files within minutes; read the status until it is
    `complete` or `refused`. In a table with a key, all versions of the rows of these keys go; a filter selects every
    key that ever had a matching row. The reason stays in the timeline: write no personal data into it.
    """
    caller().require_erase(t)
    if (erasure.where is None) == (not erasure.keys):
        raise Invalid("give either keys or a filter", subject=t)
    check_hold(lake().tables.table_store.load(t), "erased from")
    statuses = _statuses()

    def send(attempt: Attempt) -> ErasureOut:
        request = ErasureRequest(
            id=attempt.id.hex,
            table=t,
            keys=erasure.keys or [],
            where=erasure.where,
            reason=erasure.reason,
            accept_guessable=erasure.accept_guessable,
            requested_by=caller().subject,
        )
        # The status first: a request that is served has one. After a crash between the two it is sent again.
        status = statuses.find(t, request.id) or statuses.put(begun(request))
        if status.state == "requested":
            _send(request)
        return _shown(status)

    return run_once(send, 202)


@serve("GET /tables/{t}/erasures/{id}", {200: {JSON: ErasureOut}}, problems=(403,), tag="tables")
def read_erasure(t: Name, id: RequestId) -> Response[Any]:
    """What became of a request to erase rows. Needs the role `eraser` for the table."""
    caller().require_erase(t)
    return respond(_shown(_statuses().get(t, id)), headers={"Cache-Control": "no-store"})


def _send(request: ErasureRequest) -> None:
    url = lake().settings.erase_queue_url
    if url is None:
        raise Unavailable("this lake has no queue for erasures: use the command `strandline erase`")
    with translate_aws_errors("the queue of erasures"):
        lake().client("sqs").send_message(
            QueueUrl=url, MessageBody=request.model_dump_json(), MessageGroupId=GROUP, MessageDeduplicationId=request.id
        )


def _statuses() -> ErasureStatuses:
    return ErasureStatuses(lake().s3, lake().settings.bucket)


def _shown(status: ErasureStatus) -> ErasureOut:
    return ErasureOut(**status.model_dump())
