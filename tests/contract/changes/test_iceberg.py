"""Change sets of real Iceberg tables: whoever wrote the commit and however, the feed says what a dict
model says."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from catalog.changes import changes, collapse, diff, from_ipc, net_changes, to_ipc, verify_leaf
from catalog.core.errors import NotFound, Unverified
from catalog.core.point_in_time import SnapshotId
from catalog.merkle import Ed25519Signer
from catalog.merkle.tree import EMPTY_ROOT
from catalog.tables.manager import Tables
from tests.worlds.warehouse import Warehouse

SIGNER = Ed25519Signer("consumer.example", bytes(range(32)))
KEYS = [SIGNER.verifier_key]


@pytest.fixture
def world(server):
    return Warehouse.create(server)


@pytest.fixture
def catalog(world):
    catalog = world.catalog()
    catalog.create_namespace(world.namespace)
    return catalog


@pytest.fixture
def name(world):
    return world.name()


@pytest.fixture
def tables(catalog):
    return Tables(catalog)


KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", StringType()),
    identifier_field_ids=[1],
)


def rows(*records, schema=KEYED):
    return pa.Table.from_pylist(list(records), schema=schema.as_arrow())


def row(number, value):
    return {"id": number, "v": value}


def lines(change_set):
    """(op, before, after) in the feed's order."""
    return [(line["op"], line["before"], line["after"]) for line in change_set.changes.to_pylist()]


def inserted(*records):
    return [("INSERT", None, one) for one in records]


# pyiceberg as the writer.


def test_an_append_is_inserts_and_the_feed_checks_against_its_leaf(catalog, name):
    table = catalog.create_table(name, KEYED)
    table.append(rows(row(2, "b"), row(1, "a"), row(3, None)))
    change_set = diff(table)
    assert lines(change_set) == inserted(row(1, "a"), row(2, "b"), row(3, None))
    snapshot = table.current_snapshot()
    leaf = SimpleNamespace(
        table=name,
        table_uuid=str(table.metadata.table_uuid),
        snapshot_id=snapshot.snapshot_id,
        parent_id=None,
        committed_ms=snapshot.timestamp_ms,
        schema_sha256=sha256(change_set.schema_json).hexdigest(),
        changes_root=change_set.root.hex(),
        changes_count=3,
        attested="lake",
    )
    verify_leaf(from_ipc(to_ipc(change_set)), leaf)
    with pytest.raises(Unverified):
        verify_leaf(replace(change_set, changes=change_set.changes.slice(1)), leaf)


def test_only_changed_rows_of_a_rewritten_file_are_changes(catalog, name):
    table = catalog.create_table(name, KEYED)
    table.append(rows(*(row(n, str(n)) for n in range(100))))
    table.delete(EqualTo("id", 50))
    assert lines(diff(table)) == [("DELETE", row(50, "50"), None)]
    kept = [row(n, "new" if n == 7 else str(n)) for n in range(100) if n != 50]
    table.overwrite(rows(*kept, row(200, "x")))
    # pyiceberg overwrites in two snapshots (delete, append); together they are the net below.
    since = table.snapshots()[1].snapshot_id
    net = [("UPDATE", row(7, "7"), row(7, "new")), *inserted(row(200, "x"))]
    assert lines(net_changes(table, since)) == net
    assert collapse(changes(table, since)).to_pylist() == net_changes(table, since).changes.to_pylist()


def test_a_rewrite_without_a_change_is_none_whatever_it_is_called(catalog, name):
    table = catalog.create_table(name, KEYED)
    for n in range(4):
        table.append(rows(row(n, "x"), row(n + 10, "y")))
    before = table.current_snapshot()
    with table.transaction() as tx:
        files = [task.file for task in table.scan().plan_files()]
        content = table.scan().to_arrow()
        with tx.update_snapshot().overwrite() as update:
            for file in files:
                update.delete_data_file(file)
            from pyiceberg.io.pyarrow import _dataframe_to_data_files

            for file in _dataframe_to_data_files(table.metadata, content, table.io):
                update.append_data_file(file)
    change_set = diff(table)
    assert table.current_snapshot().parent_snapshot_id == before.snapshot_id
    assert (len(change_set), change_set.count, change_set.root) == (0, 0, EMPTY_ROOT)


def test_schema_evolution_changes_no_row_by_itself(catalog, name):
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=True),
        NestedField(2, "v", StringType()),
        NestedField(3, "w", StringType()),
        identifier_field_ids=[1],
    )
    table = catalog.create_table(name, schema)
    table.append(rows(*({"id": n, "v": str(n), "w": "gone"} for n in range(5)), schema=schema))
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.rename_column("v", "text")
        update.delete_column("w")
        update.add_column("extra", DoubleType())
    with table.update_schema() as update:
        update.add_column("v", StringType())  # the old name, another column
    new = {"id": 5, "text": "5", "extra": None, "v": "new"}
    now = Schema(*table.schema().fields, identifier_field_ids=[1])
    table.append(pa.Table.from_pylist([new], schema=now.as_arrow()))
    assert lines(diff(table)) == inserted(new)
    table.delete(EqualTo("id", 3))  # rewrites a file of the old schema under the new one
    assert lines(diff(table)) == [("DELETE", {"id": 3, "text": "3", "extra": None, "v": None}, None)]
    first = next(iter(changes(table)))
    assert lines(first)[0] == ("INSERT", None, {"id": 0, "v": "0", "w": "gone"})


def test_without_a_key_equal_rows_are_counted(catalog, name):
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
    table = catalog.create_table(name, schema)
    table.append(rows(row(1, "a"), row(1, "a"), row(1, "b"), schema=schema))
    assert sorted(map(str, lines(diff(table)))) == sorted(map(str, inserted(row(1, "a"), row(1, "a"), row(1, "b"))))
    since = table.current_snapshot().snapshot_id
    table.overwrite(rows(row(1, "a"), row(1, "c"), schema=schema))
    net = lines(net_changes(table, since))
    expected = [("DELETE", row(1, "a"), None), ("DELETE", row(1, "b"), None), ("INSERT", None, row(1, "c"))]
    assert sorted(map(str, net)) == sorted(map(str, expected))


def test_only_files_that_changed_are_read(catalog, name, server):
    table = catalog.create_table(name, KEYED)
    for n in range(6):
        table.append(rows(row(n, "x")))
    mark = server.log.mark()
    diff(catalog.load_table(name))
    read = {r.path for r in server.log.since(mark, lambda r: r.path.endswith(".parquet"))}
    assert len(read) == 1


def test_files_that_only_moved_to_another_manifest_are_neither_read_nor_changed(catalog, name, server):
    by_value = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
    table = catalog.create_table(name, KEYED, partition_spec=by_value)
    table.append(rows(*(row(n, letter) for n, letter in enumerate("abcabc"))))  # three files, one manifest
    table.delete(EqualTo("id", 1))  # one file is rewritten, and a new manifest lists the other two
    table = catalog.load_table(name)
    mark = server.log.mark()
    assert lines(diff(table)) == [("DELETE", row(1, "b"), None)]
    read = {r.path for r in server.log.since(mark, lambda r: r.path.endswith(".parquet"))}
    assert len(read) == 2
    assert all("v=b" in path for path in read)


def test_an_expired_or_unknown_snapshot_is_not_found(catalog, name):
    table = catalog.create_table(name, KEYED)
    assert list(changes(table)) == []
    with pytest.raises(NotFound):
        diff(table)
    with pytest.raises(NotFound):
        list(changes(table, since=12345))


# catalog.tables as the writer, in every mode, against a model.


@pytest.mark.parametrize("mode", ["cow", "mor", "hybrid"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_commit_says_what_the_model_says(tables, name, mode, seed):
    choose = random.Random(seed)
    tables.create(name, {"id": "long", "v": "string"}, mode=mode, key=["id"])
    model: dict[int, str] = {}
    expected, ids, compactions = [], [], 0
    for step in range(14):
        before = dict(model)
        kind = choose.choice(["insert", "upsert", "upsert", "delete", "compact"]) if model else "insert"
        if kind == "insert":
            fresh = {n: f"i{step}" for n in choose.sample(range(100), 12) if n not in model}
            tables.insert(name, [row(n, v) for n, v in fresh.items()])
            model |= fresh
        elif kind == "upsert":
            some = {n: choose.choice([f"u{step}", before.get(n, "same")]) for n in choose.sample(range(100), 9)}
            tables.upsert(name, [row(n, v) for n, v in some.items()])
            model |= some
        elif kind == "delete":
            gone = choose.sample(sorted(model), min(4, len(model)))
            tables.delete(name, keys=[{"id": n} for n in gone])
            model = {n: v for n, v in model.items() if n not in gone}
        else:
            tables.compact(name)
        snapshot = tables.load(name).current_snapshot().snapshot_id
        if ids and snapshot == ids[-1]:
            assert before == model  # nothing to do, so nothing was committed
            continue
        ids.append(snapshot)
        compactions += kind == "compact"
        expected.append(model_changes(before, model))
    table = tables.load(name)
    assert [lines(change_set) for change_set in changes(table)] == expected
    assert lines(net_changes(table)) == inserted(*(row(n, model[n]) for n in sorted(model)))
    middle = len(ids) // 2
    assert collapse(changes(table, ids[middle])).to_pylist() == net_changes(table, ids[middle]).changes.to_pylist()


def model_changes(before, after):
    expected = []
    for n in sorted(before.keys() | after.keys()):
        if n not in after:
            expected.append(("DELETE", row(n, before[n]), None))
        elif n not in before:
            expected.append(("INSERT", None, row(n, after[n])))
        elif before[n] != after[n]:
            expected.append(("UPDATE", row(n, before[n]), row(n, after[n])))
    return expected


@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_a_rollback_is_a_step_back_that_brings_rows_again(tables, name, mode):
    tables.create(name, {"id": "long", "v": "string"}, mode=mode, key=["id"])
    tables.insert(name, [row(n, "a") for n in range(20)])
    first = tables.load(name).current_snapshot().snapshot_id
    tables.upsert(name, [row(3, "b"), row(99, "c")])
    tables.delete(name, keys=[{"id": 5}])
    last = tables.load(name).current_snapshot().snapshot_id
    tables.rollback(name, SnapshotId(first))
    tables.insert(name, [row(50, "d")])
    undone, then = changes(tables.load(name), since=last)
    assert lines(undone) == [
        ("UPDATE", row(3, "b"), row(3, "a")),
        ("INSERT", None, row(5, "a")),
        ("DELETE", row(99, "c"), None),
    ]
    assert lines(then) == inserted(row(50, "d"))


def test_merge_on_read_reads_only_the_row_groups_it_must(tables, name, server):
    properties = {"write.parquet.row-group-limit": "100"}
    tables.create(name, {"id": "long", "v": "string"}, mode="mor", key=["id"], properties=properties)
    tables.insert(name, [row(n, "a" * 50) for n in range(1000)])
    tables.delete(name, keys=[{"id": 500}])
    assert lines(diff(tables.load(name))) == [("DELETE", row(500, "a" * 50), None)]
