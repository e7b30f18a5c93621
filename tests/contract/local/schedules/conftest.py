"""Schedules and scheduled rules on one API server, with a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.server import ApiServer
from tests.worlds.schedules import Cloud


@pytest.fixture
def cloud(server: ApiServer) -> Iterator[Cloud]:
    cloud = Cloud(server)
    cloud.agenda.start()
    cloud.schedules.start()
    cloud.bus.start()
    yield cloud
    cloud.bus.stop()
    cloud.schedules.stop()
    cloud.agenda.stop()
    scheduler, events = cloud.client("scheduler"), cloud.client("events")
    for one in scheduler.list_schedules()["Schedules"]:
        scheduler.delete_schedule(GroupName=one["GroupName"], Name=one["Name"])
    for rule in events.list_rules()["Rules"]:
        ids = [target["Id"] for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]]
        if ids:
            events.remove_targets(Rule=rule["Name"], Ids=ids)
        events.delete_rule(Name=rule["Name"])
