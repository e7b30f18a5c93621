"""A lake of its own for each test that asks for one; its sequencers and readers are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from catalog.timeline.reader.timeline import Timeline
from infra.local.server import ApiServer
from tests.worlds.timeline import ROWS, SEQUENCER, World


@pytest.fixture
def new_world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], World]]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", SEQUENCER)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    worlds: list[World] = []

    def make() -> World:
        worlds.append(World.create(server))
        return worlds[-1]

    yield make
    for world in worlds:
        for opened in (*world.sequencers, *world.readers):
            opened.close()


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()


@pytest.fixture
def told(world: World) -> dict[str, Any]:
    """Two tables; snapshots a0 and a1 of `a`, with `b` and a tag between: six leaves in four batches."""
    a, b, sequencer = world.table("a"), world.table("b"), world.sequencer()
    a.append(ROWS)
    a0 = a.current_snapshot().snapshot_id
    sequencer.catch_up([world.name("a")])  # 0 create, 1 append
    at0 = world.clock[0]
    b.append(ROWS)
    sequencer.catch_up([world.name("b")])  # 2 create, 3 append
    a.manage_snapshots().create_tag(a0, "v0").commit()
    sequencer.catch_up([world.name("a")])  # 4 tag
    a.append(ROWS)
    sequencer.catch_up([world.name("a")])  # 5 append
    return {
        "a": world.name("a"),
        "b": world.name("b"),
        "a0": a0,
        "a1": a.current_snapshot().snapshot_id,
        "at0": at0,
    }


@pytest.fixture(params=["stored", "published"])
def timeline(request: pytest.FixtureRequest, world: World, told: dict[str, Any]) -> Timeline:
    made: Timeline = getattr(world, request.param)()
    return made
