"""What every table promises of its rows, whatever its mode: one suite over copy-on-write, merge-on-read and hybrid."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation

from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.core.point_in_time import SnapshotId
from catalog.tables.manager import Tables
from tests.worlds.table_rows import COLUMNS, NUMBERS, names_by_id, rows


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
    assert names_by_id(tables, name) == expected
    assert receipt.matched == 2 and receipt.rows == 3
    plain = world.plain(name)
    assert len(plain.snapshots()) == 3
    assert plain.current_snapshot().summary.operation == Operation.OVERWRITE
    assert {r["id"]: r["name"] for r in plain.scan().to_arrow().to_pylist()} == expected


def test_keys_at_the_very_edge_of_a_files_statistics_are_found(tables: Tables, name: str) -> None:
    tables.insert(name, rows(*range(10)))
    tables.insert(name, rows(20))
    assert tables.upsert(name, rows(0, 9, 20, tag="u")).matched == 3
    assert names_by_id(tables, name) == {i: f"n{i}" for i in range(1, 9)} | {i: f"u{i}" for i in (0, 9, 20)}


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
    assert names_by_id(tables, name) == expected
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
    assert sorted(names_by_id(tables, name)) == [i for i in NUMBERS if i not in (0, 4, 5)]
    assert tables.delete(name, "id >= 0").rows == 17
    assert names_by_id(tables, name) == {}
    tables.insert(name, rows(1))
    assert names_by_id(tables, name) == {1: "n1"}


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
    assert names_by_id(tables, name, as_of=SnapshotId(first.snapshot_id)) == {1: "n1"}
    assert names_by_id(tables, name, as_of="monday") == {1: "n1"}
    then, later = dt.datetime.fromtimestamp(at / 1000, dt.UTC), dt.timedelta(days=11)
    assert names_by_id(tables, name, as_of=then) == names_by_id(tables, name, as_of=then.isoformat()) == {1: "n1"}
    assert names_by_id(tables, name, as_of=then + later) == {1: "u1", 2: "u2"}
    for missing in (then - later, "friday", SnapshotId(2**62), 0):
        with pytest.raises(NotFound):
            tables.scan(name, as_of=missing)
    for unclear in (first.snapshot_id, at, str(at), dt.datetime(2026, 3, 1)):
        with pytest.raises(Invalid):
            tables.scan(name, as_of=unclear)
    for tag in ("42", "2026-03-01", "snapshot:7", "@42"):
        with pytest.raises(Invalid):
            tables.snapshot(name, tag)


def test_rollback_goes_back_and_the_next_write_goes_on_from_there(tables: Tables, name: str) -> None:
    first = tables.insert(name, rows(1))
    tables.upsert(name, rows(1, 2, tag="u"))
    tables.rollback(name, SnapshotId(first.snapshot_id))
    assert names_by_id(tables, name) == {1: "n1"}
    tables.upsert(name, rows(2, tag="w"))
    assert names_by_id(tables, name) == {1: "n1", 2: "w2"}


def test_a_composite_key_matches_on_all_its_columns(world: Any, tables: Tables, mode: str) -> None:
    name = world.name("pair")
    tables.create(name, {"a": "string", "b": "date", "x": "long"}, mode=mode, key=["a", "b"])
    day = dt.date(2024, 1, 1)
    later = dt.date(2024, 1, 2)
    tables.insert(name, [{"a": "p", "b": day, "x": 1}, {"a": "p", "b": later, "x": 2}, {"a": "q", "b": day, "x": 3}])
    receipt = tables.upsert(name, [{"a": "p", "b": later, "x": 20}, {"a": "q", "b": later, "x": 40}])
    assert receipt.matched == 1
    assert sorted(r["x"] for r in tables.scan(name).to_pylist()) == [1, 3, 20, 40]


def test_a_token_makes_a_repeated_request_a_no_op(tables: Tables, world: Any, name: str) -> None:
    first = tables.insert(name, rows(1), token="a")
    other = world.tables("other")
    for repeated in (tables.insert(name, rows(1), token="a"), other.insert(name, rows(1), token="a")):
        assert repeated.replayed and repeated.snapshot_id == first.snapshot_id and repeated.rows == 1
    assert names_by_id(tables, name) == {1: "n1"}
    upserted = tables.upsert(name, rows(1, 2, tag="u"), token="b")
    tables.upsert(name, rows(1, tag="w"))
    assert other.upsert(name, rows(1, 2, tag="u"), token="b").snapshot_id == upserted.snapshot_id
    deleted = tables.delete(name, "id = 2", token="c")
    tables.insert(name, rows(2, tag="z"))
    assert other.delete(name, "id = 2", token="c").rows == deleted.rows == 1
    nothing = tables.delete(name, "id = 77", token="d")
    tables.insert(name, rows(77))
    assert other.delete(name, "id = 77", token="d").snapshot_id == nothing.snapshot_id
    assert names_by_id(tables, name) == {1: "w1", 2: "z2", 77: "n77"}


def test_rows_come_as_arrow_batches_dicts_or_iterators(tables: Tables, name: str) -> None:
    table = pa.Table.from_pylist(rows(1, 2))
    tables.insert(name, table)
    tables.insert(name, pa.Table.from_pylist(rows(3)).to_batches()[0])
    tables.insert(name, pa.Table.from_pylist(rows(4)).to_reader())
    tables.insert(name, iter(rows(5)))
    tables.upsert(name, (row for row in rows(5, 6, tag="u")))
    tables.insert(name, [])
    assert names_by_id(tables, name) == {i: f"n{i}" for i in range(1, 5)} | {5: "u5", 6: "u6"}


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
    assert names_by_id(tables, name) == {1: "n1"}


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


def test_names_that_parquet_escapes_keep_their_values_at_any_depth(world: Any, tables: Tables) -> None:
    name = world.name("escaped")
    inner = pa.struct([("a b", pa.int64()), ("1st", pa.list_(pa.struct([("x.y", pa.string())])))])
    schema = pa.schema(
        [("id", pa.int64()), ("top level", pa.string()), ("s", inner), ("m", pa.map_(pa.string(), inner))]
    )
    value = {"a b": 5, "1st": [{"x.y": "deep"}]}
    row = {"id": 1, "top level": "t", "s": value, "m": [("k", value)]}
    tables.create(name, schema, key=["id"])
    tables.insert(name, pa.Table.from_pylist([row], schema=schema))
    assert tables.scan(name).to_pylist() == [row]
    tables.upsert(name, pa.Table.from_pylist([row | {"id": 2}], schema=schema))
    assert sorted(tables.scan(name).to_pylist(), key=lambda each: each["id"]) == [row, row | {"id": 2}]
