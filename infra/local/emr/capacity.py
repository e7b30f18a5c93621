"""What the workers of a job run take of the account's quota, by EMR Serverless's own rules and defaults.

docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide: app-behavior.html (sizes), jobs-spark.html (defaults),
jobs-serverless-storage.html, endpoints-quotas.html. A run counts with all the executors that it may grow to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

# vCPUs -> the least and the greatest memory in GB, and its step.
SIZES = {1: (2, 8, 1), 2: (4, 16, 1), 4: (8, 30, 1), 8: (16, 60, 4), 16: (32, 120, 8)}
SERVERLESS_STORAGE_VCPUS = 4
"""The least that a worker needs to keep its shuffle on managed storage."""
DEFAULTS = {
    "spark.driver.cores": "4",
    "spark.driver.memory": "14g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "14g",
    "spark.executor.instances": "3",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "3",
    "spark.dynamicAllocation.maxExecutors": "infinity",
}
OVERHEAD, LEAST_OVERHEAD_GB = 0.1, 0.375
_UNITS = {"k": 1 / 1024**2, "m": 1 / 1024, "g": 1.0, "t": 1024.0}


class UnsupportedSize(ValueError):
    """EMR Serverless has no such workers; the message says which it has."""


@dataclass(frozen=True)
class Worker:
    vcpus: int
    memory_gb: int


@dataclass(frozen=True)
class Capacity:
    """A run's driver and executor, and how many executors it may have; None: as many as there are."""

    driver: Worker
    executor: Worker
    executors: int | None

    def vcpus(self, quota: int) -> int:
        """What it may take, where `quota` is all there is."""
        if self.executors is None:
            return quota
        return self.driver.vcpus + self.executors * self.executor.vcpus


def capacity_of(conf: Mapping[str, str]) -> Capacity:
    """The workers of a run with these Spark settings. Raises UnsupportedSize."""
    effective = {**DEFAULTS, **conf}
    driver, executor = (_worker(effective, role) for role in ("driver", "executor"))
    if effective.get("spark.aws.serverlessStorage.enabled") == "true":
        for role, worker in (("driver", driver), ("executor", executor)):
            if worker.vcpus < SERVERLESS_STORAGE_VCPUS:
                raise UnsupportedSize(
                    f"serverless storage needs workers of {SERVERLESS_STORAGE_VCPUS} vCPU or more: the {role} has "
                    f"{worker.vcpus}"
                )
    if effective["spark.dynamicAllocation.enabled"] != "true":
        return Capacity(driver, executor, int(effective["spark.executor.instances"]))
    maximum = effective["spark.dynamicAllocation.maxExecutors"]
    initial = int(effective["spark.dynamicAllocation.initialExecutors"])
    if maximum == "infinity":
        return Capacity(driver, executor, None)
    if initial > int(maximum):
        raise UnsupportedSize(f"{initial} initial executors are more than the {maximum} that the run may have")
    return Capacity(driver, executor, int(maximum))


def _worker(conf: Mapping[str, str], role: str) -> Worker:
    vcpus, heap = int(conf[f"spark.{role}.cores"]), _gigabytes(conf[f"spark.{role}.memory"])
    memory = math.ceil(heap + max(heap * OVERHEAD, LEAST_OVERHEAD_GB) - 1e-9)
    if vcpus not in SIZES:
        raise UnsupportedSize(f"a worker has 1, 2, 4, 8 or 16 vCPU, and the {role} asks for {vcpus}")
    least, greatest, step = SIZES[vcpus]
    rounded = math.ceil(memory / step) * step
    if not least <= rounded <= greatest:
        raise UnsupportedSize(
            f"a worker of {vcpus} vCPU has {least} to {greatest} GB, and the {role} needs {memory} with its overhead"
        )
    return Worker(vcpus, rounded)


def _gigabytes(text: str) -> float:
    size = re.fullmatch(r"(\d+)([kmgt])b?", text.lower())
    if size is None:
        raise UnsupportedSize(f"{text!r} is no size of memory, such as 14g")
    return int(size[1]) * _UNITS[size[2]]
