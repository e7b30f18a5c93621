"""One lake with vectors for each file, and a count of the engine's sessions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.query.run import execution
from catalog.query.run.engine import Session
from catalog.query.run.queries import Queries
from catalog.timeline.sequencer.vector_events import vector_table_name
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.search import ID, KEPT, ROWS, SCHEMA, TABLE, EngineOnly, World, parts_of, thing


@pytest.fixture(scope="module")
def runs() -> Iterator[list[Session]]:
    made: list[Session] = []

    class Counted(Session):
        def __init__(self, *options: Any) -> None:
            super().__init__(*options)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execution, "Session", Counted)
        yield made


@pytest.fixture(scope="module")
def world(server: ApiServer, runs: list[Session]) -> Iterator[World]:
    with lake_on(server) as lake:
        lake.tables.create(TABLE, SCHEMA, mode="mor", key=["id"])
        chance = random.Random(3)
        lake.tables.insert(TABLE, [thing(number, chance) for number in range(ROWS)])
        lake.vectors.create(TABLE, "text", columns=KEPT)
        sequence(lake, TABLE, vector_table_name(ID))
        yield World(lake, Queries(**parts_of(lake)), EngineOnly(**parts_of(lake)), runs)
