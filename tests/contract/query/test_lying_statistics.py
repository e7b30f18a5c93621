"""A writer commits a manifest whose statistics lie. Its bytes are as committed; what they say is not so."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from catalog.core.errors import NotFound, Unverified
from catalog.core.events import TableMoved
from catalog.timeline import StoredSource
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world

SCHEMA = {"id": "long", "word": "string", "x": "double", "day": "date"}
RECORD_COUNT, VALUES, NULLS, NANS, LOWER, UPPER = 4, 7, 8, 9, 10, 11
"""Positions in Iceberg's struct of a data file, as pyiceberg has it."""


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def append(world: World, name: str, numbers: list[int], lie: Callable[[DataFile], None] | None = None) -> None:
    table = world.lake.iceberg.load_table(name)
    rows = [{"id": n, "word": f"w{n}" * 20, "x": n / 2, "day": None} for n in numbers]
    data = pa.Table.from_pylist(rows, schema=table.schema().as_arrow())
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as added:
        for file in _dataframe_to_data_files(table.metadata, data, table.io):
            if lie is not None:
                lie(file)
            added.append_data_file(file)
    world.lake.request(TableMoved(table=name))


def stating(position: int, field_id: int, value: Any) -> Callable[[DataFile], None]:
    def lie(file: DataFile) -> None:
        file._data[position] = {**(file._data[position] or {}), field_id: value}

    return lie


def fewer_rows(file: DataFile) -> None:
    file._data[RECORD_COUNT] = 1


def hidden(file: DataFile) -> None:
    """No row of the file is where a query for it looks."""
    stating(LOWER, 1, struct.pack("<q", 900))(file)
    stating(UPPER, 1, struct.pack("<q", 901))(file)


def made(world: World, lie: Callable[[DataFile], None] | None) -> str:
    name = world.name()
    world.lake.tables.create(name, SCHEMA)
    append(world, name, [1, 2])
    append(world, name, [3, 4, 5], lie)
    world.caught_up()
    return name


LIES = {
    "rows": (fewer_rows, "states 1 rows, and the file has 3"),
    "greatest": (stating(UPPER, 1, struct.pack("<q", 999)), "999 as the greatest value of id"),
    "least": (stating(LOWER, 1, struct.pack("<q", -7)), "-7 as the least value of id"),
    "hidden": (hidden, "900 as the least value of id"),
    "word": (stating(UPPER, 2, b"a"), "'a' as the greatest value of word"),
    "nulls": (stating(NULLS, 1, 3), "3 NULLs of id"),
    "values": (stating(VALUES, 1, 30), "30 values of id"),
    "nans": (stating(NANS, 3, 2), "2 NaNs of x"),
    "double": (stating(UPPER, 3, struct.pack("<d", 1e9)), "1000000000.0 as the greatest value of x"),
    "of nothing": (stating(LOWER, 4, struct.pack("<i", 20_000)), "20000 as the least value of day"),
    "no such field": (stating(LOWER, 77, struct.pack("<q", 1)), "bounds of the field 77"),
    "no value": (stating(LOWER, 3, b"\0\0"), "no value of its type"),
}


@pytest.mark.parametrize("kind", LIES)
def test_deep_verification_names_the_file_and_the_statement(world: World, kind: str) -> None:
    lie, what = LIES[kind]
    name = made(world, lie)
    report = world.verify()
    assert report.faults
    for fault in report.faults:
        assert (fault.index, fault.table) == (2, name) and fault.object.endswith(".parquet")
    assert any(what in fault.what for fault in report.faults), report.faults
    assert (report.statistics, report.uncompared, report.changes) == (2, 0, 2)


def test_true_statistics_are_no_fault(world: World) -> None:
    made(world, None)
    report = world.verify()
    assert (report.faults, report.statistics, report.uncompared) == ((), 2, 0)


@pytest.mark.parametrize("kind", ["rows", "greatest", "least", "hidden", "nulls"])
def test_a_verified_query_reads_the_rows(world: World, kind: str) -> None:
    name = made(world, LIES[kind][0])
    queries = world.another().queries
    asked = {
        f"SELECT count(*) FROM {name}": [(5,)],
        f"SELECT count(id), min(id), max(id) FROM {name}": [(5, 1, 5)],
        f"SELECT count(*) FROM {name} WHERE id >= 0": [(5,)],
        f"SELECT count(*) FROM {name} WHERE id > 500": [(0,)],
        f"SELECT id FROM {name} WHERE id = 4": [(4,)],
        f"SELECT id FROM {name} WHERE id < 0 OR id > 4": [(5,)],
    }
    for sql, expected in asked.items():
        found = [tuple(row.values()) for row in queries.run(sql, verify=True).table().to_pylist()]
        assert found == expected, sql
    believed = queries.run(f"SELECT count(*) FROM {name} WHERE id = 4").table().to_pylist()
    if kind == "hidden":
        assert list(believed[0].values()) == [0]  # an unverified query trusts the writer


@pytest.mark.parametrize("at", ["", " AS OF 'kept'", " VERSION AS OF 'snapshot:{snapshot}'", " VERSION AS OF {index}"])
def test_a_column_has_the_name_that_its_commit_gave_it(world: World, at: str) -> None:
    """Whoever may write the metadata file exchanges the names of two columns: values are read by id."""
    name = world.name()
    world.lake.tables.create(name, {"paid": "long", "owed": "long"})
    world.lake.tables.insert(name, [{"paid": 7, "owed": 0}])
    world.lake.tables.snapshot(name, "kept")
    index = world.caught_up().head().checkpoint.size - 1
    table = world.lake.iceberg.load_table(name)
    at = at.format(snapshot=table.metadata.current_snapshot_id, index=index)
    sql = f"SELECT paid FROM {name}{at}"
    assert world.another().queries.run(sql, verify=True).table().to_pylist() == [{"paid": 7}]
    forge_metadata(world, table, {b'"paid"': b'"owed"', b'"owed"': b'"paid"'})
    for verify in (True, False):
        try:
            found = world.another().queries.run(sql, verify=verify).table().to_pylist()
        except (Unverified, NotFound):
            continue
        assert found == [{"paid": 7}]


def forge_metadata(world: World, table: Table, names: dict[bytes, bytes]) -> None:
    """A metadata file with other names, to which the catalog then leads: the operator can write both."""
    bucket, _, key = table.metadata_location.removeprefix("s3://").partition("/")
    written = world.lake.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    forged = re.sub(b"|".join(names), lambda match: names[match[0]], written)
    assert forged != written
    key = key.replace("metadata/0", "metadata/forged-0")
    world.lake.s3.put_object(Bucket=bucket, Key=key, Body=forged)
    glue = world.lake.client("glue")
    database, name = table.name()
    entry = glue.get_table(DatabaseName=database, Name=name)["Table"]
    kept = {field: entry[field] for field in ("Name", "TableType", "Parameters", "StorageDescriptor") if field in entry}
    kept["Parameters"] = {**kept["Parameters"], "metadata_location": f"s3://{bucket}/{key}"}
    glue.update_table(DatabaseName=database, TableInput=kept, VersionId=entry["VersionId"])


def test_an_older_state_does_not_pass_for_the_one_that_is_proven(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator leads the index of the new snapshot to the old one's leaf, and puts old objects under new names."""
    name = made(world, None)
    new = world.lake.iceberg.load_table(name).current_snapshot()
    assert new is not None and new.parent_snapshot_id is not None
    old = world.lake.iceberg.load_table(name).snapshot_by_id(new.parent_snapshot_id)
    assert old is not None
    uuid = str(world.lake.iceberg.load_table(name).metadata.table_uuid)
    attested = world.lake.attestations.staged(uuid, old.snapshot_id)
    assert attested is not None
    sql = f"SELECT count(*) AS n FROM {name}"
    assert world.another().queries.run(sql, verify=True).table().to_pylist() == [{"n": 5}]
    listed = attested.manifest_list._replace(path=new.manifest_list)
    forged = replace(attested, snapshot_id=new.snapshot_id, manifest_list=listed)
    of_snapshot = StoredSource.of_snapshot
    monkeypatch.setattr(StoredSource, "of_snapshot", lambda self, _, size: of_snapshot(self, old.snapshot_id, size))
    old_list = world.lake.s3.get_object(Bucket=world.settings.bucket, Key=key_of(old.manifest_list))["Body"].read()
    for key, data in (
        (f"attest/{uuid}/{new.snapshot_id}", forged.encode()),
        (key_of(new.manifest_list), old_list),
    ):
        world.lake.s3.put_object(Bucket=world.settings.bucket, Key=key, Body=data)
    with pytest.raises(Unverified):
        world.another().queries.run(sql, verify=True).table()


def key_of(path: str) -> str:
    return path.removeprefix("s3://").partition("/")[2]


@pytest.mark.parametrize("first", ["source", "clone"])
def test_a_clone_is_verified_by_the_commits_of_what_it_was_cloned_from(world: World, first: str) -> None:
    name, copy = made(world, None), world.name("copy")
    if first == "clone":  # a commit that is sequenced after the clone which has its rows
        append(world, name, [9])
    world.lake.tables.clone(name, copy)
    if first == "clone":
        world.lake.client("sqs").purge_queue(QueueUrl=world.settings.moved_queue_url)
        world.lake.request(TableMoved(table=copy))
    world.caught_up()
    world.lake.tables.insert(copy, [{"id": 6, "word": "w", "x": 3.0, "day": None}])
    append(world, name, [7])
    world.caught_up()
    more = first == "clone"
    for table, count in ((name, 6 + more), (copy, 6 + more)):
        answer = world.another().queries.run(f"SELECT count(*) AS n FROM {table}", verify=True)
        assert answer.table().to_pylist() == [{"n": count}]
