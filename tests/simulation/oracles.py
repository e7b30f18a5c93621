"""The oracles: what must be true when the faults have ended and the lake has come to rest, whatever happened before."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from catalog.core.errors import LakeError
from catalog.core.point_in_time import TableSequence
from catalog.lake import Lake
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import split_note
from catalog.timeline import Leaf
from tests.simulation.clients import Told
from tests.simulation.cloud import Cloud
from tests.simulation.history import History, Rows, State, Violation
from tests.simulation.scheduler import EPOCH_S, Process, World
from tests.simulation.workload import KEYED, TABLES, Op

RECOVERY_S = 4000.0
AHEAD_S = 60.0


class Oracles:
    """Each check raises Violation. `check` runs them all, in a process of its own that meets no faults."""

    def __init__(self, world: World, cloud: Cloud, history: History, told: Told) -> None:
        self._world, self._cloud, self._history, self._told = world, cloud, history, told

    def recover(self) -> None:
        """Lets the lake come to rest: until every message is served, and a sweep has run after that."""
        cloud = self._cloud
        for _ in range(2):
            self._world.run(lambda: not cloud.landed.messages and not cloud.moved.messages, RECOVERY_S)
            cloud.moved.send(json.dumps({"kind": "sweep"}))
        self._world.run(lambda: not cloud.moved.messages, RECOVERY_S)
        cloud.running = False

    def check(self) -> None:
        def run() -> None:
            lake = self._cloud.lake()
            self._check_commits()
            self._check_reads()
            self._check_transactions()
            leaves = self._leaves(lake)
            self._check_tables(lake)
            self._check_leaves(leaves)
            self._check_checkpoints(leaves)
            self._check_cuts(lake, len(leaves))
            self._check_names(lake)
            self._check_events(leaves)
            for table in TABLES:
                self._check_feed(lake, table)
            self._check_routes(lake, len(leaves))

        task = Process(self._world, "oracle.check").spawn(run)
        self._world.run(lambda: task.done, 10_000)
        if isinstance(task.error, LakeError | OSError):
            raise Violation(f"a read failed after recovery: {task.error!r}") from task.error
        if task.error is not None:
            raise task.error

    def _check_commits(self) -> None:
        """Every acknowledged effect exactly once, every other one at most once; transactions whole."""
        history, told = self._history, self._told
        _require(not history.violations, "; ".join(history.violations))
        dead = [*self._cloud.moved.dead, *self._cloud.dead.messages.values(), *self._cloud.landed.dead]
        _require(not dead, f"a message became a dead letter: {[message.body for message in dead]}")
        for op in history.ops.values():
            counts = [history.applied[op.id, table] for table in op.rows]
            if op.kind in ("insert", "upsert", "delete", "transaction", "land"):
                least = 1 if op.id in told.acknowledged and not self._is_quarantined(op) else 0
                _require(all(least <= count <= 1 for count in counts), f"{op} took effect {counts} times")
                _require(len(set(counts)) <= 1, f"{op} took effect in some tables only: {counts}")
            if op.kind == "alter" and op.id in told.acknowledged:
                columns = history.columns[op.table].count(op.column)
                _require(columns == 1, f"{op} was acknowledged, and the column is there {columns} times")
        for id_, answer in told.repeated:
            first = told.acknowledged[id_]
            same = getattr(first, "snapshot_id", first) == getattr(answer, "snapshot_id", answer)
            _require(same, f"op {id_} was answered with {first} first, and its repeat with {answer}")

    def _is_quarantined(self, op: Op) -> bool:
        """Whether the lake gave up on the landed file: too many processes died while they read it."""
        reports = [o.body for o in self._cloud.bucket.listed("quarantine/") if o.key.endswith(".json")]
        return op.kind == "land" and any(op.key in report.decode() for report in reports)

    def _check_reads(self) -> None:
        """Fresh reads are linearizable: each shows a state that the table had while the read ran."""
        for op, began, ended, rows in self._told.reads:
            _require(rows in self._history.rows_between(op.table, began, ended), f"{op} read {rows}, which never was")
        last = dict[str, int]()
        for process, (index, _) in self._told.cuts:
            _require(last.get(process, -1) <= index, f"{process} saw index {index} after {last.get(process)}")
            last[process] = index

    def _check_transactions(self) -> None:
        """Serializable: what a transaction read is the table's state right before its own commit."""
        for id_, reads in self._told.transaction_reads.items():
            for table, rows in reads.items():
                states = self._history.states[table]
                at = next((n for n, state in enumerate(states) if id_ in state.ops), None)
                if at is None:
                    raise Violation(f"op {id_} was acknowledged, and {table} has no snapshot of it")
                before = states[at - 1].rows
                _require(rows == before, f"op {id_} read {rows} of {table}, and replaced {before}")

    def _leaves(self, lake: Lake) -> list[Leaf]:
        timeline = lake.timeline
        size = timeline.head().checkpoint.size
        return [Leaf.decode(timeline.source.entry(index, size)) for index in range(size)]

    def _check_tables(self, lake: Lake) -> None:
        """The reference model equals the table, now and at each snapshot that is left."""
        for table in TABLES:
            states = {state.snapshot_id: state for state in self._history.states[table] if state.snapshot_id}
            kept = [snapshot.snapshot_id for snapshot in lake.tables.history(table)]
            for snapshot_id in kept:
                rows = _rows(lake.tables.scan(table, columns=("id", "v"), as_of=f"snapshot:{snapshot_id}"))
                expected = states[snapshot_id].rows
                _require(rows == expected, f"{table} at {snapshot_id} has {rows}, the model {expected}")
            rows = _rows(lake.tables.scan(table, columns=("id", "v")))
            _require(rows == self._history.states[table][-1].rows, f"{table} has {rows}")

    def _check_leaves(self, leaves: Sequence[Leaf]) -> None:
        """One leaf for each snapshot of main, in the order of the commits."""
        for table in TABLES:
            committed = [state.snapshot_id for state in self._history.states[table] if state.snapshot_id]
            sequenced = [leaf.snapshot_id for leaf in leaves if leaf.table == table and leaf.is_snapshot]
            doubled = [id_ for id_, count in Counter(sequenced).items() if count > 1]
            _require(not doubled, f"{table}: snapshots {doubled} have several leaves")
            missing = [id_ for id_ in committed if id_ not in sequenced]
            _require(not missing, f"{table}: snapshots {missing} have no leaf")
            ordered = [id_ for id_ in sequenced if id_ in committed]
            _require(ordered == committed, f"{table}: leaves {ordered} are not in the order of the commits {committed}")
        times = [leaf.sequenced_ms for leaf in leaves]
        _require(times == sorted(times), "the times of the leaves go back")

    def _check_checkpoints(self, leaves: Sequence[Leaf]) -> None:
        """Every checkpoint that was ever published is of a prefix of the tree, and sizes ascend."""
        hashes = [sha256(b"\x00" + leaf.encode()).digest() for leaf in leaves]
        size = 0
        for version in self._cloud.bucket.versions.get("timeline/checkpoint", ()):
            checkpoint = Checkpoint.parse(split_note(version.body)[0])
            _require(checkpoint.size >= size, f"the published size went from {size} to {checkpoint.size}")
            size = checkpoint.size
            latest_ms = (EPOCH_S + version.at + AHEAD_S) * 1000 + size
            ahead = [index for index, leaf in enumerate(leaves[:size]) if leaf.sequenced_ms > latest_ms]
            _require(not ahead, f"leaves {ahead} lie more than a minute in the future")
            _require(checkpoint.root == _root(hashes[:size]), f"the checkpoint of size {size} is of another tree")
        _require(size == len(leaves), f"{len(leaves)} leaves, and {size} are published")

    def _check_cuts(self, lake: Lake, size: int) -> None:
        """At every index: what readers saw there, states that only move on, and transactions whole."""
        position = dict.fromkeys(TABLES, 0)
        cuts = dict[int, dict[str, int | None]]()
        for index in range(size):
            cuts[index] = dict(lake.timeline.cut(TABLES, index=index).snapshots)
            for table, snapshot_id in cuts[index].items():
                states = self._history.states[table]
                found = next((at for at, state in enumerate(states) if state.snapshot_id == snapshot_id), None)
                if found is None:
                    raise Violation(f"{table} at index {index} is at {snapshot_id}, which main never was at")
                _require(found >= position[table], f"{table} at index {index} is older than before")
                position[table] = found
            seen = [_transactions(self._history.states[table][: position[table] + 1]) for table in KEYED]
            _require(seen[0] == seen[1], f"at index {index} a transaction is in one table only: {seen}")
        for process, (index, snapshots) in self._told.cuts:
            _require(cuts[index] == snapshots, f"{process} saw {snapshots} at {index}, where {cuts[index]} is")
        if size:
            last = {table: states[-1].snapshot_id for table, states in self._history.states.items()}
            _require(cuts[size - 1] == last, f"the newest index shows {cuts[size - 1]}, the tables are at {last}")

    def _check_names(self, lake: Lake) -> None:
        for op in self._history.ops.values():
            if op.kind == "name" and op.id in self._told.acknowledged:
                (index,) = self._told.acknowledged[op.id]
                named = lake.timeline.named(f"n{op.id}")
                _require(named == index, f"{op} was told index {index}, and the name is of {named}")

    def _check_events(self, leaves: Sequence[Leaf]) -> None:
        announced = {
            index for event in self._cloud.events for index in range(event["first_index"], event["last_index"] + 1)
        }
        _require(announced >= set(range(len(leaves))), f"not announced: {set(range(len(leaves))) - announced}")

    def _check_feed(self, lake: Lake, table: str) -> None:
        """The feed, from the oldest snapshot that is left, replays to the table; each change set verifies."""
        loaded = lake.tables.load(table)
        present = {snapshot.snapshot_id for snapshot in loaded.metadata.snapshots}
        states = self._history.states[table]
        moves = [(i, leaf) for i, leaf in lake.timeline.commits_since(table) if leaf.moves_rows]
        start = len(moves)
        while start and moves[start - 1][1].snapshot_id in present:
            start -= 1
        if start == len(moves):
            return
        first = moves[start][1] if start else None  # everything is there: from the beginning
        base = next(s.rows for s in states if s.snapshot_id == (first.snapshot_id if first else None))
        rows, since = Counter(base), TableSequence(first.sequence) if first else None
        for changes in lake.changes(table, since):
            for change in changes.changes.to_pylist():
                if change["before"] is not None:
                    rows[change["before"]["id"], change["before"]["v"]] -= 1
                if change["after"] is not None:
                    rows[change["after"]["id"], change["after"]["v"]] += 1
        replayed = tuple(sorted(rows.elements()))
        _require(replayed == states[-1].rows, f"the feed of {table} replays to {replayed}, not {states[-1].rows}")

    def _check_routes(self, lake: Lake, size: int) -> None:
        """Every read route answers."""
        report = lake.verifier.verify(deep=True)
        _require(not report.fault_count, f"verification found {[str(fault) for fault in report.faults]}")
        for index in range(size):
            lake.timeline.proof(index)


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Violation(otherwise)


def _rows(table: Any) -> Rows:
    return tuple(sorted((row["id"], row["v"]) for row in table.to_pylist()))


def _transactions(states: Sequence[State]) -> set[str]:
    return {state.transaction for state in states if state.transaction is not None}


def _root(hashes: Sequence[bytes]) -> bytes:
    """RFC 6962's root, written anew: the oracle must not compute with what it checks."""
    if not hashes:
        return sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    return sha256(b"\x01" + _root(hashes[:split]) + _root(hashes[split:])).digest()
