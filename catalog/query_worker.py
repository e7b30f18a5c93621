"""The program of a query worker, `python -m catalog.query_worker`, and the supervisor that starts it for a lake.

A worker opens the lake that its environment names, and only reads it.
"""

from __future__ import annotations

import sys

from catalog.core.logs import configure_logs
from catalog.core.settings import Settings, load_settings, variable_of
from catalog.lake import open_lake
from catalog.query import QueryWorkers, WorkerLimits

PROGRAM = "catalog.query_worker"
_NEEDED = (
    "stage", "function", "region", "endpoint_url", "bucket", "origin", "jobs_application", "jobs_role",
    "store_timeout_s", "log_level",
)  # fmt: skip


def query_workers(settings: Settings, *, limits: WorkerLimits | None = None) -> QueryWorkers:
    """The workers for the queries of one lake; starts none yet. They get the settings that a query needs: neither the
    signer nor a queue is among them."""
    values = {field: getattr(settings, field) for field in _NEEDED}
    variables = {variable_of(field): str(value) for field, value in values.items() if value is not None}
    command = (sys.executable, "-m", PROGRAM)
    return QueryWorkers(command, variables, count=max(settings.query_workers, 1), limits=limits)


def main() -> None:
    from catalog.query import serve_queries  # loads the engine: not in the process that supervises

    socket, memory_bytes, result_bytes = map(int, sys.argv[1:])
    settings = load_settings()
    configure_logs("query-worker", settings.log_level)
    serve_queries(lambda: open_lake(settings).queries, socket, memory_bytes, result_bytes)


if __name__ == "__main__":
    main()
