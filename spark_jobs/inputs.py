"""A step's inputs: their snapshots as this run has chosen them, what changed since the last run, and reading them.

The watermark is in the output: each commit's summary says which snapshots it was made from. So a commit and its
watermark are one thing, and a run that was killed anywhere goes on from the last commit that exists.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes import net_changes
from catalog.errors import NotFound
from catalog.lake import Lake
from catalog.pipeline.facts import Change, changed_columns
from catalog.pipeline.medallion import RULES_VERSION
from spark_jobs.settle import UNIT, settle

INPUTS, RULES = "strandline.inputs", "strandline.rules"
MOST_ROWS = 200_000
"""Rows in the files that came and went, beyond which a change is not looked at one row at a time."""

FEW_ROWS = 500
"""Changes that are mended however small their table is: starting Spark's tasks would cost more."""

Pinned = dict[str, int | None]
"""The input's name, as the layers spell it, and its snapshot; None: there is no such table, or nothing in it yet."""


class TooMuch(Exception):
    """More changed than is worth mending: the table is made anew. The message says why."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of one step. `names`: how the layers call a table -> how the catalog does."""

    lake: Lake
    names: Mapping[str, str]
    pinned: Pinned

    @classmethod
    def pin(cls, lake: Lake, names: Mapping[str, str]) -> Inputs:
        """Chooses each input's current snapshot; what is committed later is the next run's. Bronze is settled first."""
        pinned: Pinned = {}
        for name, table in names.items():
            try:
                loaded = lake.tables.load(table)
            except NotFound:
                pinned[name] = None
                continue
            if unit := loaded.properties.get(UNIT):
                pinned[name], _ = settle(lake, table, unit)
            else:
                found = loaded.current_snapshot()
                pinned[name] = found.snapshot_id if found else None
        return cls(lake, names, pinned)

    def changes(self, since: Mapping[str, int | None], most_share: float) -> dict[str, list[Change]]:
        """What changed in each input since the snapshots given. TooMuch if that is a large part, or unknowable."""
        return {name: self._changed(name, since.get(name), most_share) for name in self.names}

    def _changed(self, name: str, since: int | None, most_share: float) -> list[Change]:
        until = self.pinned[name]
        if since == until:
            return []
        if until is None:
            raise TooMuch(f"{name} is gone")
        table = self.lake.tables.load(self.names[name])
        if since is None:
            return self._all_new(name, _total(table.snapshot_by_id(until)))
        moved = moved_rows(table, since, until)
        if moved > MOST_ROWS:
            raise TooMuch(f"{moved} rows of {name} moved")
        found = net_changes(table, since, until)
        total = _total(table.snapshot_by_id(until))
        if len(found) > max(FEW_ROWS, most_share * total):
            raise TooMuch(f"{len(found)} of {total} rows of {name} changed")
        wanted = [column for column in changed_columns(name) if column in found.schema.names]
        sides = [_side(found.changes, side, wanted) for side in ("before", "after")]
        return list(zip(*sides, strict=True))

    def _all_new(self, name: str, total: int) -> list[Change]:
        """Every row of an input that had none before."""
        if total > FEW_ROWS:
            raise TooMuch(f"all {total} rows of {name} are new")
        return [(None, row) for row in self.rows(name, list(changed_columns(name)))]

    # catalog.pipeline.facts.Reader

    def rows(
        self, table: str, columns: Sequence[str], column: str | None = None, among: Collection[Any] = ()
    ) -> list[dict[str, Any]]:
        snapshot = self.pinned[table]
        if snapshot is None or (column is not None and not among):
            return []
        wanted = list(dict.fromkeys([*columns, *([column] if column else [])]))
        found = self.lake.tables.scan(self.names[table], columns=wanted, as_of=snapshot)
        if column is not None:
            found = found.filter(_among(found[column], among))
        rows: list[dict[str, Any]] = found.select(list(columns)).to_pylist()
        return rows


def watermark(table: Table) -> dict[str, int | None] | None:
    """The input snapshots of the newest commit of main that names them; None if there is none, or of other rules."""
    snapshot: Snapshot | None = table.current_snapshot()
    while snapshot is not None:
        said = snapshot.summary[INPUTS] if snapshot.summary else None
        if said is not None:
            assert snapshot.summary is not None
            if snapshot.summary[RULES] != RULES_VERSION:
                return None
            return {name: None if at is None else int(at) for name, at in json.loads(said).items()}
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None


def summary(pinned: Pinned, run_id: str) -> dict[str, str]:
    """What the output's commit says of where it came from."""
    said = {name: None if at is None else str(at) for name, at in sorted(pinned.items())}
    return {INPUTS: json.dumps(said), RULES: RULES_VERSION, "strandline.run": run_id}


def moved_rows(table: Table, since: int, until: int) -> int:
    """Rows of files that came or went between two snapshots, from the commits' summaries; TooMuch if unknowable."""
    moved, snapshot = 0, table.snapshot_by_id(until)
    if table.snapshot_by_id(since) is None:
        raise TooMuch(f"snapshot {since} has expired")
    while snapshot is not None and snapshot.snapshot_id != since:
        told = snapshot.summary
        moved += sum(int(told[name] or 0) for name in ("added-records", "deleted-records")) if told else 0
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if snapshot is None:
        raise TooMuch(f"snapshot {since} is not among the ancestors of {until}: the table was rolled back")
    return moved


def _total(snapshot: Snapshot | None) -> int:
    return int(snapshot.summary["total-records"] or 0) if snapshot and snapshot.summary else 0


def _side(changes: pa.Table, side: str, columns: Sequence[str]) -> list[dict[str, Any] | None]:
    column: Any = changes[side].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    empty = pc.is_null(column).to_pylist()
    values = {name: column.field(name).to_pylist() for name in columns}
    return [None if gone else {name: values[name][at] for name in columns} for at, gone in enumerate(empty)]


def _among(column: Any, values: Collection[Any]) -> Any:
    return pc.is_in(column, value_set=pa.array(list(values), column.type)).combine_chunks()
