"""`verify`: verifies the timeline; with `deep`, also every object of every table.

Verifies the tree, every checkpoint, every index and the published copy. Only reads, and uses no Spark: it is a job
because no function runs long enough for a large lake. It reports faults to the sequencer, whose metrics raise the
alarm, and fails with the first fault.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from catalog.core.events import VerificationFailed
from catalog.timeline import Report
from spark_jobs.job import Arguments, Context, Job, never_ending_the_job, run


class VerifyArguments(Arguments):
    deep: bool = Field(default=False, description="also hash every object of every table")


def verify(context: Context, arguments: VerifyArguments) -> Mapping[str, Any]:
    with context.stage("deep" if arguments.deep else "shallow") as stage:
        report = context.lake.verifier.verify(deep=arguments.deep)
        stage.rows, stage.bytes = report.leaves, report.bytes
    _report_faults(context, report)
    report.check()
    counts = ("objects", "bytes", "changes", "uncounted", "uncovered")
    figures = ("size", "published_size", "leaves", "checkpoints", "tiles", *counts)
    return {name: getattr(report, name) for name in figures}


def _report_faults(context: Context, report: Report) -> None:
    """Called before the run fails: if the message is lost, the failed run still shows the fault."""
    if not report.fault_count or context.lake.settings.moved_queue_url is None:
        return
    first = report.faults[0]
    fault = VerificationFailed(
        subject=first.object[:2048], what=str(first)[:4096], count=report.fault_count, correlation_id=context.run_id
    )
    with never_ending_the_job("the fault was not reported to the sequencer"):
        context.lake.request(fault)


JOB = Job("verify", VerifyArguments, verify)

if __name__ == "__main__":
    sys.exit(run(JOB))
