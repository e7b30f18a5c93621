"""The outcome of ingesting one file: as a value, as a log line, and as a ledger record."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from catalog.core.errors import LakeError
from catalog.core.logs import correlation
from catalog.ingest.ledger import LedgerRecord, source_id, unread_digest
from catalog.ingest.s3_events import LandedFile

log = logging.getLogger(__name__)

Status = Literal["committed", "duplicate", "empty", "quarantined", "gone", "failed"]


@dataclass
class Outcome:
    """The outcome for one file. `error` is the reason if it was quarantined (`report` is the report's key) or failed.

    `empty`: it has no rows, and nothing was committed. A version that is delivered again is a `duplicate`: its rows are
    in the table under its `token`.
    """

    landed: LandedFile
    status: Status = "failed"
    digest: str | None = None
    size: int = 0
    rows: int = 0
    table: str | None = None
    table_uuid: str | None = None
    snapshot_id: int | None = None
    token: str | None = None
    error: LakeError | None = None
    report: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the file is still being ingested."""
        return self.status == "failed" and self.error is None

    @property
    def source(self) -> str:
        return source_id(self.landed.key, self.landed.version_id)

    def record(self) -> LedgerRecord | None:
        """The ledger's record; None for a file that is gone."""
        if self.status == "gone":
            return None
        landed = self.landed
        return LedgerRecord(
            digest=self.digest or unread_digest(landed.key, landed.version_id),
            source=self.source,
            token=self.token,
            key=landed.key,
            version=landed.version_id,
            state="committed" if self.status == "duplicate" else self.status,
            table=self.table,
            table_uuid=self.table_uuid,
            snapshot_id=self.snapshot_id,
            rows=self.rows,
            size=self.size,
            report=self.report,
            reason=self.error.message if self.error else None,
            position=getattr(self.error, "position", {}),
            correlation_id=landed.correlation_id,
        )


def log_outcome(outcome: Outcome) -> None:
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
