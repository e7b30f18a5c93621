"""The erase function, triggered by the queue of requests: erases rows from a table's history, one request at a time.

Its role is the only one of the lake's functions that may delete versions of objects, and it serves nothing but this
queue. A request that is refused is done: its status says why. One that met an outage is delivered again.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from pydantic import ValidationError

from catalog import Invalid, Lake, LakeError, load_settings, open_lake
from catalog.core.errors import as_lake_error
from catalog.core.logs import configure_logs
from catalog.erasure import ErasureRequest, ErasureStatuses, serve_request
from functions.sqs_batch import serve_batch

log = logging.getLogger(__name__)


@cache
def lake() -> Lake:
    settings = load_settings()
    configure_logs("erase", settings.log_level)
    return open_lake(settings)


def handler(event: dict[str, Any], context: Any) -> Any:
    """SQS records in, partial batch response out: a message that is refused is delivered again."""
    return serve_batch(event, context, load_settings().erase_queue_url, _serve)


def _serve(records: list[dict[str, Any]]) -> dict[str, LakeError]:
    refused, statuses = dict[str, LakeError](), ErasureStatuses(lake().s3, lake().settings.bucket)
    for record in records:
        try:
            request = ErasureRequest.model_validate_json(record["body"])
            status = serve_request(request, lake().eraser, statuses)
            log.info("erasure served", extra={"request": status.id, "table": status.table, "state": status.state})
        except ValidationError:  # not logged with its input, which has keys of rows
            refused[record["messageId"]] = Invalid("the message is not a request to erase rows")
        except Exception as error:
            refused[record["messageId"]] = as_lake_error(error)
            log.exception("erasure failed", extra={"message_id": record["messageId"]})
    return refused
