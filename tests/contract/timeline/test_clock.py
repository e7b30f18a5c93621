"""A clock that is ahead is held against the time in S3's responses: no leaf lies more than a minute in the future."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from catalog.core import aws_clock
from catalog.core.errors import Unavailable
from catalog.lake import Lake
from infra.local.faults import disconnect
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on

HOUR_S = 3600.0


class Clocks:
    """A machine's two clocks, which a test sets."""

    def __init__(self) -> None:
        self.ahead_s = self.frozen_s = 0.0

    def module(self) -> SimpleNamespace:
        return SimpleNamespace(
            time_ns=lambda: int((time.time() + self.ahead_s) * 1e9), monotonic=lambda: time.monotonic() - self.frozen_s
        )


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(aws_clock, "time", clocks.module())
    return clocks


@pytest.fixture
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as lake:
        lake.iceberg.create_namespace(namespace(lake))
        lake.tables.create(table(lake), {"id": "long"})
        yield lake


def namespace(lake: Lake) -> str:
    return lake.settings.bucket.replace("-", "_")


def table(lake: Lake) -> str:
    return f"{namespace(lake)}.t"


def sequenced_ms(lake: Lake, number: int) -> int:
    lake.tables.insert(table(lake), [{"id": number}])
    return lake.sequencer.catch_up([table(lake)]).leaves[-1][1].sequenced_ms


def heads(server: ApiServer, mark: int) -> int:
    return sum(r.method == "HEAD" and r.path.endswith("timeline/checkpoint") for r in server.log.since(mark))


def test_a_leaf_is_at_awss_time_while_the_clock_is_hours_ahead(
    server: ApiServer, lake: Lake, clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    first = sequenced_ms(lake, 1)
    clocks.ahead_s = 5 * HOUR_S
    with caplog.at_level(logging.WARNING):
        ahead = sequenced_ms(lake, 2)
    assert first <= ahead <= time.time() * 1000 + aws_clock.AHEAD_MS
    assert [record for record in caplog.records if "ahead of AWS" in record.message and record.ahead_s > 4 * HOUR_S]
    clocks.ahead_s = 0.0
    assert ahead < sequenced_ms(lake, 3) <= time.time() * 1000 + 1000


def test_a_clock_that_agrees_is_asked_about_once(server: ApiServer, lake: Lake, clocks: Clocks) -> None:
    mark = server.log.mark()
    for number in range(3):
        sequenced_ms(lake, number)
    assert heads(server, mark) == 1


def test_a_process_that_was_frozen_is_not_taken_for_one_whose_clock_is_ahead(
    server: ApiServer, lake: Lake, clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    """The monotonic clock stood still, the other one did not."""
    sequenced_ms(lake, 1)
    clocks.frozen_s = 2 * HOUR_S
    mark = server.log.mark()
    with caplog.at_level(logging.WARNING):
        assert abs(sequenced_ms(lake, 2) - time.time() * 1000) < aws_clock.AHEAD_MS
    assert heads(server, mark) == 1
    assert not [record for record in caplog.records if "ahead of AWS" in record.message]


def test_without_awss_time_nothing_is_sequenced(server: ApiServer, lake: Lake, clocks: Clocks) -> None:
    lake.tables.insert(table(lake), [{"id": 1}])
    with (
        server.faults.fault(lambda r: r.method == "HEAD" and r.path.endswith("timeline/checkpoint"), disconnect),
        pytest.raises(Unavailable),
    ):
        lake.sequencer.catch_up([table(lake)])
    assert lake.sequencer.catch_up([table(lake)]).leaves
