"""The workers of a job run: their sizes, how many a stage allows, and what they take of the account's quota.

The stacks deploy them, and the cost estimate computes with them.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.stage import Stage

OVERHEAD = 0.1
"""Spark's share of a worker's memory outside its heap."""
CONCURRENT_RUNS = 2
"""Runs of one application that fit its maximum capacity: a query need not wait for a scheduled job."""


@dataclass(frozen=True)
class Worker:
    vcpus: int
    memory_gb: int

    @property
    def heap_gb(self) -> int:
        return int(self.memory_gb / (1 + OVERHEAD))


# Four vCPU are the least with which EMR keeps shuffle and spill on its serverless storage instead of worker disks.
DRIVER = Worker(vcpus=4, memory_gb=8)
EXECUTOR = Worker(vcpus=4, memory_gb=16)


def spark_conf(stage: Stage) -> dict[str, str]:
    """The Spark settings of every run. EMR's defaults are three executors at once and no limit to their number."""
    return {
        "spark.driver.cores": str(DRIVER.vcpus),
        "spark.driver.memory": f"{DRIVER.heap_gb}g",
        "spark.executor.cores": str(EXECUTOR.vcpus),
        "spark.executor.memory": f"{EXECUTOR.heap_gb}g",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": str(stage.job_executors),
    }


def maximum_capacity(stage: Stage) -> Worker:
    """What CONCURRENT_RUNS runs take with all their executors."""
    return Worker(
        vcpus=CONCURRENT_RUNS * (DRIVER.vcpus + stage.job_executors * EXECUTOR.vcpus),
        memory_gb=CONCURRENT_RUNS * (DRIVER.memory_gb + stage.job_executors * EXECUTOR.memory_gb),
    )
