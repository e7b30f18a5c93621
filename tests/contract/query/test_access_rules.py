"""Masks and row filters: a caller learns nothing of what they hide, neither by a result nor by an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from catalog.core.errors import Invalid, LakeError
from catalog.lake import Lake
from catalog.query.run.queries import AccessRules, Queries
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import rows_of

SCHEMA = {"id": "long", "station": "string", "metres": "double"}


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"db{uuid4().hex[:8]}.tides"


def rows(*ids: int, station: str = "Brest") -> list[dict[str, Any]]:
    return [{"id": number, "station": station, "metres": number / 2} for number in ids]


def test_masks_and_row_filters_come_before_everything_else(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, [*rows(1, 2), *rows(3, station="Dover")])
    sequence(lake, name)
    rules = AccessRules("station = 'Brest'", {"metres": "CAST(NULL AS DOUBLE)", "station": "upper(station)"})
    guarded = Queries(lake.tables, lambda: lake.timeline, lake.attestations, rules=lambda caller, table: rules)
    everything = f"SELECT id, station, metres FROM {name} ORDER BY id"
    assert rows_of(guarded.run(everything)) == [(1, "BREST", None), (2, "BREST", None)]
    assert rows_of(guarded.run(f"SELECT count(*) FROM {name}")) == [(2,)], "statistics know nothing of rules"
    assert rows_of(
        guarded.run(f"SELECT count(*) FROM {name} VERSION AS OF {lake.timeline.head().checkpoint.size - 1}")
    ) == [(2,)]
    assert rows_of(guarded.run(f"SELECT id FROM {name} WHERE metres > 0")) == []
    with pytest.raises(LakeError):
        guarded.run(f'SELECT * FROM strandline_tables."{name}"')


def test_a_row_that_a_filter_hides_is_not_shown_by_an_error(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, [*rows(1, 2), *rows(9_000_000_000_000_000_007, station="Dover"), *rows(4)])
    sequence(lake, name)
    rules = AccessRules("lower(station) LIKE '%b%r%e%' AND length(station || 'x') = 6", {"metres": None})
    guarded = Queries(lake.tables, lambda: lake.timeline, lake.attestations, rules=lambda caller, table: rules)
    for condition in ("id * id > 0", "cast(id AS int) > 0"):
        text = f"SELECT id FROM {name} WHERE {condition} ORDER BY id"
        assert rows_of(guarded.run(text)) == [(1,), (2,), (4,)]
        with pytest.raises(Invalid, match="9000000000000000007"):
            lake.queries.run(text).table()


def test_statistics_of_hidden_rows_cannot_be_selected(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, [*rows(1, 2), *rows(9_000_000_000_000_000_007, station="Dover")])
    sequence(lake, name)
    rules = AccessRules("station = 'Brest'")
    guarded = Queries(lake.tables, lambda: lake.timeline, lake.attestations, rules=lambda caller, table: rules)
    for call in ("stats(id)", "id.stats()", '"STATS"(id)'):
        with pytest.raises(Invalid, match="not a function that a query may call"):
            guarded.run(f"SELECT {call} FROM {name}")
