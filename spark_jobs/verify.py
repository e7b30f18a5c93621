"""`verify`: the tree, every checkpoint, every index and the published copy; deep, every object of every table, too.

Reads only, and Spark has nothing to do: a job because no function lives long enough for a large lake. What it finds it
tells the sequencer, whose figures ring the alarm, and the run fails with the first fault.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from catalog.events import FaultFound
from catalog.timeline.verification import Report
from spark_jobs.job import Arguments, Context, Job, run


class VerifyArguments(Arguments):
    deep: bool = Field(default=False, description="hash every object of every table, too")


def verify(context: Context, arguments: VerifyArguments) -> Mapping[str, Any]:
    with context.stage("deep" if arguments.deep else "shallow") as stage:
        report = context.lake.verifier.verify(deep=arguments.deep)
        stage.rows, stage.bytes = report.leaves, report.bytes
    _tell(context, report)
    report.check()
    looked_at = ("size", "published_size", "leaves", "checkpoints", "tiles", "objects", "bytes", "changes", "uncovered")
    return {name: getattr(report, name) for name in looked_at}


def _tell(context: Context, report: Report) -> None:
    """Before the run fails: should the message be lost, the failed run is still there to be seen."""
    if not report.fault_count or context.lake.settings.moved_queue_url is None:
        return
    first = report.faults[0]
    context.lake.request(
        FaultFound(
            subject=first.object[:2048],
            what=str(first)[:4096],
            count=report.fault_count,
            correlation_id=context.run_id,
        )
    )


JOB = Job("verify", VerifyArguments, verify)

if __name__ == "__main__":
    sys.exit(run(JOB))
