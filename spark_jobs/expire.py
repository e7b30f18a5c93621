"""`expire`: forgets snapshots by the retention of their layer, and events that are older than their table keeps them.

Never a snapshot that is not in the timeline yet, nor a named one: the tables see to that. Nor the one that holds a
table's watermark.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field

from catalog.pipeline.layers import TABLES, retention_days
from spark_jobs.arguments import TABLE
from spark_jobs.inputs import INPUTS
from spark_jobs.job import Arguments, Context, Job, run

_DAY_MS = 86_400_000


class ExpireArguments(Arguments):
    table: str | None = Field(default=None, pattern=TABLE, description="default: every table")
    older_than_days: float | None = Field(default=None, ge=0, description="default: by the table's layer")
    retain_last: int = Field(default=1, ge=1)


def expire(context: Context, arguments: ExpireArguments) -> Mapping[str, Any]:
    tables = context.lake.tables
    names = [arguments.table] if arguments.table else tables.list()
    found: dict[str, Any] = {}
    for name in names:
        with context.stage(name) as stage:
            stage.rows = _old_rows(context, name)
            days = retention_days(name) if arguments.older_than_days is None else arguments.older_than_days
            if days is None:
                continue
            cutoff = int(time.time() * 1000 - days * _DAY_MS)
            bearer = _bearer(context, name)
            gone = tables.expire(
                name,
                older_than=cutoff,
                retain_last=arguments.retain_last,
                keep=lambda snapshot, bearer=bearer: snapshot.snapshot_id == bearer,  # type: ignore[misc]
            )
            if gone.snapshots:
                context.committed(name, None, expired=len(gone.snapshots), objects=len(gone.objects))
            found[name] = {"snapshots": len(gone.snapshots), "objects": len(gone.objects), "rows": stage.rows}
    return found


def _bearer(context: Context, table: str) -> int | None:
    """The newest snapshot that says which inputs the table was made from."""
    for snapshot in context.lake.tables.history(table):
        if snapshot.summary is not None and snapshot.summary[INPUTS] is not None:
            return snapshot.snapshot_id
    return None


def _old_rows(context: Context, table: str) -> int:
    """Deletes the rows that their table keeps for so many days only; how many."""
    spec = TABLES.get(table)
    if spec is None or spec.row_days is None or spec.time_column is None:
        return 0
    limit = datetime.now(UTC) - timedelta(days=spec.row_days)
    receipt = context.lake.tables.delete(table, where=f"{spec.time_column} < '{limit.isoformat()}'")
    if receipt.rows:
        context.committed(table, receipt.snapshot_id, rows=receipt.rows)
    return receipt.rows


JOB = Job("expire", ExpireArguments, expire)

if __name__ == "__main__":
    sys.exit(run(JOB))
