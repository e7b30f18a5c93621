"""Files of a table: which are written, rewritten, compacted, expired and dropped, and which never are."""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetLocationUpdate

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.point_in_time import SnapshotId
from catalog.tables.manager import Tables
from catalog.tables.planner import UNIT_PROPERTY
from tests.worlds.table_rows import COLUMNS, NUMBERS, names_by_id, rows


def test_position_deletes_are_written_to_the_letter_of_the_specification(world: Any, tables: Tables) -> None:
    name = world.name("letter")
    tables.create(name, COLUMNS, mode="mor", key=["id"])
    tables.insert(name, rows(*NUMBERS))
    tables.upsert(name, rows(4, 2, tag="u"))
    plain = world.plain(name)
    entries = [
        e
        for m in plain.current_snapshot().manifests(plain.io)
        if m.content == 1
        for e in m.fetch_manifest_entry(plain.io)
    ]
    (entry,) = entries
    file = entry.data_file
    assert file.content == 1 and file.record_count == 2 and entry.sequence_number == 2
    data = next(t.file for t in plain.scan().plan_files() if t.file.record_count == 20)
    assert file.lower_bounds[2147483546] == file.upper_bounds[2147483546] == data.file_path.encode()
    with plain.io.new_input(file.file_path).open() as stream:
        stored = pq.read_table(stream)
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in stored.schema]
    assert ids == [2147483546, 2147483545]
    assert [str(field.type) for field in stored.schema] == ["string", "int64"]
    assert not any(field.nullable for field in stored.schema)
    assert stored.to_pylist() == [{"file_path": data.file_path, "pos": 2}, {"file_path": data.file_path, "pos": 4}]
    assert int(plain.current_snapshot().summary["added-position-deletes"]) == 2


def test_cow_rewrites_only_files_with_a_touched_key(tables: Tables, world: Any) -> None:
    name = world.name("only")
    tables.create(name, COLUMNS, mode="cow", key=["id"])
    for start in (0, 10, 20):
        tables.insert(name, rows(*range(start, start + 10)))
    before = {t.file.file_path for t in world.plain(name).scan().plan_files()}
    mark = world.server.log.mark()
    tables.upsert(name, rows(12, tag="u"))
    gets = [r.path for r in world.server.log.since(mark) if r.method == "GET"]
    after = {t.file.file_path for t in world.plain(name).scan().plan_files()}
    assert len(before & after) == 2 and len(after) == 3
    assert {path.rpartition("/")[2] for path in gets} == {path.rpartition("/")[2] for path in before - after}


def test_compaction_changes_no_row_and_leaves_no_deletes(world: Any, tables: Tables, name: str) -> None:
    for start in range(0, 20, 4):
        tables.insert(name, rows(*range(start, start + 4)))
    tables.upsert(name, rows(1, 5, 9, tag="u"))
    before = names_by_id(tables, name)
    receipt = tables.compact(name)
    assert names_by_id(tables, name) == before
    described = tables.describe(name)
    assert (described.files, described.pending_deletes, described.delete_files, described.rows) == (1, 0, 0, 20)
    assert world.plain(name).current_snapshot().summary.operation == Operation.REPLACE
    assert receipt.mode == "compact"


def test_many_deletes_ask_for_a_compaction(world: Any, tables: Tables) -> None:
    name = world.name("piling")
    tables.create(name, COLUMNS, mode="mor", key=["id"])
    tables.insert(name, rows(*NUMBERS))
    assert tables.describe(name).needs_compaction is None
    tables.delete(name, "id < 5")
    assert "25%" in (tables.describe(name).needs_compaction or "")
    assert "25%" in tables.load(name).current_snapshot().summary["strandline.compaction"]
    tables.compact(name)
    assert tables.describe(name).needs_compaction is None


def test_expiry_deletes_exactly_what_no_remaining_snapshot_needs(world: Any, tables: Tables, name: str) -> None:
    first = tables.insert(name, rows(*range(10)))
    tables.snapshot(name, "kept", as_of=SnapshotId(first.snapshot_id))
    second = tables.upsert(name, rows(1, 2, tag="u"))
    tables.upsert(name, rows(1, 2, tag="w"))
    tables.insert(name, rows(50))
    tables.compact(name)
    now = names_by_id(tables, name)
    expired = tables.expire(name, older_than=10**14, keep=lambda s: s.snapshot_id == second.snapshot_id)
    assert len(expired.snapshots) == 2
    assert names_by_id(tables, name) == now
    assert names_by_id(tables, name, as_of="kept") == {i: f"n{i}" for i in range(10)}
    assert names_by_id(tables, name, as_of=SnapshotId(second.snapshot_id))[1] == "u1"
    again = tables.expire(name, older_than=10**14)
    assert again.snapshots == (second.snapshot_id,)
    tables.drop_snapshot(name, "kept")
    tables.expire(name, older_than=10**14)
    assert names_by_id(tables, name) == now
    # What is left is what the one snapshot refers to, byte for byte of nothing else.
    plain = world.plain(name)
    snapshot = plain.current_snapshot()
    manifests = snapshot.manifests(plain.io)
    needed = {snapshot.manifest_list, *(m.manifest_path for m in manifests)}
    needed |= {e.data_file.file_path for m in manifests for e in m.fetch_manifest_entry(plain.io)}
    stored = {f"s3://{world.bucket}/{key}" for key in world.object_keys() if not key.endswith(".json")}
    assert stored == needed


def test_expiry_spares_a_file_whose_manifest_is_gone(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("shared")
    tables.create(name, COLUMNS, mode=mode, key=["id"], partition=["region"])
    tables.insert(name, rows(*range(10)))  # two files in one manifest
    tables.delete(name, "region = 'eu'")  # one of them goes, and the manifest with it
    tables.insert(name, rows(30))
    tables.expire(name, older_than=10**14)
    assert sorted(names_by_id(world.tables("fresh"), name)) == [0, 2, 4, 6, 8, 30]


def test_a_clone_lives_its_own_life(world: Any, tables: Tables, name: str) -> None:
    copy = world.name("copy")
    tables.insert(name, rows(*range(10)))
    tables.upsert(name, rows(1, tag="u"))
    mark = world.server.log.mark()
    tables.clone(name, copy)
    assert not [r for r in world.server.log.since(mark) if r.path.endswith(".parquet")], "no data is touched"
    both = names_by_id(tables, name)
    assert names_by_id(tables, copy) == both
    tables.upsert(copy, rows(2, 50, tag="c"))
    tables.upsert(name, rows(3, tag="s"))
    tables.compact(name)
    tables.expire(name, older_than=10**14)
    tables.expire(copy, older_than=10**14)
    assert names_by_id(tables, copy) == both | {2: "c2", 50: "c50"}
    assert names_by_id(tables, name) == both | {3: "s3"}
    with pytest.raises(Conflict):
        tables.drop(name, purge=True)
    tables.drop(copy, purge=True)
    assert names_by_id(tables, name) == both | {3: "s3"}
    tables.drop(name, purge=True)
    assert world.object_keys("tables/") == set()
    with pytest.raises(NotFound):
        tables.scan(name)


def test_a_purge_does_not_delete_the_files_of_a_table_in_the_same_folder(world: Any, tables: Tables, name: str) -> None:
    """A renamed table keeps its folder, and a new one of the old name gets the same."""
    renamed = f"{name}_before"
    tables.insert(name, rows(1))
    tables.table_store.catalog.rename_table(name, renamed)
    tables.table_store.forget(name)
    before = names_by_id(tables, renamed)
    tables.create(name, {"id": "long", "name": "string"})
    with pytest.raises(Conflict, match="also the folder of"):
        tables.drop(name, purge=True)
    planned = tables.plan_drop(name)
    tables.drop(name)
    with pytest.raises(Conflict, match="also the folder of"):
        tables.finish_drop(planned, purge=True)  # as a repeated request would
    assert names_by_id(tables, renamed) == before


def test_a_purge_deletes_nothing_of_a_folder_that_holds_tables(world: Any, tables: Tables, name: str) -> None:
    """Whoever may write a table may also set its location."""
    other = f"{name}_other"
    tables.create(other, {"id": "long"})
    tables.insert(other, [{"id": 1}])
    folder = tables.load(other).location().rpartition("/")[0]
    with tables.load(name).transaction() as transaction:
        transaction._apply((SetLocationUpdate(location=folder),))
    tables.table_store.forget(name)
    with pytest.raises(Conflict, match="also the folder of"):
        tables.drop(name, purge=True)
    assert tables.scan(other).num_rows == 1


def test_drop_without_purge_keeps_the_files(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(1))
    tables.drop(name)
    assert name not in tables.list(world.namespace)
    assert any(key.endswith(".parquet") for key in world.object_keys())


def test_the_hook_hears_of_every_commit_and_every_object(world: Any, mode: str) -> None:
    heard: list[Any] = []
    tables = world.tables("hooked", on_commit=lambda table, snapshot, written: heard.append((table, snapshot, written)))
    name = world.name("heard")
    tables.create(name, COLUMNS, mode=mode, key=["id"])
    tables.insert(name, rows(1, 2))
    tables.upsert(name, rows(2, tag="u"))
    tables.snapshot(name, "s")
    kinds = [snapshot and snapshot.summary.operation.value for _, snapshot, _ in heard]
    assert kinds == [None, "append", "overwrite", None]
    client = world.server.endpoint.client("s3", "person")
    for table, snapshot, written in heard[1:3]:
        assert snapshot.manifest_list in {w.path for w in written}
        io = table.io
        added = {m.manifest_path for m in snapshot.manifests(io) if m.added_snapshot_id == snapshot.snapshot_id}
        assert added <= {w.path for w in written}
        for path, length, digest in written:
            body = client.get_object(Bucket=world.bucket, Key=path.split("/", 3)[3])["Body"].read()
            assert (len(body), hashlib.sha256(body).hexdigest()) == (length, digest)


def test_nothing_touches_the_local_disk(world: Any, tables: Tables, name: str) -> None:
    opened: list[str] = []
    watching = True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if watching and event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
            opened.append(str(args[0]))

    sys.addaudithook(watch)  # a hook cannot be taken off again: it is told to look away
    tables.insert(name, rows(*NUMBERS))
    tables.upsert(name, rows(1, 2, tag="u"))
    tables.delete(name, "id = 3")
    tables.compact(name)
    tables.expire(name, older_than=10**14)
    assert tables.scan(name).num_rows == 19
    watching = False
    assert opened == []


def test_rows_of_one_unit_are_not_merged_in_process_where_their_order_would_be_lost(world: Any, tables: Tables) -> None:
    name = world.name("units")
    tables.create(name, COLUMNS, properties={UNIT_PROPERTY: "id"})
    for tag in ("old", "new"):
        tables.insert(name, rows(1, tag=tag))
    with pytest.raises(Invalid, match="strandline job run compact"):
        tables.compact(name)
