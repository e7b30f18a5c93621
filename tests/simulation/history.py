"""The reference model: what the catalog's commits say happened, and the tables as dicts after each of them.

It sees every successful compare-and-swap at its moment, so it knows the order in which writes took effect, whoever
was told of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.s3 import Bucket
from tests.simulation.workload import Op

Rows = tuple[tuple[int, str], ...]
"""(id, v) of every row, sorted; a row that is there twice is in it twice."""
TOKEN, TRANSACTION = "strandline.token", "strandline.transaction"


class Violation(AssertionError):
    """The lake broke a promise."""


@dataclass
class State:
    """A table after one snapshot of main."""

    at: float
    snapshot_id: int | None
    rows: Rows
    ops: tuple[int, ...] = ()
    transaction: str | None = None


@dataclass
class History:
    """`ops`: what the workload asked for, by id. `token_of`: the commit token of an op."""

    bucket: Bucket
    ops: dict[int, Op]
    now: Callable[[], float]
    tokens: dict[str, int] = field(default_factory=dict)
    """Commit token -> op."""
    states: dict[str, list[State]] = field(default_factory=dict)
    applied: Counter[tuple[int, str]] = field(default_factory=Counter)
    """(op, table) -> how often it took effect."""
    transactions: dict[str, int] = field(default_factory=dict)
    """Transaction id -> op."""
    violations: list[str] = field(default_factory=list)
    snapshots: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)

    def on_commit(self, name: str, entry: dict[str, Any]) -> None:
        """A table's entry in Glue was created or replaced."""
        location = entry["Parameters"]["metadata_location"]
        stored = self.bucket.objects.get(location.split("/", 3)[3])
        if stored is None:
            self.violations.append(f"{name}: the catalog points to {location}, which does not exist")
            return
        metadata = json.loads(stored.body)
        known = self.snapshots.setdefault(name, {})
        known |= {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", [])}
        schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
        self.columns[name] = [column["name"] for column in schema["fields"]]
        states = self.states.setdefault(name, [State(self.now(), None, ())])
        current = metadata.get("current-snapshot-id")
        current = None if current in (None, -1) else current
        if current != states[-1].snapshot_id:
            self._move(name, states, current)

    def rows_between(self, table: str, start: float, end: float) -> list[Rows]:
        """Every state that the table had at some moment of the interval."""
        states = self.states[table]
        first = max(index for index, state in enumerate(states) if state.at <= start)
        return [state.rows for index, state in enumerate(states) if index >= first and state.at <= end]

    def _move(self, name: str, states: list[State], current: int | None) -> None:
        path: list[dict[str, Any]] = []
        known, at = self.snapshots[name], current
        while at is not None and at != states[-1].snapshot_id:
            if at not in known:
                break
            path.append(known[at])
            at = known[at].get("parent-snapshot-id")
        if at != states[-1].snapshot_id:
            self.violations.append(f"{name}: main moved from {states[-1].snapshot_id} to {current}, which follows not")
        for snapshot in reversed(path):
            states.append(self._apply(name, states[-1], snapshot))

    def _apply(self, name: str, before: State, snapshot: dict[str, Any]) -> State:
        summary = snapshot["summary"]
        ids, transaction = list[int](), summary.get(TRANSACTION)
        for token in summary.get(TOKEN, "").split():
            if token in self.tokens:
                ids.append(self.tokens[token])
        if transaction is not None and transaction in self.transactions:
            ids.append(self.transactions[transaction])
        rows = before.rows
        for id_ in ids:
            # A transaction has a snapshot for each of its writes to the table; this workload has one.
            self.applied[id_, name] += 1
            rows = self.ops[id_].apply(name, rows)
        return State(self.now(), snapshot["snapshot-id"], rows, tuple(ids), transaction)
