"""Spark's Python daemon, which forks the workers. It imports what they need once, before they are forked.

Spark starts one worker for each core and ends workers that are idle for a minute; each would spend two seconds on
imports. Nothing imported here may start a thread: a fork does not inherit threads.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

_USED_BY_WORKERS = (
    "catalog.changes.row_reader",
    "catalog.notes.medallion",
    "catalog.iceberg.file_io",
    "spark_jobs.digest_workers",
)

if __name__ == "__main__":
    for module in _USED_BY_WORKERS:
        importlib.import_module(module)
    manager()
