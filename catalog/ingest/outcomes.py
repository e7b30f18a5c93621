"""What became of a file, as a value, as a line in the log, and as a record for the ledger."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from catalog.errors import LakeError
from catalog.ingest.ledger import Record, source_id, unread_digest
from catalog.logs import correlation
from catalog.pipeline.landing import Landed

log = logging.getLogger(__name__)

Status = Literal["committed", "duplicate", "quarantined", "gone", "failed"]


@dataclass
class Outcome:
    """What became of a file. `error` says why, if it was quarantined (then see `report`) or failed.

    A file that comes a second time is a `duplicate` whoever brought its rows; `made_by` is the source that did,
    which may be itself.
    """

    landed: Landed
    status: Status = "failed"
    digest: str | None = None
    size: int = 0
    rows: int = 0
    table: str | None = None
    table_uuid: str | None = None
    snapshot_id: int | None = None
    made_by: str | None = None
    error: LakeError | None = None
    report: str | None = None

    @property
    def source(self) -> str:
        return source_id(self.landed.key, self.landed.version_id)

    def record(self) -> Record | None:
        """What the ledger keeps; None for a file that is gone: there is nothing to tell about it."""
        if self.status == "gone":
            return None
        landed, own = self.landed, self.made_by == self.source
        return Record(
            digest=self.digest or unread_digest(landed.key, landed.version_id),
            source=self.source,
            key=landed.key,
            version=landed.version_id,
            state="committed" if self.status == "duplicate" and own else self.status,
            table=self.table,
            table_uuid=self.table_uuid,
            snapshot_id=self.snapshot_id,
            rows=self.rows,
            size=self.size,
            duplicate_of=self.made_by if self.status == "duplicate" and not own else None,
            report=self.report,
            reason=self.error.message if self.error else None,
            position=getattr(self.error, "position", {}),
            correlation_id=landed.correlation_id,
        )


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
