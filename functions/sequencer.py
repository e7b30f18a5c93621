"""The sequencer's function: its queue is the one way in, for hints that a table moved and for all other work.

The lake stays warm between invocations. A fenced or failed sequencer has let its database go by itself, and
opens it again at the next invocation.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from catalog import figures
from catalog.errors import Decision, LakeError, Unverified, as_lake_error
from catalog.events import Compact, FaultFound, SequencerMessage, Sweep, parse_message
from catalog.lake import Lake, open_lake
from catalog.logs import configure_logs, correlation
from catalog.settings import load_settings
from catalog.timeline.leaf import Leaf
from catalog.timeline.sequencer import Outcome, Request
from functions.batch import partial_answer
from functions.telling import figures_of

log = logging.getLogger(__name__)

Messages = dict[str, SequencerMessage]
"""Message id -> the message."""


@cache
def lake() -> Lake:
    settings = load_settings()
    configure_logs("sequencer", settings.log_level)
    return open_lake(settings)


def handler(event: dict[str, Any], context: Any) -> Any:
    """SQS records in, partial batch response out: a message that is not served comes again."""
    return partial_answer(event, context, _serve(event["Records"]))


def _serve(records: list[dict[str, Any]]) -> dict[str, LakeError]:
    """Message id -> why it was not served. All requests are one run; one bad message spoils nothing."""
    began = time.perf_counter()
    lake()  # settings first: what is logged below is logged as they say
    messages, refused = _parse(records)
    ids = {message.correlation_id for message in messages.values()}
    # A batch about one piece of work runs under its id; one about many has each id in its own lines only.
    with correlation(ids.pop() if len(ids) == 1 else None):
        leaves, size = _run(messages, refused)
        for message_id in [*messages, *(refused.keys() - messages.keys())]:
            _log_message(message_id, messages.get(message_id), refused.get(message_id))
        log.info(
            "batch sequenced",
            extra={
                "messages": len(records),
                "refused": len(refused),
                "leaves": leaves,
                "size": size,
                "duration_ms": round((time.perf_counter() - began) * 1000, 1),
            },
        )
    return refused


def _parse(records: list[dict[str, Any]]) -> tuple[Messages, dict[str, LakeError]]:
    messages, refused = Messages(), dict[str, LakeError]()
    for record in records:
        try:
            messages[record["messageId"]] = parse_message(record["body"])
        except LakeError as error:
            refused[record["messageId"]] = error
    return messages, refused


def _run(messages: Messages, refused: dict[str, LakeError]) -> tuple[int, int]:
    """Serves requests, then sweeps, then compacts; gives the number of new leaves and the size of the tree."""
    requests: dict[str, Request] = {
        sender: message for sender, message in messages.items() if not isinstance(message, Sweep | Compact | FaultFound)
    }
    sweeps = [sender for sender, message in messages.items() if isinstance(message, Sweep)]
    compacts = [sender for sender, message in messages.items() if isinstance(message, Compact)]
    faults = [message for message in messages.values() if isinstance(message, FaultFound)]
    sequencer, senders = lake().sequencer, list(requests)
    outcomes, unsequenced = list[Outcome](), list[LakeError]()

    def attempt(work: Callable[[], Outcome | None], asked_by: list[str]) -> Outcome | None:
        try:
            return work()
        except Exception as error:
            # Nothing of this run is acknowledged: its messages come again, and find done what was done.
            refused.update(dict.fromkeys(asked_by, as_lake_error(error)))
            return None

    for fault in faults:
        with correlation(fault.correlation_id):
            log.error("not as signed", extra={"subject": fault.subject, "what": fault.what, "faults": fault.count})
    if requests or not (sweeps or compacts or faults):
        served = attempt(lambda: sequencer.handle(list(requests.values())), senders)
        if served is not None:
            refused.update({senders[position]: error for position, error in served.failed.items()})
            outcomes.append(served)
    if sweeps:
        swept = attempt(sequencer.sweep, sweeps)
        if swept is not None:
            # A table that cannot be sequenced is not mended by sweeping again at once: the schedule does that.
            for error in swept.failed.values():
                log.error("table not swept", extra={"table": error.subject, **error.as_dict()})
            outcomes.append(swept)
            unsequenced = list(swept.failed.values())
            _tidy(swept)
    if compacts:
        attempt(sequencer.compact, compacts)
    leaves = [leaf for outcome in outcomes for _, leaf in outcome.leaves]
    _measure(leaves, unsequenced, list(refused.values()), sum(fault.count for fault in faults))
    return sum(len(outcome.leaves) for outcome in outcomes), max((o.size for o in outcomes), default=0)


def _measure(leaves: list[Leaf], unsequenced: list[LakeError], refused: list[LakeError], faults: int) -> None:
    """An idle sequencer tells nothing: its sweeps would cost more in figures than in work."""
    unverified = faults + sum(isinstance(error, Unverified) for error in [*unsequenced, *refused])
    told = [(figures.UNSEQUENCED, len(unsequenced)), (figures.UNVERIFIED, unverified), (figures.LEAVES, len(leaves))]
    counts = [(name, count) for name, count in told if count]
    if not counts:
        return
    metrics = figures_of("sequencer")
    for name, count in counts:
        metrics.add_metric(name=name, unit=MetricUnit.Count, value=count)
    if leaves:
        lag = max(leaf.sequenced_ms - leaf.committed_ms for leaf in leaves)
        metrics.add_metric(name=figures.LAG, unit=MetricUnit.Milliseconds, value=max(0, lag))
    metrics.flush_metrics()


def _tidy(swept: Outcome) -> None:
    """What fails here is tried again at the next sweep, which finds the same."""
    try:
        lake().tidy(swept, time.time_ns() // 1_000_000)
    except Exception as error:
        log.error("not tidied", extra={"error": as_lake_error(error).as_dict()})


def _log_message(message_id: str, message: SequencerMessage | None, error: LakeError | None) -> None:
    """One line per message, under its own id: so one file can be followed through a batch of many."""
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
