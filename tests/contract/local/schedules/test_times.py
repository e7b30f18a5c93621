"""Schedules and scheduled rules fire as on AWS: when, in which order, and when no longer."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from infra.local.endpoint import ACCOUNT, REGION
from tests.worlds.schedules import FUNCTION, MINUTE, ROLE, START, Cloud, update


def test_a_schedule_with_a_rate_fires_at_once_and_then_every_period(cloud: Cloud) -> None:
    name = cloud.schedule("rate(20 minutes)")
    assert cloud.times == ["2026-01-01T00:00:00Z"]
    cloud.move(20 * MINUTE)
    cloud.move(19 * MINUTE)
    assert cloud.times == ["2026-01-01T00:00:00Z", "2026-01-01T00:20:00Z"]
    _, function, event = cloud.events[0]
    assert function == "sweep"
    assert event["resources"] == [f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{name}"]
    assert (event["source"], event["detail-type"], event["detail"]) == (
        "aws.scheduler",
        "Scheduled Event",
        "{}",
    )


@pytest.mark.parametrize("expression", ["rate(20 minutes)", "cron(0/20 * * * ? *)"])
def test_a_jump_over_several_ticks_fires_each_of_them_in_order(cloud: Cloud, expression: str) -> None:
    cloud.schedule(expression)
    cloud.events.clear()
    cloud.move(65 * MINUTE)
    assert cloud.times == ["2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z", "2026-01-01T01:00:00Z"]


def test_two_schedules_fire_in_the_order_of_their_instants(cloud: Cloud) -> None:
    cloud.schedule("cron(30 * * * ? *)", {"Input": '{"time": "half"}'})
    cloud.schedule("cron(0 * * * ? *)", {"Input": '{"time": "full"}'})
    cloud.move(timedelta(hours=2))
    assert cloud.times == ["half", "full", "half", "full"]


def test_a_rule_with_a_rate_fires_first_after_one_period(cloud: Cloud) -> None:
    name = cloud.rule("rate(5 minutes)", {"Arn": FUNCTION})
    assert cloud.events == []
    cloud.move(5 * MINUTE)
    [(_, function, event)] = cloud.events
    assert function == "sweep"
    assert uuid.UUID(event.pop("id"))
    assert event == {
        "version": "0",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": "2026-01-01T00:05:00Z",
        "region": REGION,
        "resources": [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/{name}"],
        "detail": {},
    }


def test_a_rule_fires_every_target_with_the_input_of_each(cloud: Cloud) -> None:
    cloud.rule(
        "rate(1 hour)",
        {"Arn": FUNCTION, "Input": '{"time": "constant"}'},
        {"Arn": FUNCTION, "InputPath": "$.resources"},
    )
    cloud.move(timedelta(hours=1))
    [constant, path] = [event for _, _, event in cloud.events]
    assert constant == {"time": "constant"}
    assert path[0].startswith("arn:aws:events:")


def test_a_cron_in_a_time_zone_fires_by_that_zones_wall_clock(cloud: Cloud) -> None:
    cloud.schedule("cron(0 3 * * ? *)", ScheduleExpressionTimezone="Europe/Helsinki")
    cloud.move(timedelta(hours=2))
    assert cloud.times == ["2026-01-01T01:00:00Z"]


def test_a_one_time_schedule_fires_once_and_is_deleted_when_asked(cloud: Cloud) -> None:
    name = cloud.schedule("at(2026-01-01T06:00:00)", ActionAfterCompletion="DELETE")
    kept = cloud.schedule("at(2026-01-01T07:00:00)")
    cloud.move(timedelta(hours=12))
    cloud.sync()
    cloud.move(timedelta(days=400))
    assert cloud.times == ["2026-01-01T06:00:00Z", "2026-01-01T07:00:00Z"]
    left = [one["Name"] for one in cloud.client("scheduler").list_schedules()["Schedules"]]
    assert kept in left and name not in left


def test_start_and_end_dates_bound_a_schedule(cloud: Cloud) -> None:
    cloud.schedule("rate(10 minutes)", StartDate=START + 25 * MINUTE, EndDate=START + 45 * MINUTE)
    cloud.move(timedelta(hours=3))
    assert cloud.times == ["2026-01-01T00:25:00Z", "2026-01-01T00:35:00Z", "2026-01-01T00:45:00Z"]


def test_a_disabled_schedule_is_silent_until_it_is_enabled(cloud: Cloud) -> None:
    name = cloud.schedule("cron(0 * * * ? *)", State="DISABLED")
    cloud.move(timedelta(hours=2))
    assert cloud.events == []
    update(cloud, name, State="ENABLED")
    cloud.sync()
    cloud.move(timedelta(hours=1))
    assert cloud.times == ["2026-01-01T03:00:00Z"]


def test_what_is_disabled_or_deleted_before_its_tick_does_not_fire(cloud: Cloud) -> None:
    disabled, deleted = cloud.schedule("cron(0 * * * ? *)"), cloud.schedule("cron(0 * * * ? *)")
    rule = cloud.rule("cron(0 * * * ? *)", {"Arn": FUNCTION})
    cloud.move(timedelta(minutes=59, seconds=59, milliseconds=500))
    update(cloud, disabled, State="DISABLED")
    cloud.client("scheduler").delete_schedule(Name=deleted)
    cloud.client("events").disable_rule(Name=rule)
    cloud.move(timedelta(milliseconds=500))  # nobody called sync: the tick itself looks
    assert cloud.events == []


def test_a_new_schedule_is_noticed_without_being_told(cloud: Cloud) -> None:
    cloud.client("scheduler").create_schedule(
        Name="unannounced",
        ScheduleExpression="rate(1 hour)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": FUNCTION, "RoleArn": ROLE},
    )
    cloud.move(timedelta(seconds=1))
    assert cloud.times == ["2026-01-01T00:00:01Z"]


def test_another_target_keeps_the_rhythm_and_another_rate_starts_anew(cloud: Cloud) -> None:
    name = cloud.schedule("rate(1 hour)")
    cloud.move(30 * MINUTE)
    update(cloud, name, Target={"Arn": FUNCTION, "RoleArn": ROLE, "Input": '{"time": "new target"}'})
    cloud.sync()
    assert len(cloud.events) == 1
    cloud.move(30 * MINUTE)
    assert cloud.times[1:] == ["new target"]
    cloud.events.clear()
    cloud.move(30 * MINUTE)
    update(cloud, name, ScheduleExpression="rate(2 hours)")
    cloud.sync()
    cloud.move(timedelta(hours=2))
    assert [at for at, _, _ in cloud.events] == [START + 90 * MINUTE, START + 210 * MINUTE]


def test_schedules_of_the_same_name_in_two_groups_are_two(cloud: Cloud) -> None:
    cloud.client("scheduler").create_schedule_group(Name="night")
    cloud.schedule("cron(0 1 * * ? *)", {"Input": '{"time": "default"}'}, Name="same")
    cloud.schedule("cron(0 2 * * ? *)", {"Input": '{"time": "night"}'}, Name="same", GroupName="night")
    cloud.move(timedelta(hours=3))
    assert cloud.times == ["default", "night"]


def test_an_expression_that_aws_would_not_take_is_named_and_stops_nobody_else(cloud: Cloud) -> None:
    cloud.schedule("cron(0 1 * * ? *)")
    with pytest.raises(ValueError, match=r"schedule/default/broken.*every day"):
        cloud.schedule("every day", Name="broken")
    cloud.move(timedelta(hours=1))
    assert cloud.times == ["2026-01-01T01:00:00Z"]
