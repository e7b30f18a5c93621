"""`expire`: expires snapshots by the retention of their layer, and deletes rows older than their table keeps them.

Keeps snapshots that are not in the timeline yet and named ones (catalog.tables does that), and the one with the table's
watermark.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import Field

from catalog.notes import TABLES, retention_days
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
    result: dict[str, Any] = {}
    for name in names:
        with context.stage(name) as stage:
            stage.rows = _delete_old_rows(context, name)
            days = retention_days(name) if arguments.older_than_days is None else arguments.older_than_days
            if days is None:
                continue
            cutoff = int(time.time() * 1000 - days * _DAY_MS)
            watermark = _watermark_snapshot(context, name)
            expired = tables.expire(
                name,
                older_than=cutoff,
                retain_last=arguments.retain_last,
                keep=lambda snapshot, watermark=watermark: snapshot.snapshot_id == watermark,  # type: ignore[misc]
            )
            snapshots, objects = len(expired.snapshots), len(expired.objects)
            if snapshots:
                context.committed(name, None, expired=snapshots, objects=objects)
            result[name] = {"snapshots": snapshots, "objects": objects, "rows": stage.rows}
    return result


def _watermark_snapshot(context: Context, table: str) -> int | None:
    """The newest snapshot whose summary names the inputs that the table was computed from."""
    for snapshot in context.lake.tables.history(table):
        if snapshot.summary is not None and snapshot.summary[INPUTS] is not None:
            return snapshot.snapshot_id
    return None


def _delete_old_rows(context: Context, table: str) -> int:
    """Deletes the rows that are older than their table keeps them; returns how many."""
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
