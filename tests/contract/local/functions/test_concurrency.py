"""How many of a function run at once, and what callers hear when none is free."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from infra.local.awslambda.invocation import Throttled
from infra.local.awslambda.service import LambdaService
from infra.local.quotas import NEW_ACCOUNT, RAISED, Quotas, account_with
from infra.local.server import ApiServer
from tests.waiting import wait_until
from tests.worlds.functions import call


@pytest.fixture(autouse=True)
def raised() -> Iterator[None]:
    """An account that may reserve."""
    with account_with(RAISED):
        yield


def intervals(service: LambdaService, name: str) -> list[dict[str, int]]:
    with ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: call(service, name, {"seconds": 0.05}), range(6)))
    return sorted(runs, key=lambda run: run["began"])


def test_reserved_concurrency_of_one_never_overlaps(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("slow")
    server.endpoint.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
    runs = intervals(service, name)
    assert all(earlier["ended"] <= later["began"] for earlier, later in pairwise(runs))
    assert len({run["pid"] for run in runs}) == 1


def test_without_a_reservation_two_run_at_once_and_no_more(service: LambdaService, function: Any, bucket: str) -> None:
    name = function("meeting", timeout=120, Environment={"Variables": {"BUCKET": bucket}})
    with ThreadPoolExecutor(4) as pool:  # the first call returns only when a second runs beside it
        runs = list(pool.map(lambda _: call(service, name, {"callers": 2}), range(6)))
    assert len({run["pid"] for run in runs}) == 2


def test_a_busy_function_throttles_who_does_not_wait(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("slow")
    client = server.endpoint.client("lambda")
    client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.invoke, name, b'{"seconds": 60}')
        worker = wait_until(lambda: service.workers().get(name), "a worker")[0]
        with pytest.raises(client.exceptions.TooManyRequestsException):
            client.invoke(FunctionName=name, Payload=b'{"seconds": 0}')
        worker.kill()
        assert running.result().function_error == "Unhandled"


def test_reserved_concurrency_of_zero_runs_nothing(server: ApiServer, service: LambdaService, function: Any) -> None:
    name = function("echo")
    server.endpoint.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    with pytest.raises(Throttled):
        service.invoke(name, b"{}")


def test_a_new_account_cannot_reserve_anything_but_may_switch_a_function_off(server: ApiServer, function: Any) -> None:
    name, client = function("echo"), server.endpoint.client("lambda")
    with account_with(NEW_ACCOUNT):
        with pytest.raises(client.exceptions.InvalidParameterValueException, match=r"minimum value of \[10\]"):
            client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=1)
        client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)


def test_a_hundred_executions_stay_unreserved(server: ApiServer, function: Any) -> None:
    name, client = function("echo"), server.endpoint.client("lambda")
    with account_with(Quotas(lambda_concurrency=150, emr_vcpus=16)):
        with pytest.raises(client.exceptions.InvalidParameterValueException, match=r"minimum value of \[100\]"):
            client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=51)
        client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=50)


def test_all_functions_together_run_as_many_as_the_account_may(service: LambdaService, function: Any) -> None:
    busy = other = function("slow")
    with account_with(Quotas(lambda_concurrency=1, emr_vcpus=16)), ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.invoke, busy, b'{"seconds": 60}')
        worker = wait_until(lambda: service.workers().get(busy), "a worker")[0]
        with pytest.raises(Throttled):
            service.invoke(other, b"{}", wait=False)
        worker.kill()
        assert running.result().function_error == "Unhandled"
