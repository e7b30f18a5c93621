"""The canary's function, triggered by its schedule and by `strandline doctor --deployed`: asks the lake every kind of
read and proof, and counts those that fail."""

from __future__ import annotations

import logging
import time
from functools import cache
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from catalog import Settings, load_settings, survey
from catalog.core import metrics
from catalog.core.logs import configure_logs
from functions.metrics import function_metrics

log = logging.getLogger(__name__)

SECONDS = 60.0
"""How long a run may take where nothing ends it: outside of Lambda."""


@cache
def settings() -> Settings:
    loaded = load_settings()
    configure_logs("canary", loaded.log_level)
    return loaded


def handler(event: Any, context: Any) -> dict[str, Any]:
    """Out: each read with its error, or null. The event is not looked at."""
    seconds = SECONDS if context is None else context.get_remaining_time_in_millis() / 1000
    result = survey(settings(), time.time_ns() // 1_000_000, seconds)
    for read in result.failed:
        log.error("read failed", extra=read.as_dict())
    log.info("lake read", extra={"reads": len(result.reads), "failed": len(result.failed), "left_out": result.left_out})
    if result.failed:
        emitted = function_metrics("canary")
        emitted.add_metric(name=metrics.READS_FAILED, unit=MetricUnit.Count, value=len(result.failed))
        emitted.flush_metrics()
    return {"reads": [read.as_dict() for read in result.reads], "left_out": result.left_out}
