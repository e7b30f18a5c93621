"""Limits per caller, over a DynamoDB table as several instances of the function share it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from catalog.access.callers import Caller
from catalog.access.roles import Level, Role
from catalog.access.usage import HOUR_S, LEASE_S, LIMITS, UsageMeter, limits_by_role
from catalog.core.errors import Invalid
from catalog.core.settings import Settings
from infra.local.server import ApiServer
from tests.worlds.api import Function
from tests.worlds.lake import lake_on

READER = Caller("https://issuer#ada", (Role(Level.READ, "gold.*"),))
OTHER = Caller("https://issuer#eve", (Role(Level.READ, "gold.*"),))
SMALL = {
    "requests_per_minute": 5,
    "queries_at_once": 2,
    "query_seconds": 60,
    "scanned_bytes": 1000,
    "spark_vcpu_hours": 1,
}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000 * HOUR_S + 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_table(dynamodb: Any) -> str:
    table = f"usage-{uuid4().hex[:8]}"
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "caller", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "caller", "KeyType": "HASH"}],
    )
    return table


@pytest.fixture
def instance(server: ApiServer, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[], UsageMeter]:
    """Each call is another instance of the function."""
    table = make_table(server.endpoint.client("dynamodb", "person"))
    for name, value in server.endpoint.environment("person").items():
        monkeypatch.setenv(name, value)
    settings = Settings(
        stage="dev",
        region="us-east-1",
        endpoint_url=server.endpoint.url,
        bucket="lake",
        limits_table=table,
        limits={"reader": SMALL},
    )
    return lambda: UsageMeter(settings, clock)


def test_requests_a_minute_are_counted_over_all_instances(instance: Callable[[], UsageMeter], clock: Clock) -> None:
    first, second = instance(), instance()
    assert [first.count(READER) or second.count(READER) for _ in range(2)] == [None, None]
    assert first.count(READER) is None
    excess = second.count(READER)
    assert excess is not None and "5 requests a minute" in excess.reason and excess.retry_after_s == 20
    assert second.count(OTHER) is None
    clock.now += excess.retry_after_s
    assert second.count(READER) is None


def test_queries_at_once_end_with_their_block_or_with_their_lease(
    instance: Callable[[], UsageMeter], clock: Clock
) -> None:
    with instance().query(READER) as (one, *_), instance().query(READER) as (two, *_):
        assert (one, two) == (None, None)
        with instance().query(READER) as (three, *_):
            assert three is not None and "2 queries at once" in three.reason
    for _ in range(2):  # functions that died: nothing ends their block
        instance().query(READER).__enter__()
    clock.now += 61
    with instance().query(READER) as (after, *_):
        assert after is None
    assert LEASE_S < 61


def test_seconds_and_bytes_are_counted_for_the_hour(instance: Callable[[], UsageMeter], clock: Clock) -> None:
    with instance().query(READER) as (excess, _, measured):
        assert excess is None
        measured.scanned_bytes = 1000
    with instance().query(READER) as (excess, *_):
        assert excess is not None and "read by queries" in excess.reason
        clock.now += 60
    clock.now += HOUR_S
    with instance().query(READER) as (excess, *_):
        assert excess is None
        clock.now += 60
    with instance().query(READER) as (excess, *_):
        assert excess is not None and "60 seconds of queries" in excess.reason
        assert 0 < excess.retry_after_s <= HOUR_S
    with instance().query(OTHER) as (excess, *_):
        assert excess is None


def test_spark_has_a_budget_of_its_own(instance: Callable[[], UsageMeter], clock: Clock) -> None:
    with instance().query(READER) as (_, usage, measured):
        assert instance().spark_is_used_up(READER, usage) is None
        measured.spark_vcpu_seconds, measured.spark_query_id = 16 * 225, "q1"
    with instance().query(READER) as (excess, usage, _):
        used_up = instance().spark_is_used_up(READER, usage)
        assert excess is None and used_up is not None and "1 vCPU-hours on Spark" in used_up.reason


def reserve(meter: UsageMeter, query_id: str, vcpu_seconds: float) -> None:
    with meter.query(READER) as (_, _, measured):
        measured.spark_vcpu_seconds, measured.spark_query_id = vcpu_seconds, query_id


def test_a_job_is_settled_by_what_it_used_and_once(instance: Callable[[], UsageMeter], clock: Clock) -> None:
    reserve(instance(), "q1", 3600)
    reserve(instance(), "q1", 3600)  # the request again, for the same job
    assert instance().settle(READER, lambda _: None).spark_vcpu_hours == 1.0  # not known yet: by the estimate
    assert instance().settle(READER, {"q1": 0.25}.get).spark_vcpu_hours == 0.25
    assert instance().settle(READER, {"q1": 9.0}.get).spark_vcpu_hours == 0.25
    reserve(instance(), "q2", 36)
    usage = instance().settle(READER, {"q2": 1.5}.get)
    assert usage.spark_vcpu_hours == 1.75 and usage.reserved == ()
    assert instance().spark_is_used_up(READER, usage) is not None
    assert instance().settle(OTHER, {"q2": 1.5}.get).spark_vcpu_hours == 0


@pytest.mark.parametrize(("used", "counted"), [(2.0, 1.99), (0.001, 0.0)])
def test_what_a_job_of_the_hour_before_used_beyond_its_estimate_counts_now(
    instance: Callable[[], UsageMeter], clock: Clock, used: float, counted: float
) -> None:
    reserve(instance(), "q1", 36)
    clock.now += HOUR_S
    assert round(instance().settle(READER, {"q1": used}.get).spark_vcpu_hours, 6) == counted
    assert round(instance().settle(READER, {"q1": used}.get).spark_vcpu_hours, 6) == counted


def test_two_instances_settle_a_job_once(instance: Callable[[], UsageMeter], clock: Clock) -> None:
    reserve(instance(), "q1", 3600)

    def used(query_id: str) -> float:
        instance().settle(READER, {query_id: 0.5}.get)  # another one, between the look at the job and its release
        return 0.5

    assert instance().settle(READER, used).spark_vcpu_hours == 0.5


def test_without_the_counters_requests_are_served(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.endpoint.environment("person").items():
        monkeypatch.setenv(name, value)
    settings = Settings(
        stage="dev", region="us-east-1", endpoint_url=server.endpoint.url, bucket="lake", limits_table="no-such-table"
    )
    assert UsageMeter(settings).count(READER) is None


def test_who_has_no_role_may_not_query(instance: Callable[[], UsageMeter]) -> None:
    with instance().query(Caller("https://issuer#nobody")) as (excess, *_):
        assert excess is not None


@pytest.mark.parametrize("limits", [{"owner": {"queries_at_once": 1}}, {"reader": {"query_second": 1}}])
def test_limits_that_nobody_knows_are_refused(limits: dict[str, dict[str, float]]) -> None:
    with pytest.raises(Invalid, match="limits of"):
        limits_by_role(Settings(stage="dev", region="us-east-1", bucket="lake", limits=limits))


def test_the_api_refuses_what_is_beyond_a_limit_and_says_when_to_come_back(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake_on(server, queue=True) as lake:
        monkeypatch.setenv("STRANDLINE_LIMITS_TABLE", make_table(lake.client("dynamodb")))
        few = {"requests_per_minute": 3, "spark_vcpu_hours": 0}
        monkeypatch.setenv("STRANDLINE_LIMITS", json.dumps({"reader": few}))
        api, roles = Function(lake), ["strandline:reader:gold.*"]
        try:
            spark = api("POST", "/query", {"sql": "select 1", "engine": "spark"}, roles=roles)
            assert (spark.status, spark.body["type"]) == (429, "urn:strandline:too_many_requests")
            assert "vCPU-hours" in spark.body["detail"] and int(spark.headers["Retry-After"]) > 0
            statuses = [api("GET", "/tables", roles=roles).status for _ in range(10)]
            assert 429 in statuses and statuses[0] == 200  # of three a minute, one was the query's; a minute may end
            assert api("GET", "/tables").status == 200  # an admin has other limits
            assert [api("GET", "/health").status for _ in range(5)] == [200] * 5
        finally:
            api.restart()


def test_more_rights_have_more_of_everything() -> None:
    ordered = [LIMITS[role] for role in ("none", "reader", "writer", "admin")]
    for less, more in pairwise(ordered):
        assert all(getattr(less, name) <= getattr(more, name) for name in less.__slots__)
