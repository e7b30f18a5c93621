"""What every table promises, whatever its mode: one suite over copy-on-write, merge-on-read and hybrid."""

from __future__ import annotations

import datetime as dt
import hashlib
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table.snapshots import Operation

from catalog.errors import Conflict, Invalid, NotFound
from catalog.tables import modes
from catalog.tables.manager import Tables

COLUMNS = {"id": "long", "name": "string", "region": "string", "v": "double"}
NUMBERS = range(20)


@pytest.fixture(params=modes.MODES)
def mode(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    # Test files are tiny: without this hybrid would always rewrite them.
    monkeypatch.setattr(modes, "SMALL_BYTES", 0)
    return str(request.param)


@pytest.fixture
def tables(world: Any) -> Tables:
    return world.tables()


@pytest.fixture
def name(world: Any, tables: Tables, mode: str) -> str:
    made = world.name(mode)
    tables.create(made, COLUMNS, mode=mode, key=["id"])
    return made


def rows(*ids: int, tag: str = "n") -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{tag}{i}", "region": "eu" if i % 2 else "us", "v": i / 2} for i in ids]


def found(tables: Tables, name: str, **options: Any) -> dict[int, str]:
    table = tables.scan(name, **options)
    out = dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))
    assert len(out) == table.num_rows, "a key stands twice"
    return out


def test_what_is_inserted_is_read_back_by_anybody(world: Any, tables: Tables, name: str) -> None:
    receipt = tables.insert(name, rows(*NUMBERS))
    assert (receipt.rows, receipt.sequence, receipt.table) == (20, 1, name)
    assert tables.scan(name).sort_by("id").to_pylist() == rows(*NUMBERS)
    plain = world.plain(name)
    assert plain.scan().to_arrow().sort_by("id").to_pylist() == rows(*NUMBERS)
    assert plain.current_snapshot().snapshot_id == receipt.snapshot_id


def test_an_upsert_replaces_and_adds_in_one_snapshot(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(*range(10)))
    tables.insert(name, rows(*range(10, 20)))
    receipt = tables.upsert(name, rows(3, 15, 25, tag="u"))
    expected = {i: f"n{i}" for i in NUMBERS} | {i: f"u{i}" for i in (3, 15, 25)}
    assert found(tables, name) == expected
    assert receipt.matched == 2 and receipt.rows == 3
    plain = world.plain(name)
    assert len(plain.snapshots()) == 3
    assert plain.current_snapshot().summary.operation == Operation.OVERWRITE
    assert {r["id"]: r["name"] for r in plain.scan().to_arrow().to_pylist()} == expected


def test_keys_at_the_very_edge_of_a_files_statistics_are_found(tables: Tables, name: str) -> None:
    tables.insert(name, rows(*range(10)))
    tables.insert(name, rows(20))
    assert tables.upsert(name, rows(0, 9, 20, tag="u")).matched == 3
    assert found(tables, name) == {i: f"n{i}" for i in range(1, 9)} | {i: f"u{i}" for i in (0, 9, 20)}


def test_long_texts_with_the_same_beginning_are_told_apart(world: Any, tables: Tables, mode: str) -> None:
    """Statistics keep the first 16 characters only, and code points beyond 16 bits sort differently in UTF-16."""
    name = world.name("texts")
    tables.create(name, {"k": "string", "x": "long"}, mode=mode, key=["k"])
    keys = [f"{'a' * 30}{i}" for i in range(5)] + ["\uffff", "\U0001f600", ""]
    tables.insert(name, [{"k": key, "x": 0} for key in keys])
    assert tables.upsert(name, [{"k": key, "x": 1} for key in [*keys, "a" * 30]]).matched == len(keys)
    assert sorted(tables.scan(name)["x"].to_pylist()) == [1] * 9


def test_the_same_rows_touched_again_and_again_stay_one_row_each(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(*NUMBERS))
    for turn in range(6):
        tables.upsert(name, rows(turn, 19 - turn, 8, tag=f"t{turn}-"))
    expected = {i: f"n{i}" for i in NUMBERS}
    for turn in range(6):
        expected |= {i: f"t{turn}-{i}" for i in (turn, 19 - turn, 8)}
    assert found(tables, name) == expected
    described = tables.describe(name)
    assert described.rows == 20
    assert described.delete_files <= described.files, "a data file has at most one delete file of ours"


def test_totals_in_the_summary_agree_with_the_rows(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(*NUMBERS))
    tables.upsert(name, rows(1, 2, 30, tag="u"))
    tables.delete(name, "id in (7, 8)")
    tables.delete(name, "id = 9")
    summary = world.plain(name).current_snapshot().summary
    live = int(summary["total-records"]) - int(summary["total-position-deletes"])
    assert live == tables.scan(name).num_rows == tables.describe(name).rows == 18


def test_delete_by_filter_by_key_and_of_everything(tables: Tables, name: str) -> None:
    tables.insert(name, rows(*range(10)))
    tables.insert(name, rows(*range(10, 20)))
    assert tables.delete(name, "v >= 2 and v < 3").rows == 2
    assert tables.delete(name, keys=[{"id": 0}, {"id": 99}]).rows == 1
    assert sorted(found(tables, name)) == [i for i in NUMBERS if i not in (0, 4, 5)]
    assert tables.delete(name, "id >= 0").rows == 17
    assert found(tables, name) == {}
    tables.insert(name, rows(1))
    assert found(tables, name) == {1: "n1"}


def test_a_delete_that_matches_nothing_commits_nothing(tables: Tables, name: str) -> None:
    before = tables.insert(name, rows(1, 2)).snapshot_id
    receipt = tables.delete(name, "id = 77")
    assert receipt.rows == 0 and receipt.snapshot_id == before
    assert len(tables.history(name)) == 1


def test_nulls_survive_filters_and_deletes(tables: Tables, name: str) -> None:
    tables.insert(name, [{"id": 1}, {"id": 2, "name": "x"}, {"id": 3, "v": 1.0}])
    assert tables.delete(name, "name = 'x'").rows == 1
    assert tables.delete(name, "v is null").rows == 1
    assert tables.scan(name).to_pylist() == [{"id": 3, "name": None, "region": None, "v": 1.0}]


def test_time_travel_by_id_by_time_and_by_name(tables: Tables, name: str) -> None:
    first = tables.insert(name, rows(1))
    tables.snapshot(name, "monday")
    at = tables.history(name)[0].timestamp_ms
    tables.upsert(name, rows(1, 2, tag="u"))
    assert found(tables, name, as_of=first.snapshot_id) == {1: "n1"}
    assert found(tables, name, as_of="monday") == {1: "n1"}
    assert found(tables, name, as_of=at) == {1: "n1"}
    assert found(tables, name, as_of=dt.datetime.fromtimestamp(at / 1000, dt.UTC)) == {1: "n1"}
    assert found(tables, name, as_of=at + 10**9) == {1: "u1", 2: "u2"}
    for missing in (at - 10**9, "friday", 2**62):
        with pytest.raises(NotFound):
            tables.scan(name, as_of=missing)


def test_rollback_goes_back_and_the_next_write_goes_on_from_there(tables: Tables, name: str) -> None:
    first = tables.insert(name, rows(1))
    tables.upsert(name, rows(1, 2, tag="u"))
    tables.rollback(name, first.snapshot_id)
    assert found(tables, name) == {1: "n1"}
    tables.upsert(name, rows(2, tag="w"))
    assert found(tables, name) == {1: "n1", 2: "w2"}


def test_the_schema_evolves_and_old_rows_are_read_through_the_new_one(tables: Tables, name: str) -> None:
    first = tables.insert(name, rows(1, 2))
    tables.alter(name, add={"n": "int"}, rename={"name": "title"}, drop=["region"])
    tables.insert(name, [{"id": 3, "title": "c", "v": 1.0, "n": 7}])
    tables.alter(name, promote={"n": "long"})
    tables.upsert(name, [{"id": 1, "title": "u1", "n": 2**40}])
    assert tables.scan(name).sort_by("id").to_pylist() == [
        {"id": 1, "title": "u1", "v": None, "n": 2**40},
        {"id": 2, "title": "n2", "v": 1.0, "n": None},
        {"id": 3, "title": "c", "v": 1.0, "n": 7},
    ]
    assert tables.scan(name, as_of=first.snapshot_id, where="region = 'us'").to_pylist() == rows(2)
    tables.alter(name, add={"region": "string"})
    assert tables.scan(name)["region"].null_count == 3, "a dropped column does not come back with its values"


def test_a_renamed_or_promoted_key_still_finds_its_rows(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("keyed")
    tables.create(name, {"k": "int", "x": "string"}, mode=mode, key=["k"])
    tables.insert(name, [{"k": 1, "x": "a"}, {"k": 2, "x": "b"}])
    tables.alter(name, rename={"k": "key"}, promote={})
    tables.alter(name, promote={"key": "long"})
    tables.upsert(name, [{"key": 2, "x": "c"}, {"key": 2**40, "x": "d"}])
    assert sorted(tables.scan(name).to_pylist(), key=lambda r: r["key"]) == [
        {"key": 1, "x": "a"}, {"key": 2, "x": "c"}, {"key": 2**40, "x": "d"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"promote": {"v": "float"}},
        {"promote": {"name": "long"}},
        {"promote": {"id": "int"}},
        {"drop": ["id"]},
        {"drop": ["nothing"]},
        {"add": {"name": "string"}},
        {"add": {"x": "number"}},
        {"rename": {"name": "region"}},
        {"partition": ["month(name)"]},
        {"partition": ["bucket(0, id)"]},
        {"sort": ["nothing desc"]},
        {"mode": "fast"},
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(tables: Tables, name: str, change: dict[str, Any]) -> None:
    tables.insert(name, rows(1))
    before = tables.load(name).metadata_location
    with pytest.raises(Invalid):
        tables.alter(name, **change)
    assert tables.load(name).metadata_location == before


def test_a_key_set_later_keeps_its_column(tables: Tables, name: str) -> None:
    tables.insert(name, rows(1, 2))
    tables.alter(name, key=["name"])
    assert tables.upsert(name, [{"id": 7, "name": "n1"}]).matched == 1
    with pytest.raises(Invalid, match="in the key"):
        tables.alter(name, drop=["name"])


@pytest.mark.parametrize("partition", [["region"], ["bucket(4, id)"], ["truncate(2, name)", "bucket(3, id)"]])
def test_partitioned_tables_upsert_across_partitions(
    world: Any, tables: Tables, mode: str, partition: list[str]
) -> None:
    name = world.name("parted")
    tables.create(name, COLUMNS, mode=mode, key=["id"], partition=partition, sort=["v desc"])
    tables.insert(name, rows(*NUMBERS))
    moved = [dict(row, region="moved") for row in rows(3, 4, 30, tag="u")]
    tables.upsert(name, moved)
    tables.delete(name, "region = 'us' and id > 10")
    expected = {i: f"n{i}" for i in NUMBERS if not (i % 2 == 0 and i > 10)} | {i: f"u{i}" for i in (3, 4, 30)}
    assert found(tables, name) == expected
    assert {r["id"]: r["name"] for r in world.plain(name).scan().to_arrow().to_pylist()} == expected
    assert found(tables, name, where="region = 'moved'") == {i: f"u{i}" for i in (3, 4, 30)}


@pytest.mark.parametrize("unit", ["year", "month", "day", "hour"])
def test_time_partitions_agree_with_icebergs_own_pruning(world: Any, tables: Tables, mode: str, unit: str) -> None:
    name = world.name(unit)
    tables.create(name, {"id": "long", "ts": "timestamptz"}, mode=mode, key=["id"], partition=[f"{unit}(ts)"])
    stamps = [dt.datetime(1969, 12, 31, 23, 30, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
              dt.datetime(2024, 2, 29, 12, 1, tzinfo=dt.UTC), dt.datetime(2024, 3, 1, tzinfo=dt.UTC)]  # fmt: skip
    tables.insert(name, [{"id": i, "ts": stamp} for i, stamp in enumerate(stamps)])
    for i, stamp in enumerate(stamps):
        # The reader prunes by the partition values written here: were one wrong, the row would not be found.
        seen = world.plain(name).scan(f"ts = '{stamp.isoformat()}'").to_arrow()
        assert seen["id"].to_pylist() == [i]


def test_partitions_evolve_and_files_of_both_kinds_are_upserted(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(*range(6)))
    tables.alter(name, partition=["region"])
    tables.insert(name, rows(*range(6, 12)))
    tables.alter(name, partition=["bucket(2, id)"])
    tables.upsert(name, rows(1, 7, 20, tag="u"))
    tables.delete(name, "id in (2, 8)")
    expected = {i: f"n{i}" for i in range(12) if i not in (2, 8)} | {i: f"u{i}" for i in (1, 7, 20)}
    assert found(tables, name) == expected
    assert {r["id"]: r["name"] for r in world.plain(name).scan().to_arrow().to_pylist()} == expected


def test_a_composite_key_matches_on_all_its_columns(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("pair")
    tables.create(name, {"a": "string", "b": "date", "x": "long"}, mode=mode, key=["a", "b"])
    day = dt.date(2024, 1, 1)
    later = dt.date(2024, 1, 2)
    tables.insert(name, [{"a": "p", "b": day, "x": 1}, {"a": "p", "b": later, "x": 2}, {"a": "q", "b": day, "x": 3}])
    receipt = tables.upsert(name, [{"a": "p", "b": later, "x": 20}, {"a": "q", "b": later, "x": 40}])
    assert receipt.matched == 1
    assert sorted(r["x"] for r in tables.scan(name).to_pylist()) == [1, 3, 20, 40]


def test_sort_order_is_applied_on_write(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("sorted")
    tables.create(name, COLUMNS, mode=mode, key=["id"], sort=["v desc", "id"])
    tables.insert(name, [*rows(3, 1, 2), {"id": 9}])
    assert tables.scan(name)["id"].to_pylist() == [3, 2, 1, 9]


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
    before = found(tables, name)
    receipt = tables.compact(name)
    assert found(tables, name) == before
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
    tables.snapshot(name, "kept", as_of=first.snapshot_id)
    second = tables.upsert(name, rows(1, 2, tag="u"))
    tables.upsert(name, rows(1, 2, tag="w"))
    tables.insert(name, rows(50))
    tables.compact(name)
    now = found(tables, name)
    expired = tables.expire(name, older_than=10**14, keep=lambda s: s.snapshot_id == second.snapshot_id)
    assert len(expired.snapshots) == 2
    assert found(tables, name) == now
    assert found(tables, name, as_of="kept") == {i: f"n{i}" for i in range(10)}
    assert found(tables, name, as_of=second.snapshot_id)[1] == "u1"
    again = tables.expire(name, older_than=10**14)
    assert again.snapshots == (second.snapshot_id,)
    tables.drop_snapshot(name, "kept")
    tables.expire(name, older_than=10**14)
    assert found(tables, name) == now
    # What is left is what the one snapshot refers to, byte for byte of nothing else.
    plain = world.plain(name)
    snapshot = plain.current_snapshot()
    manifests = snapshot.manifests(plain.io)
    needed = {snapshot.manifest_list, *(m.manifest_path for m in manifests)}
    needed |= {e.data_file.file_path for m in manifests for e in m.fetch_manifest_entry(plain.io)}
    stored = {f"s3://{world.bucket}/{key}" for key in world.objects() if not key.endswith(".json")}
    assert stored == needed


def test_expiry_spares_a_file_whose_manifest_is_gone(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("shared")
    tables.create(name, COLUMNS, mode=mode, key=["id"], partition=["region"])
    tables.insert(name, rows(*range(10)))  # two files in one manifest
    tables.delete(name, "region = 'eu'")  # one of them goes, and the manifest with it
    tables.insert(name, rows(30))
    tables.expire(name, older_than=10**14)
    assert sorted(found(world.tables("fresh"), name)) == [0, 2, 4, 6, 8, 30]


def test_a_clone_lives_its_own_life(world: Any, tables: Tables, name: str) -> None:
    copy = world.name("copy")
    tables.insert(name, rows(*range(10)))
    tables.upsert(name, rows(1, tag="u"))
    mark = world.server.log.mark()
    tables.clone(name, copy)
    assert not [r for r in world.server.log.since(mark) if r.path.endswith(".parquet")], "no data is touched"
    both = found(tables, name)
    assert found(tables, copy) == both
    tables.upsert(copy, rows(2, 50, tag="c"))
    tables.upsert(name, rows(3, tag="s"))
    tables.compact(name)
    tables.expire(name, older_than=10**14)
    tables.expire(copy, older_than=10**14)
    assert found(tables, copy) == both | {2: "c2", 50: "c50"}
    assert found(tables, name) == both | {3: "s3"}
    with pytest.raises(Conflict):
        tables.drop(name, purge=True)
    tables.drop(copy, purge=True)
    assert found(tables, name) == both | {3: "s3"}
    tables.drop(name, purge=True)
    assert world.objects("tables/") == set()
    with pytest.raises(NotFound):
        tables.scan(name)


def test_drop_without_purge_keeps_the_files(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(1))
    tables.drop(name)
    assert name not in tables.list(world.database)
    assert any(key.endswith(".parquet") for key in world.objects())


def test_describe_tells_shape_size_and_statistics(tables: Tables, world: Any, mode: str) -> None:
    name = world.name("told")
    tables.create(name, COLUMNS, mode=mode, key=["id"], partition=["region"], sort=["v desc"])
    tables.insert(name, [*rows(*range(10)), {"id": 10, "v": None}])
    receipt = tables.upsert(name, rows(20, tag="u"))
    told = tables.describe(name)
    assert (told.mode, told.key, told.sort) == (mode, ("id",), ("v desc",))
    assert told.partition == ("identity(region)",)
    assert (told.rows, told.snapshots, told.snapshot_id) == (12, 2, receipt.snapshot_id)
    columns = {column.name: column for column in told.columns}
    assert (columns["id"].low, columns["id"].high, columns["id"].nulls, columns["id"].required) == (0, 20, 0, True)
    assert (columns["v"].low, columns["v"].high, columns["v"].nulls) == (0.0, 10.0, 1)
    assert tables.list(world.database) == [name]


def test_a_token_makes_a_repeated_request_a_no_op(tables: Tables, world: Any, name: str) -> None:
    first = tables.insert(name, rows(1), token="a")
    other = world.tables("other")
    for repeated in (tables.insert(name, rows(1), token="a"), other.insert(name, rows(1), token="a")):
        assert repeated.replayed and repeated.snapshot_id == first.snapshot_id and repeated.rows == 1
    assert found(tables, name) == {1: "n1"}
    upserted = tables.upsert(name, rows(1, 2, tag="u"), token="b")
    tables.upsert(name, rows(1, tag="w"))
    assert other.upsert(name, rows(1, 2, tag="u"), token="b").snapshot_id == upserted.snapshot_id
    deleted = tables.delete(name, "id = 2", token="c")
    tables.insert(name, rows(2, tag="z"))
    assert other.delete(name, "id = 2", token="c").rows == deleted.rows == 1
    nothing = tables.delete(name, "id = 77", token="d")
    tables.insert(name, rows(77))
    assert other.delete(name, "id = 77", token="d").snapshot_id == nothing.snapshot_id
    assert found(tables, name) == {1: "w1", 2: "z2", 77: "n77"}


def test_the_hook_hears_of_every_commit_and_every_object(world: Any, mode: str) -> None:
    heard: list[Any] = []
    tables = world.tables("hooked", hook=lambda table, snapshot, written: heard.append((table, snapshot, written)))
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


def test_rows_come_as_arrow_batches_dicts_or_iterators(tables: Tables, name: str) -> None:
    table = pa.Table.from_pylist(rows(1, 2))
    tables.insert(name, table)
    tables.insert(name, pa.Table.from_pylist(rows(3)).to_batches()[0])
    tables.insert(name, pa.Table.from_pylist(rows(4)).to_reader())
    tables.insert(name, iter(rows(5)))
    tables.upsert(name, (row for row in rows(5, 6, tag="u")))
    tables.insert(name, [])
    assert found(tables, name) == {i: f"n{i}" for i in range(1, 5)} | {5: "u5", 6: "u6"}


def test_bad_rows_are_refused_whole_before_a_byte_is_written(world: Any, tables: Tables, name: str) -> None:
    tables.insert(name, rows(1))
    mark = world.server.log.mark()
    for bad in ([*rows(2), {"id": None}], [*rows(2), {"id": "x"}], [*rows(2), {"id": 3, "more": 1}]):
        with pytest.raises(Invalid, match="row 1, column"):
            tables.insert(name, bad)
        with pytest.raises(Invalid, match="row 1, column"):
            tables.upsert(name, bad)
    with pytest.raises(Invalid, match="rows 0 and 2 have the same key"):
        tables.upsert(name, rows(5, 6, 5))
    assert not [r for r in world.server.log.since(mark) if r.method in ("PUT", "DELETE")]
    assert found(tables, name) == {1: "n1"}


def test_a_name_is_taken_once(tables: Tables, name: str) -> None:
    with pytest.raises(Conflict):
        tables.create(name, COLUMNS)
    tables.insert(name, rows(1))
    tables.snapshot(name, "s")
    tables.snapshot(name, "s")
    tables.insert(name, rows(2))
    with pytest.raises(Conflict):
        tables.snapshot(name, "s")
    for reserved in ("main", "tx-1", "clone-x"):
        with pytest.raises(Invalid):
            tables.snapshot(name, reserved)


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
