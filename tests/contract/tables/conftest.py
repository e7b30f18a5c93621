"""A bucket and a database of its own for each test, and a table in each write mode."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.tables import write_modes
from catalog.tables.manager import Tables
from infra.local.server import ApiServer
from tests.worlds.table_rows import COLUMNS
from tests.worlds.warehouse import Warehouse


class WriterWorld(Warehouse):
    PRINCIPAL = "writer"


@pytest.fixture
def world(server: ApiServer) -> WriterWorld:
    return WriterWorld.create(server)


@pytest.fixture(params=write_modes.MODES)
def mode(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    # Test files are tiny: without this hybrid would always rewrite them.
    monkeypatch.setattr(write_modes, "SMALL_BYTES", 0)
    return str(request.param)


@pytest.fixture
def tables(world: Any) -> Tables:
    return world.tables()


@pytest.fixture
def name(world: Any, tables: Tables, mode: str) -> str:
    made = world.name(mode)
    tables.create(made, COLUMNS, mode=mode, key=["id"])
    return made
