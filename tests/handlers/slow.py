"""Takes its time, and tells when it began and ended on the clock all processes of a machine share."""

from __future__ import annotations

import os
import time
from typing import Any


def handler(event: Any, context: Any) -> dict[str, int]:
    began = time.monotonic_ns()
    time.sleep(event["seconds"])
    return {"began": began, "ended": time.monotonic_ns(), "pid": os.getpid()}
