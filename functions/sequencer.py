"""The sequencer's function, triggered by its queue: by hints that a table has a new commit, and by all other requests.

The lake stays open between invocations. A sequencer that was fenced or failed has closed its database, and opens it
again at the next invocation. A new process sweeps once by itself: a message may have died with the process before it.

Its queue is a FIFO queue with one message group: one batch at a time, and a message that is refused holds up all others
until it is visible again. So a message is refused only if the whole run failed, and for seconds; what a sweep will find
is left to the sweep, and a message that can never be served is put into the dead-letter queue here.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from catalog import Lake, LakeError, Unavailable, Unverified, load_settings, open_lake
from catalog.core import metrics
from catalog.core.errors import Decision, as_lake_error
from catalog.core.events import Compact, SequencerMessage, Sweep, TableMoved, VerificationFailed, parse_message
from catalog.core.logs import configure_logs, correlation
from catalog.core.sequencer_queue import GROUP
from catalog.timeline import Leaf, SequencerRequest, SequencerResult
from functions.metrics import function_metrics
from functions.sqs_batch import serve_batch

log = logging.getLogger(__name__)

Messages = dict[str, SequencerMessage]
"""Message id -> the message."""

SWEEP_RESERVE_MS = 20_000
"""A sweep ends, for now, when less than this is left of the function's time."""
LONGEST_BACKOFF_S = 30
"""A refused message holds up the queue for at most this long; after an outage the lake goes on that soon."""
COMPACTION_MS = 40_000
"""The timeline is compacted, which takes seconds, only when this is left of the function's time."""

_swept_lakes: list[Lake] = []
"""The lake of this process, once it has been swept."""


@cache
def lake() -> Lake:
    settings = load_settings()
    configure_logs("sequencer", settings.log_level)
    return open_lake(settings)


def handler(event: dict[str, Any], context: Any) -> Any:
    """SQS records in, partial batch response out: a message that is refused is delivered again."""
    serve = partial(_serve, _time_left(context))
    return serve_batch(event, context, load_settings().moved_queue_url, serve, LONGEST_BACKOFF_S)


def _time_left(context: Any) -> Callable[[], float]:
    """The milliseconds until Lambda kills this process."""
    return (lambda: math.inf) if context is None else context.get_remaining_time_in_millis


def _serve(left_ms: Callable[[], float], records: list[dict[str, Any]]) -> dict[str, LakeError]:
    """Returns the refused messages: message id -> the reason. Handles all requests in one run, without the bad ones."""
    began = time.perf_counter()
    lake()  # loads the settings, which configure the logs
    messages, unserved = _parse(records)
    refused = dict[str, LakeError]()
    ids = {message.correlation_id for message in messages.values()}
    # A batch with one correlation id logs everything with it; otherwise only the lines of each message have its id.
    with correlation(ids.pop() if len(ids) == 1 else None):
        leaves, size = _run(messages, refused, unserved, left_ms)
        for message_id in [*messages, *(unserved.keys() - messages.keys())]:
            _log_message(message_id, messages.get(message_id), (refused | unserved).get(message_id))
        refused |= _put_into_dead_letters(records, messages, unserved)
        log.info(
            "batch sequenced",
            extra={
                "messages": len(records),
                "refused": len(refused | unserved),
                "leaves": leaves,
                "size": size,
                "duration_ms": round((time.perf_counter() - began) * 1000, 1),
            },
        )
    return refused


def _parse(records: list[dict[str, Any]]) -> tuple[Messages, dict[str, LakeError]]:
    messages, unserved = Messages(), dict[str, LakeError]()
    for record in records:
        try:
            messages[record["messageId"]] = parse_message(record["body"])
        except LakeError as error:
            unserved[record["messageId"]] = error
    return messages, unserved


def _run(
    messages: Messages,
    refused: dict[str, LakeError],
    unserved: dict[str, LakeError],
    left_ms: Callable[[], float],
) -> tuple[int, int]:
    """Handles requests, then sweeps, then compacts; returns the number of new leaves and the size of the tree.

    Adds to `refused` the requests of a run that failed, to `unserved` each request that failed by itself.
    """
    requests: dict[str, SequencerRequest] = {
        message_id: message
        for message_id, message in messages.items()
        if not isinstance(message, Sweep | Compact | VerificationFailed)
    }
    sweeps = [message_id for message_id, message in messages.items() if isinstance(message, Sweep)]
    compacts = [message_id for message_id, message in messages.items() if isinstance(message, Compact)]
    faults = [message for message in messages.values() if isinstance(message, VerificationFailed)]
    sequencer, request_ids = lake().sequencer, list(requests)
    results, unsequenced = list[SequencerResult](), list[LakeError]()

    def attempt(what: str, work: Callable[[], SequencerResult | None]) -> SequencerResult | LakeError | None:
        try:
            return work()
        except Exception as error:
            failure = as_lake_error(error)
            log.warning(f"{what} failed", extra={"error": failure.as_dict()})
            return failure

    for fault in faults:
        with correlation(fault.correlation_id):
            extra = {"subject": fault.subject, "what": fault.what, "faults": fault.count}
            log.error("verification failed", extra=extra)
    if requests or not (sweeps or compacts or faults):
        handled = attempt("run", lambda: sequencer.handle(list(requests.values())))
        if isinstance(handled, LakeError):
            # No request of this run is acknowledged: they are delivered again, and what was done is not repeated.
            refused.update(dict.fromkeys(request_ids, handled))
        elif handled is not None:
            unserved.update({request_ids[position]: error for position, error in handled.failed.items()})
            results.append(handled)
    # After a failed run the sweep would fail as well.
    if sweeps or (results and lake() not in _swept_lakes):
        swept = attempt("sweep", lambda: _sweep(left_ms))
        if isinstance(swept, LakeError):
            unsequenced = [swept] if sweeps else []  # its message is acknowledged: the schedule sends the next one
        elif swept is not None:
            results.append(swept)
            unsequenced = list(swept.failed.values())
    if compacts:
        attempt("compaction", sequencer.compact)
    wal_files = _maintain(left_ms) if results else 0
    leaves = [leaf for result in results for _, leaf in result.leaves]
    errors = [*refused.values(), *unserved.values()]
    _measure(leaves, unsequenced, errors, sum(fault.count for fault in faults), wal_files)
    return len(leaves), max((result.size for result in results), default=0)


def _put_into_dead_letters(
    records: list[dict[str, Any]], messages: Messages, unserved: dict[str, LakeError]
) -> dict[str, LakeError]:
    """Puts each message that failed by itself into the dead-letter queue; returns those that must come again instead.

    Waiting for SQS to do it, after the maximum receive count, would hold up all others. A hint that a table moved is
    dropped: the next sweep finds what it was about.
    """
    url, kept = load_settings().moved_dead_queue_url, dict[str, LakeError]()
    for record in records:
        message_id = record["messageId"]
        error = unserved.get(message_id)
        if error is None or isinstance(messages.get(message_id), TableMoved):
            continue
        if url is None or isinstance(error, Unavailable):
            kept[message_id] = error
            continue
        try:
            lake().client("sqs").send_message(
                QueueUrl=url,
                MessageBody=record["body"],
                MessageGroupId=GROUP,
                MessageDeduplicationId=message_id,  # when the batch is delivered again, it is the same dead letter
                MessageAttributes={"reason": {"DataType": "String", "StringValue": error.message[:1024] or "refused"}},
            )
        except (BotoCoreError, ClientError) as failure:
            log.warning("no dead letter", extra={"message_id": message_id, "reason": str(failure)})
            kept[message_id] = error
    return kept


def _sweep(left_ms: Callable[[], float]) -> SequencerResult:
    """Sweeps, and cleans up after crashed writers of transactions."""
    swept = lake().sequencer.sweep(lambda: left_ms() < SWEEP_RESERVE_MS)
    _swept_lakes[:] = [lake()]
    # The sweep is not repeated for a table that cannot be sequenced: the schedule sends the next one.
    for error in swept.failed.values():
        log.error("table not swept", extra={"table": error.subject, "error": error.as_dict()})
    if swept.complete:  # otherwise it does not know every transaction that is unfinished
        _clean_up_transactions(swept)
    return swept


def _maintain(left_ms: Callable[[], float]) -> int:
    """The number of files in the timeline's write-ahead log, 0 if it was not looked at.

    Never raises: the messages are served, and the next run tries again.
    """
    try:
        return lake().sequencer.maintain(lambda: left_ms() >= COMPACTION_MS) or 0
    except Exception as error:
        log.error("timeline not maintained", extra={"error": as_lake_error(error).as_dict()})
        return 0


def _measure(
    leaves: list[Leaf], unsequenced: list[LakeError], refused: list[LakeError], faults: int, wal_files: int
) -> None:
    """Sends the counts that are not zero: the metrics of an idle sequencer would cost more than its sweeps."""
    unverified = faults + sum(isinstance(error, Unverified) for error in [*unsequenced, *refused])
    counts = [(metrics.UNSEQUENCED, len(unsequenced)), (metrics.UNVERIFIED, unverified), (metrics.LEAVES, len(leaves))]
    counts = [(name, count) for name, count in [*counts, (metrics.WAL_FILES, wal_files)] if count]
    if not counts:
        return
    emitted = function_metrics("sequencer")
    for name, count in counts:
        emitted.add_metric(name=name, unit=MetricUnit.Count, value=count)
    if leaves:
        lag = max(leaf.sequenced_ms - leaf.committed_ms for leaf in leaves)
        emitted.add_metric(name=metrics.LAG, unit=MetricUnit.Milliseconds, value=max(0, lag))
    emitted.flush_metrics()


def _clean_up_transactions(swept: SequencerResult) -> None:
    """Never raises: after a failure the next sweep tries again."""
    try:
        lake().clean_up_transactions(swept, time.time_ns() // 1_000_000)
    except Exception as error:
        log.error("transactions not cleaned up", extra={"error": as_lake_error(error).as_dict()})


def _log_message(message_id: str, message: SequencerMessage | None, error: LakeError | None) -> None:
    """Logs one line per message, with its correlation id, so that a file can be followed through a batch."""
    extra: dict[str, Any] = {
        "message_id": message_id,
        "kind": None if message is None else message.kind,
        "table": getattr(message, "table", None),
    }
    with correlation(None if message is None else message.correlation_id):
        if error is None:
            log.info("message served", extra=extra)
            return
        level = logging.WARNING if error.kind.decision is Decision.RETRY else logging.ERROR
        log.log(level, "message refused", extra={**extra, "error": error.as_dict()})
