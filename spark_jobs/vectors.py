"""`vectors`: refreshes, compacts and indexes vector tables, and removes their old versions.

A job rather than a function, because Lance builds an index in $TMPDIR: the session's scratch directory locally, and the
worker's own storage on EMR. Uses no Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from catalog import LakeError
from catalog.core.errors import as_lake_error
from catalog.core.vector_head import Head
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.lineage import Dataset


class VectorsArguments(Arguments):
    vectors: list[str] = Field(default_factory=list, description="only these, DATABASE.TABLE.COLUMN; default: all")
    rebuild: bool = Field(default=False, description="embed every row again")
    refresh_only: bool = Field(default=False, description="without compaction, indexes and removal of versions")


def vectors(context: Context, arguments: VectorsArguments) -> Mapping[str, Any]:
    """A vector table that fails does not stop the others; the job then fails with the first error."""
    results: dict[str, Any] = {}
    failed: list[LakeError] = []
    for id_ in dict.fromkeys(arguments.vectors or context.lake.vectors.list()):
        try:
            with context.stage(id_) as stage:
                before = context.lake.vectors.describe(id_).newest
                head = context.lake.vectors.refresh(id_, rebuild=arguments.rebuild)
                if not arguments.refresh_only and head.newest is not None:
                    head = context.lake.vectors.maintain(id_)
                stage.rows = report_vectors(context, head)
                results[id_] = {"rows": stage.rows, "versions": len(head.entries), "moved": head.newest != before}
        except Exception as error:
            failed.append(as_lake_error(error))
            results[id_] = {"error": failed[-1].message}
    if failed:
        raise failed[0]
    return results


def report_vectors(context: Context, head: Head) -> int:
    """Adds the vector table and its source to the job's lineage; returns its number of rows."""
    snapshot = None if head.newest is None else head.newest.snapshot_id
    context.reads(head.table, snapshot)
    context.outputs[head.id] = Dataset(head.id, snapshot)
    return 0 if head.newest is None else head.newest.rows


JOB = Job("vectors", VectorsArguments, vectors)

if __name__ == "__main__":
    sys.exit(run(JOB))
