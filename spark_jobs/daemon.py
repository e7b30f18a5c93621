"""Spark's Python daemon, whose workers are its forks: what the jobs' functions need is imported here, once.

Spark ends a worker that was idle for a minute, and starts one for each core; each would spend two seconds on imports.
Nothing imported here may start a thread, since a fork has none of them.
"""

from __future__ import annotations

import importlib

from pyspark.daemon import manager

_USED_BY_WORKERS = (
    "catalog.changes.reading",
    "catalog.pipeline.medallion",
    "catalog.tables.fileio",
    "spark_jobs.digesting",
)

if __name__ == "__main__":
    for module in _USED_BY_WORKERS:
        importlib.import_module(module)
    manager()
