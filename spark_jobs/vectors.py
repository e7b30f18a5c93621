"""`vectors`: vector tables brought to their sources' newest snapshots, compacted and indexed; old versions removed.

Here and not in a function, because Lance shuffles an index through $TMPDIR: the session's scratch, which is memory
locally and the worker's own storage on EMR. Spark itself has nothing to do.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from catalog.errors import LakeError, as_lake_error
from catalog.vectors.head import Head
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.lineage import Dataset


class VectorsArguments(Arguments):
    vectors: list[str] = Field(default_factory=list, description="only these, DATABASE.TABLE.COLUMN; default: all")
    rebuild: bool = Field(default=False, description="embed every row anew")
    refresh_only: bool = Field(default=False, description="leave compaction, indexes and old versions alone")


def vectors(context: Context, arguments: VectorsArguments) -> Mapping[str, Any]:
    """One vector table that fails does not keep the others; the job then fails with the first reason."""
    found: dict[str, Any] = {}
    failed: list[LakeError] = []
    for id_ in dict.fromkeys(arguments.vectors or context.lake.vectors.list()):
        try:
            with context.stage(id_) as stage:
                before = context.lake.vectors.describe(id_).newest
                head = context.lake.vectors.refresh(id_, rebuild=arguments.rebuild)
                if not arguments.refresh_only and head.newest is not None:
                    head = context.lake.vectors.maintain(id_)
                stage.rows = told(context, head)
                found[id_] = {"rows": stage.rows, "versions": len(head.entries), "moved": head.newest != before}
        except Exception as error:
            failed.append(as_lake_error(error))
            found[id_] = {"error": failed[-1].message}
    if failed:
        raise failed[0]
    return found


def told(context: Context, head: Head) -> int:
    """Keeps in the report from what the vectors were made; the number of rows they are of."""
    snapshot = None if head.newest is None else head.newest.snapshot_id
    context.reads(head.table, snapshot)
    context.outputs[head.id] = Dataset(head.id, snapshot)
    return 0 if head.newest is None else head.newest.rows


JOB = Job("vectors", VectorsArguments, vectors)

if __name__ == "__main__":
    sys.exit(run(JOB))
