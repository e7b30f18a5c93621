"""A manifest states how many rows a file has. Whatever it states, the rows are counted in the file."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files

from catalog.changes import verify_feed
from catalog.changes.limits import Limit
from catalog.core.events import TableMoved
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world

SCHEMA = {"id": "long", "v": "string"}
ABSURD = [0, 1, 4, -1, -(2**62), 2**62]


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def append(world: World, name: str, numbers: list[int], stated: int | None = None) -> None:
    """What a stranger's engine does; `stated` is the record_count in its manifest."""
    table = world.lake.iceberg.load_table(name)
    rows = pa.Table.from_pylist([{"id": n, "v": "x"} for n in numbers], schema=table.schema().as_arrow())
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        for file in _dataframe_to_data_files(table.metadata, rows, table.io):
            if stated is not None:
                file._data[4] = stated
            added.append_data_file(file)
    world.lake.request(TableMoved(table=name))


def made(world: World, stated: int) -> str:
    name = world.name()
    world.lake.tables.create(name, SCHEMA)
    append(world, name, [1, 2])
    append(world, name, [3, 4, 5], stated)
    append(world, name, [6])
    return name


@pytest.mark.parametrize("stated", ABSURD)
def test_a_commit_is_captured_by_the_rows_in_its_files(world: World, stated: int) -> None:
    name = made(world, stated)
    leaves = [leaf for _, leaf in world.caught_up().commits_since(name)]
    assert [leaf.changes_count for leaf in leaves] == [None, 2, 3, 1]
    feed = list(world.another().changes(name))
    assert verify_feed(feed, world.signer.verifier_key, table=name) == 3
    assert [one.count for one in feed] == [2, 3, 1]


@pytest.mark.parametrize("stated", ABSURD)
def test_verification_counts_again_and_names_the_file(world: World, stated: int) -> None:
    name = made(world, stated)
    world.caught_up()
    report = world.verify()
    (fault,) = report.faults
    assert (fault.index, fault.table) == (2, name)
    assert f"states {stated} rows" in fault.what and "has 3" in fault.what
    assert (report.changes, report.uncounted) == (3, 0)


@pytest.mark.parametrize("stated", [0, -1, 4])
def test_a_file_that_states_too_little_does_not_pass_the_limit(
    world: World, stated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.changes import changes_root

    monkeypatch.setitem(changes_root.changes_of.__kwdefaults__, "limit", Limit(rows=2, bytes=1 << 20))
    name = made(world, stated)
    leaves = [leaf for _, leaf in world.caught_up().commits_since(name)]
    assert [leaf.changes_count for leaf in leaves] == [None, 2, None, 1]


def test_what_verification_cannot_count_again_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from catalog.changes import changes_root

    name = world.name()
    world.lake.tables.create(name, SCHEMA)
    for numbers in ([1, 2], [3, 4, 5], [6]):
        append(world, name, numbers)
    world.caught_up()
    monkeypatch.setattr(changes_root, "AUDIT_LIMIT", Limit(rows=2, bytes=1 << 30))
    report = world.verify()
    assert (report.faults, report.changes, report.uncounted) == ((), 2, 1)
    from cli.timeline import _report_text

    assert "1 commits were not counted again" in _report_text(report, deep=True, policy=None)
    assert "not counted again" not in _report_text(report, deep=False, policy=None)
