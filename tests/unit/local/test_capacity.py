"""Workers and the account's quota: EMR's own defaults take all of a new account, the stacks' settings half of it."""

from __future__ import annotations

import pytest

from infra.job_workers import DRIVER, EXECUTOR
from infra.local.emr.capacity import UnsupportedSize, Worker, capacity_of
from infra.local.quotas import NEW_ACCOUNT
from tests.infra.stages import STAGES, of_type

QUOTA = NEW_ACCOUNT.emr_vcpus
STORAGE = {"spark.aws.serverlessStorage.enabled": "true"}


def test_by_default_a_run_takes_all_there_is() -> None:
    capacity = capacity_of({})
    assert (capacity.driver, capacity.executor) == (Worker(4, 16), Worker(4, 16))
    assert capacity.vcpus(QUOTA) == QUOTA


def test_a_run_counts_with_the_executors_that_it_may_grow_to() -> None:
    limited = {"spark.dynamicAllocation.initialExecutors": "1", "spark.dynamicAllocation.maxExecutors": "2"}
    assert capacity_of(limited).vcpus(QUOTA) == 12
    assert capacity_of({"spark.dynamicAllocation.enabled": "false"}).vcpus(QUOTA) == 16


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.driver.cores": "3"},
        {"spark.driver.cores": "1"},  # with 16 GB
        {"spark.executor.memory": "2g"},
        {"spark.executor.memory": "28g"},  # 31 GB with its overhead
        {"spark.executor.memory": "much"},
        {"spark.dynamicAllocation.maxExecutors": "1"},  # three at the start
        {**STORAGE, "spark.driver.cores": "2", "spark.driver.memory": "7g"},
    ],
)
def test_workers_that_emr_does_not_have(conf: dict[str, str]) -> None:
    with pytest.raises(UnsupportedSize):
        capacity_of(conf)


@pytest.mark.parametrize("stage", STAGES)
def test_two_runs_of_the_lakes_application_fit_a_new_account(stage: str) -> None:
    (application,) = of_type(stage, "AWS::EMRServerless::Application").values()
    (defaults,) = application["RuntimeConfiguration"]
    capacity = capacity_of({key: value for key, value in defaults["Properties"].items() if isinstance(value, str)})
    assert 2 * capacity.vcpus(QUOTA) <= QUOTA
    assert (capacity.driver.vcpus, capacity.driver.memory_gb) == (DRIVER.vcpus, DRIVER.memory_gb)
    assert (capacity.executor.vcpus, capacity.executor.memory_gb) == (EXECUTOR.vcpus, EXECUTOR.memory_gb)
    assert application["MaximumCapacity"] == {"Cpu": "16 vCPU", "Memory": "48 GB"}
