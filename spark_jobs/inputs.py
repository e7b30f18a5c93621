"""A step's inputs: the snapshots that this run reads, their changes since the last run, and their rows.

The watermark is in the output: the summary of each commit names the input snapshots it was computed from. So rows and
watermark are committed together, and a run after a crash continues from the last commit.
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

from catalog import Lake, NotFound
from catalog.changes import net_changes
from catalog.core.point_in_time import SnapshotId
from catalog.notes import RULES_VERSION, Change, changed_columns
from catalog.tables import UNIT_PROPERTY
from spark_jobs.deduplication import deduplicate

INPUTS, RULES = "strandline.inputs", "strandline.rules"
MAX_ROWS = 200_000
"""With more rows than this in added and removed files, changes are not compared row by row."""

FEW_ROWS = 500
"""Up to this many changes are applied row by row whatever the table's size: Spark's tasks would cost more."""

Pinned = dict[str, int | None]
"""Each input's name in catalog.notes, and its snapshot; None: the table does not exist, or has no snapshot."""


class TooManyChanges(Exception):
    """Too many changes to apply row by row: the table is computed again. The message gives the reason."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of one step. `names` maps a table's name in catalog.notes to its name in the catalog."""

    lake: Lake
    names: Mapping[str, str]
    pinned: Pinned

    @classmethod
    def pin(cls, lake: Lake, names: Mapping[str, str]) -> Inputs:
        """Pins each input's current snapshot; later commits are for the next run. Deduplicates bronze tables first."""
        pinned: Pinned = {}
        for name, table in names.items():
            try:
                loaded = lake.tables.load(table)
            except NotFound:
                pinned[name] = None
                continue
            if unit := loaded.properties.get(UNIT_PROPERTY):
                pinned[name], _ = deduplicate(lake, table, unit)
            else:
                snapshot = loaded.current_snapshot()
                pinned[name] = snapshot.snapshot_id if snapshot else None
        return cls(lake, names, pinned)

    def changes(self, since: Mapping[str, int | None], most_share: float) -> dict[str, list[Change]]:
        """Each input's changes since these snapshots. TooManyChanges if a large share changed, or it is unknown."""
        return {name: self._changed(name, since.get(name), most_share) for name in self.names}

    def _changed(self, name: str, since: int | None, most_share: float) -> list[Change]:
        until = self.pinned[name]
        if since == until:
            return []
        if until is None:
            raise TooManyChanges(f"{name} no longer exists")
        table = self.lake.tables.load(self.names[name])
        if since is None:
            return self._all_new(name, _total(table.snapshot_by_id(until)))
        moved = moved_rows(table, since, until)
        if moved > MAX_ROWS:
            raise TooManyChanges(f"{moved} rows of {name} are in added or removed files")
        net = net_changes(table, since, until)
        total = _total(table.snapshot_by_id(until))
        if len(net) > max(FEW_ROWS, most_share * total):
            raise TooManyChanges(f"{len(net)} of {total} rows of {name} changed")
        columns = [column for column in changed_columns(name) if column in net.schema.names]
        sides = [_side(net.changes, side, columns) for side in ("before", "after")]
        return list(zip(*sides, strict=True))

    def _all_new(self, name: str, total: int) -> list[Change]:
        """All rows of an input that had none before, as inserts."""
        if total > FEW_ROWS:
            raise TooManyChanges(f"all {total} rows of {name} are new")
        return [(None, row) for row in self.rows(name, list(changed_columns(name)))]

    def rows(
        self, table: str, columns: Sequence[str], column: str | None = None, among: Collection[Any] = ()
    ) -> list[dict[str, Any]]:
        """Implements catalog.notes.facts.InputTables: rows of an input, optionally those with a column among values."""
        snapshot = self.pinned[table]
        if snapshot is None or (column is not None and not among):
            return []
        read_columns = list(dict.fromkeys([*columns, *([column] if column else [])]))
        scanned = self.lake.tables.scan(self.names[table], columns=read_columns, as_of=SnapshotId(snapshot))
        if column is not None:
            scanned = scanned.filter(_among(scanned[column], among))
        rows: list[dict[str, Any]] = scanned.select(list(columns)).to_pylist()
        return rows


def watermark(table: Table) -> dict[str, int | None] | None:
    """The input snapshots in main's newest commit that names them; None if there is none, or its rules are others."""
    snapshot: Snapshot | None = table.current_snapshot()
    while snapshot is not None:
        inputs = snapshot.summary[INPUTS] if snapshot.summary else None
        if inputs is not None:
            assert snapshot.summary is not None
            if snapshot.summary[RULES] != RULES_VERSION:
                return None
            return {name: None if at is None else int(at) for name, at in json.loads(inputs).items()}
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None


def input_summary(pinned: Pinned, run_id: str) -> dict[str, str]:
    """The summary properties of the output's commit: its inputs, the version of the rules, and the run."""
    inputs = {name: None if at is None else str(at) for name, at in sorted(pinned.items())}
    return {INPUTS: json.dumps(inputs), RULES: RULES_VERSION, "strandline.run": run_id}


def moved_rows(table: Table, since: int, until: int) -> int:
    """Rows in files added or removed between two snapshots, from the commits' summaries.

    TooManyChanges if `since` has expired or is no ancestor of `until`.
    """
    moved, snapshot = 0, table.snapshot_by_id(until)
    if table.snapshot_by_id(since) is None:
        raise TooManyChanges(f"snapshot {since} has expired")
    while snapshot is not None and snapshot.snapshot_id != since:
        counts = snapshot.summary
        moved += sum(int(counts[name] or 0) for name in ("added-records", "deleted-records")) if counts else 0
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if snapshot is None:
        raise TooManyChanges(f"snapshot {since} is no ancestor of {until}: the table was rolled back")
    return moved


def _total(snapshot: Snapshot | None) -> int:
    return int(snapshot.summary["total-records"] or 0) if snapshot and snapshot.summary else 0


def _side(changes: pa.Table, side: str, columns: Sequence[str]) -> list[dict[str, Any] | None]:
    column: Any = changes[side].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    nulls = pc.is_null(column).to_pylist()
    values = {name: column.field(name).to_pylist() for name in columns}
    return [None if null else {name: values[name][row] for name in columns} for row, null in enumerate(nulls)]


def _among(column: Any, values: Collection[Any]) -> Any:
    return pc.is_in(column, value_set=pa.array(list(values), column.type)).combine_chunks()
