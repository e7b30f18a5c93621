"""A table against a dict: random histories of writes, schema changes, time travel, rollback and feeds must agree.

The model knows nothing of files: a row is what a dict holds under its key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from catalog.changes.comparison import between, find_snapshot
from catalog.changes.snapshot_changes import steps
from catalog.core.point_in_time import SnapshotId
from catalog.tables import write_modes
from catalog.tables.manager import Tables

KEYS = st.integers(min_value=0, max_value=15)
VALUES = st.one_of(st.none(), st.integers(min_value=-5, max_value=5))
ROWS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=6)
PARTITIONS = st.sampled_from([[], ["bucket(2, id)"], ["part"]])

Model = dict[int, dict[str, Any]]


class TableMachine(RuleBasedStateMachine):
    """`rows` is what the table must hold now, `past` what it held by snapshot, `today` that under today's schema."""

    open_tables: Callable[[], tuple[Tables, str]]
    mode: Any

    @initialize(partition=PARTITIONS)
    def create(self, partition: list[str]) -> None:
        self.tables, self.name = type(self).open_tables()
        self.tables.create(
            self.name, {"id": "long", "part": "int", "x": "int"}, mode=self.mode, key=["id"], partition=partition
        )
        self.rows: Model = {}
        self.past: dict[int, Model] = {}
        self.today: dict[int, Model] = {}
        self.column, self.changes = "x", 0

    def _row(self, key: int, value: int | None) -> dict[str, Any]:
        return {"id": key, "part": key % 3, self.column: value}

    def _saw(self, snapshot_id: int | None) -> None:
        assert self._scan() == self.rows
        if snapshot_id is not None:
            # A write that changes nothing answers with the snapshot that stands, and that one keeps its own schema.
            self.past.setdefault(snapshot_id, {key: dict(row) for key, row in self.rows.items()})
            self.today.setdefault(snapshot_id, {key: dict(row) for key, row in self.rows.items()})

    def _scan(self, as_of: int | None = None) -> Model:
        rows = self.tables.scan(self.name, as_of=None if as_of is None else SnapshotId(as_of)).to_pylist()
        assert len({row["id"] for row in rows}) == len(rows), "a key stands twice"
        return {row["id"]: row for row in rows}

    @rule(new=ROWS)
    def insert(self, new: dict[int, Any]) -> None:
        fresh = {key: value for key, value in new.items() if key not in self.rows}
        if fresh:
            receipt = self.tables.insert(self.name, [self._row(k, v) for k, v in fresh.items()])
            self.rows |= {k: self._full(self._row(k, v)) for k, v in fresh.items()}
            self._saw(receipt.snapshot_id)

    @rule(new=ROWS)
    def upsert(self, new: dict[int, Any]) -> None:
        receipt = self.tables.upsert(self.name, [self._row(k, v) for k, v in new.items()])
        assert receipt.matched == len(self.rows.keys() & new.keys())
        self.rows |= {k: self._full(self._row(k, v)) for k, v in new.items()}
        self._saw(receipt.snapshot_id)

    @rule(bound=st.integers(min_value=-5, max_value=5))
    def delete_by_value(self, bound: int) -> None:
        gone = {k for k, row in self.rows.items() if row[self.column] is not None and row[self.column] < bound}
        receipt = self.tables.delete(self.name, f"{self.column} < {bound}")
        assert receipt.rows == len(gone)
        self.rows = {k: row for k, row in self.rows.items() if k not in gone}
        self._saw(receipt.snapshot_id)

    @rule(keys=st.sets(KEYS, min_size=1, max_size=4))
    def delete_by_key(self, keys: set[int]) -> None:
        receipt = self.tables.delete(self.name, keys=[{"id": key} for key in keys])
        assert receipt.rows == len(keys & self.rows.keys())
        self.rows = {k: row for k, row in self.rows.items() if k not in keys}
        self._saw(receipt.snapshot_id)

    @rule()
    def compact(self) -> None:
        self._saw(self.tables.compact(self.name).snapshot_id)

    @precondition(lambda self: self.changes < 4)
    @rule(kind=st.sampled_from(["rename", "promote", "replace"]))
    def change_schema(self, kind: str) -> None:
        self.changes += 1
        new = f"x{self.changes}"
        if kind == "promote":
            self.tables.alter(self.name, promote={self.column: "long"})
            return
        old = self.column
        if kind == "rename":
            self.tables.alter(self.name, rename={old: new})
        else:
            self.tables.alter(self.name, drop=[old], add={new: "int"})

        def reshaped(rows: Model) -> Model:
            return {k: {**_without(row, old), new: row[old] if kind == "rename" else None} for k, row in rows.items()}

        self.rows = reshaped(self.rows)
        self.today = {snapshot_id: reshaped(rows) for snapshot_id, rows in self.today.items()}
        self.column = new
        assert self._scan() == self.rows

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def travel(self, data: Any) -> None:
        snapshot_id = data.draw(st.sampled_from(list(self.past)))
        assert self._scan(as_of=snapshot_id) == self.past[snapshot_id]

    @precondition(lambda self: self.past)
    @rule(data=st.data(), net=st.booleans())
    def follow(self, data: Any, net: bool) -> None:
        """The changes since any snapshot, step by step or at once, lead from what it held to what is there now."""
        snapshot_id = data.draw(st.sampled_from(list(self.past)))
        rows = {key: dict(row) for key, row in self.today[snapshot_id].items()}
        table = self.tables.load(self.name)
        way = [(step.since, step.until) for step in steps(table, snapshot_id)]
        if net:
            way = [(find_snapshot(table, snapshot_id), find_snapshot(table))]
        for since, until in way:
            for change in between(table, since, until, schema=table.schema()).changes.to_pylist():
                key = (change["before"] or change["after"])["id"]
                assert rows.pop(key, None) == change["before"], change
                if change["after"] is not None:
                    rows[key] = change["after"]
        assert rows == self.rows

    @precondition(lambda self: self.past and not self.changes)
    @rule(data=st.data())
    def roll_back(self, data: Any) -> None:
        snapshot_id = data.draw(st.sampled_from(list(self.past)))
        self.tables.rollback(self.name, SnapshotId(snapshot_id))
        self.rows = {key: dict(row) for key, row in self.past[snapshot_id].items()}
        assert self._scan() == self.rows

    def _full(self, row: dict[str, Any]) -> dict[str, Any]:
        return row

    def teardown(self) -> None:
        if hasattr(self, "rows"):
            described = self.tables.describe(self.name)
            assert described.rows == len(self.rows)


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


@pytest.mark.parametrize("mode", write_modes.MODES)
def test_any_history_agrees_with_the_model(world: Any, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_modes, "SMALL_BYTES", 0)
    monkeypatch.setattr(write_modes, "LARGE_SHARE", 0.5)  # so that hybrid does both in tables this small
    tables, count = world.tables(), iter(range(10**6))

    class Machine(TableMachine):
        open_tables = staticmethod(lambda: (tables, world.name(f"m{next(count)}")))

    Machine.mode = mode
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=8, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
