"""A name is for what was in the timeline when it was asked for, however late the sequencer comes to it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from catalog.core.errors import Conflict, LakeError, NotFound
from catalog.core.events import NameIndex, parse_message
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    made.lake.tables.create(made.name(), {"id": "long"}, key=["id"])
    made.lake.tables.insert(made.name(), [{"id": 1}])
    made.caught_up()
    yield made
    made.close()


def size(world: World) -> int:
    return world.public().head().checkpoint.size


def test_a_name_has_no_write_that_was_made_after_it_was_asked_for(world: World) -> None:
    newest = size(world) - 1
    assert world.lake.name_index("close-of-day") == newest
    world.lake.tables.insert(world.name(), [{"id": 2}])
    world.caught_up()  # the name and the commit are served together
    assert size(world) == newest + 2
    reader = world.another()
    assert reader.timeline.named("close-of-day") == newest
    table = world.name()
    assert reader.queries.run(f"select * from {table}", as_of="close-of-day").table().num_rows == 1


def test_an_index_that_was_said_is_the_one_that_is_named(world: World) -> None:
    assert world.lake.name_index("beginning", 0) == 0
    world.caught_up()
    reader = world.another()
    assert reader.timeline.named("beginning") == 0
    assert reader.name_index("beginning", 0) == 0, "asked for again, it is the same"
    with pytest.raises(Conflict, match="index 0 already"):
        reader.name_index("beginning")
    with pytest.raises(NotFound, match="no index"):
        reader.name_index("someday", size(world))


def test_a_request_without_an_index_is_refused_and_names_nothing(world: World) -> None:
    with pytest.raises(ValidationError):
        NameIndex.model_validate({"name": "some"})
    with pytest.raises(LakeError):
        parse_message(json.dumps({"kind": "name", "name": "some"}))


def test_nothing_is_named_before_there_is_anything(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = make_world(server, monkeypatch)
    with pytest.raises(NotFound, match="the timeline is empty"):
        empty.lake.name_index("early")
    empty.close()
