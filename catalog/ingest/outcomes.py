"""What became of a file, as a value and as a line in the log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from catalog.errors import LakeError
from catalog.logs import correlation
from catalog.pipeline.landing import Landed

log = logging.getLogger(__name__)

Status = Literal["committed", "duplicate", "quarantined", "gone", "failed"]


@dataclass
class Outcome:
    """What became of a file. `error` says why, if it was quarantined (then see `report`) or failed."""

    landed: Landed
    status: Status = "failed"
    digest: str | None = None
    rows: int = 0
    snapshot_id: int | None = None
    error: LakeError | None = None
    report: str | None = None


def tell(outcome: Outcome) -> None:
    level = {"quarantined": logging.WARNING, "failed": logging.ERROR}.get(outcome.status, logging.INFO)
    with correlation(outcome.landed.correlation_id or outcome.digest):
        extra = {
            "key": outcome.landed.key,
            "sha256": outcome.digest,
            "rows": outcome.rows,
            "snapshot_id": outcome.snapshot_id,
            "report": outcome.report,
            "error": outcome.error.as_dict() if outcome.error else None,
        }
        log.log(level, f"file {outcome.status}", extra=extra)
