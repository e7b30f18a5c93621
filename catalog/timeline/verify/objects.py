"""Hashes the tables' objects and compares each with the leaf of the commit that added it. Reads only.

These objects must exist: the metadata file of each table's last leaf, everything that its snapshots refer to (manifest
lists, manifests, data and delete files), and the attestations with their digests. An object with another length or
digest is always a fault; a missing one only if the table's present metadata still refers to it. So dropped tables,
expired snapshots and files that only those referred to are not verified. If the table changed during the verification
(by an expiry, for example), it is walked a second time, from its new metadata.

A file that no leaf attests (from before the table was first sequenced) cannot be compared: it is counted as uncovered,
and is not a fault.

What the manifests state about the rows of their data files is compared with the rows (statistics.py).

Then the changes of each commit are computed again and compared with its leaf's changes_root, and the rows of each
rewrite, in the files it took away and in those it added, with its rows_digest. The rows after each leaf are compared
with its state_digest and state_root (row_states.py).
Of vector tables, the head and Lance's manifests are compared (vector_verification.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import LakeError, NotFound, Unverified
from catalog.timeline.log import store_keys
from catalog.timeline.log.leaf import ERASE, Leaf
from catalog.timeline.log.store import Store
from catalog.timeline.sequencer.attestation import Attestation, Attestations, RecomputedChanges, attestation_key
from catalog.timeline.sequencer.erasure_records import ErasureRecords
from catalog.timeline.sequencer.row_state import ComputeState
from catalog.timeline.sequencer.table_state import MetadataFile, TableState
from catalog.timeline.sequencer.vector_events import VectorObjects, is_vector_table
from catalog.timeline.verify.erasures import Erased, Erasures
from catalog.timeline.verify.faults import BoundedPool, Fault, FaultCollector
from catalog.timeline.verify.indexes import row_name
from catalog.timeline.verify.leaf_facts import is_attestation_of, is_hidden_reset
from catalog.timeline.verify.row_states import RowStates
from catalog.timeline.verify.table_walk import Commit, TableWalk
from catalog.timeline.verify.vectors import verify_vectors

MAX_CACHED_ATTESTATIONS = 256


class Recount(Protocol):
    """Recomputes a commit's row changes from its files; None if that is not possible. `root`: the attested one.

    `erased`: position -> leaf hash of the changes that an erasure took away.
    """

    def __call__(
        self,
        table: Table,
        since: Snapshot | None,
        until: Snapshot,
        schema_id: int,
        root: str,
        erased: Mapping[int, bytes],
        /,
    ) -> RecomputedChanges | None: ...


class RecountRows(Protocol):
    """Recomputes the multiset digests of the rows in the files that a rewrite removed, and in those that it added."""

    def __call__(self, table: Table, since: Snapshot, until: Snapshot, schema_id: int, /) -> tuple[str, str] | None: ...


@dataclass
class ObjectVerification:
    """Verifies the objects of all tables that commits from index `start` up to `size` added."""

    db: Store
    attestations: Attestations
    catalog: Catalog
    start: int
    size: int
    faults: FaultCollector
    workers: int
    recount: Recount | None = None
    recount_rows: RecountRows | None = None
    compute_state: ComputeState | None = None
    only: str | None = None
    """The one table to verify; None: all."""
    erased: list[Erased] = field(default_factory=list)
    objects: int = 0
    changes: int = 0
    rewrites: int = 0
    states: int = 0
    uncounted: int = 0
    statistics: int = 0
    uncompared: int = 0
    length: int = 0
    uncovered: int = 0
    tables: int = 0
    """How many tables were walked: none is no success for who asked for one."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._commit = lru_cache(MAX_CACHED_ATTESTATIONS)(self._load_commit)

    def run(self) -> None:
        # Not with the catalog's FileIO, which may cache: the objects must be read from S3.
        properties = {name: value for name, value in self.catalog.properties.items() if name != "py-io-impl"}
        io = load_file_io(properties, properties.get("warehouse", "s3://"))
        for key, value in self.db.scan(b"state/", store_keys.after(b"state/")):
            (uuid,) = store_keys.unpack_uuids(key[-16:])
            state = TableState.decode(value)
            last = self._leaf_at(store_keys.table(uuid, state.sequence - 1))
            if state.dropped or state.metadata_location is None or last is None or last[0] < self.start:
                continue
            if self.only not in (None, state.name):
                continue
            self.tables += 1
            if is_vector_table(state.name):
                objects = VectorObjects(self.attestations.s3, self.attestations.bucket)
                verify_vectors(self, objects, state, list(self._chain(uuid)))
                continue
            erasures = self._erasures(uuid)
            walk = TableWalk(self, uuid, io, erasures)
            with BoundedPool(self.workers) as pool:  # one per table: each table is finished before the next begins
                walk.table(last, state.metadata_location, pool, held=state.held)
            if walk.metadata is not None and not walk.wrong and not walk.missing:
                location = state.metadata_location
                table = Table(tuple(state.name.split(".")), walk.metadata, location, io, self.catalog)
                verified = self._recount(uuid, table, erasures)
                for fault in walk.unshown(verified):
                    self.faults.add(fault)
            self.statistics += len(walk.compared)
            self.uncompared += len(walk.uncompared)
            for fault in self._walk_again(walk, uuid, state, io, erasures) if walk.missing else walk.wrong:
                self.faults.add(fault)
            for fault in walk.false if not walk.wrong else ():  # of a damaged file, every statement is false
                self.faults.add(fault)
            self._commit.cache_clear()

    def _erasures(self, uuid: str) -> Erasures:
        """What the table's `erase` leaves permit. Every leaf of the table is read, only if there is one."""
        chain = list(self._chain(uuid))
        if all(leaf.operation != ERASE for _, leaf in chain):
            return Erasures()
        records = ErasureRecords(self.attestations.s3, self.attestations.bucket)
        stored = [(records.location(uuid, each.id), each) for each in records.list(uuid)]
        erasures = Erasures.load(chain, stored)
        for fault in erasures.faults:
            self.faults.add(fault)
        self.erased += erasures.erased
        return erasures

    def _recount(self, uuid: str, table: Table, erasures: Erasures) -> set[int]:
        """Recomputes every changes_root, rows_digest and state of the table whose two snapshots have not expired.

        Returns the indexes of the leaves whose changes or state were found right. Call it only if all objects are as
        committed: a damaged one would be reported twice.
        """
        schemas = MetadataFile.read(table.metadata_location, table.io).schemas
        schema_ids = {digest: schema_id for schema_id, digest in schemas.items()}
        by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
        stated = {leaf.snapshot_id: leaf.parent_id for _, leaf in self._chain(uuid) if leaf.is_snapshot}
        states = None
        if self.compute_state is not None:
            stored = self.compute_state.forget(self.db.get(store_keys.rows(uuid)))
            states = RowStates(table, self.compute_state, stored, erasures.rows)
        last, verified = None, set[int]()
        for index, leaf in self._chain(uuid):
            if not self.start <= index < self.size or not (leaf.states_rows or leaf.changes_root or leaf.rows_digest):
                continue
            if leaf.moves_rows and is_hidden_reset(leaf, by_id, stated):
                what = f"main moved from {leaf.parent_id}, which is no ancestor of its snapshot: it should be a reset"
                self.faults.add(Commit(index, leaf, {}, None).fault(row_name(store_keys.leaf(index)), what))
            recounted = self._recount_leaf(table, by_id, schema_ids, index, leaf, erasures)
            if recounted is not None and (recounted.root, recounted.count) == (leaf.changes_root, leaf.changes_count):
                verified.add(index)
            if states is not None and leaf.states_rows:
                self._check_state(states, by_id, schema_ids, index, leaf, recounted)
                last = (index, leaf)
                verified |= {index} if leaf.is_snapshot and leaf.sequence in states.verified else set()
        if states is not None and last is not None:
            self._add_state_fault(*last, states.finish())
            self.states += states.states
            self.uncounted += states.uncounted
        return verified

    def _recount_leaf(
        self,
        table: Table,
        by_id: Mapping[int, Snapshot],
        schema_ids: Mapping[str, int],
        index: int,
        leaf: Leaf,
        erasures: Erasures,
    ) -> RecomputedChanges | None:
        """Recomputes a leaf's changes, and the rows of a rewrite; None if it has none, or that is not possible."""
        if not (leaf.moves_rows or leaf.changes_root or leaf.rows_digest):
            return None
        until = None if leaf.snapshot_id is None else by_id.get(leaf.snapshot_id)
        schema_id = schema_ids.get(leaf.schema_sha256 or "")
        if until is None or schema_id is None or leaf.parent_id not in {None, *by_id}:
            return None
        since = None if leaf.parent_id is None else by_id[leaf.parent_id]
        recounted = self._recount_changes(table, since, until, schema_id, index, leaf, erasures.changes(leaf.sequence))
        if since is not None and leaf.rows_digest is not None:
            if recounted is not None and recounted.count == 0 and erasures.erased:
                # Without a change, the files before and after have the same rows; erased ones are in neither.
                return recounted
            self._recount_rows(table, since, until, schema_id, index, leaf)
        return recounted

    def _check_state(
        self,
        states: RowStates,
        by_id: Mapping[int, Snapshot],
        schema_ids: Mapping[str, int],
        index: int,
        leaf: Leaf,
        recounted: RecomputedChanges | None,
    ) -> None:
        until = None if leaf.snapshot_id is None else by_id.get(leaf.snapshot_id)
        schema_id = schema_ids.get(leaf.schema_sha256 or "")
        if schema_id is None or (until is None and leaf.snapshot_id is not None):
            states.skip()
            return
        self._add_state_fault(index, leaf, states.add(leaf, until, schema_id, recounted))

    def _add_state_fault(self, index: int, leaf: Leaf, what: str | None) -> None:
        if what is not None:
            self.faults.add(Commit(index, leaf, {}, None).fault(row_name(store_keys.leaf(index)), what))

    def _recount_changes(
        self,
        table: Table,
        since: Snapshot | None,
        until: Snapshot,
        schema_id: int,
        index: int,
        leaf: Leaf,
        erased: Mapping[int, bytes],
    ) -> RecomputedChanges | None:
        if leaf.changes_root is None:
            self.uncounted += leaf.moves_rows
            return None
        with translate_errors(leaf.table):
            recounted = (
                None
                if self.recount is None
                else self.recount(table, since, until, schema_id, leaf.changes_root, erased)
            )
        if recounted is None:
            self.uncounted += 1
            return None
        self.changes += 1
        for path, stated, rows in recounted.miscounted:
            what = f"its manifest states {stated} rows, and the file has {rows}"
            self.faults.add(Commit(index, leaf, {}, None).fault(path, what))
        if (recounted.root, recounted.count) != (leaf.changes_root, leaf.changes_count):
            what = f"its changes_root is not that of its files, which have {recounted.count} changes"
            self._add_attestation_fault(index, leaf, what)
        return recounted

    def _recount_rows(
        self, table: Table, since: Snapshot, until: Snapshot, schema_id: int, index: int, leaf: Leaf
    ) -> None:
        with translate_errors(leaf.table):
            digests = None if self.recount_rows is None else self.recount_rows(table, since, until, schema_id)
        if digests is None:
            self.uncounted += 1
            return
        self.rewrites += 1
        for digest, files in zip(digests, ("it removed", "it added"), strict=True):
            if digest != leaf.rows_digest:
                what = f"its rows_digest is not that of the rows in the files {files}"
                self._add_attestation_fault(index, leaf, what)

    def _add_attestation_fault(self, index: int, leaf: Leaf, what: str) -> None:
        """A fault of the commit's attestation or, if it has none, of its leaf."""
        name = row_name(store_keys.leaf(index))
        if leaf.is_snapshot and leaf.snapshot_id is not None:
            name = f"s3://{self.attestations.bucket}/{attestation_key(leaf.table_uuid, leaf.snapshot_id)}"
        self.faults.add(Commit(index, leaf, {}, None).fault(name, what))

    def _walk_again(
        self, walk: TableWalk, uuid: str, state: TableState, io: FileIO, erasures: Erasures
    ) -> Sequence[Fault]:
        """The faults of a walk with missing objects. If the table has changed since, walks its new metadata."""
        try:
            with translate_errors(state.name):
                table = self.catalog.load_table(state.name)
        except NotFound:  # dropped since
            return walk.wrong
        except LakeError:
            raise
        except Exception:  # its metadata cannot be parsed, which is one of the faults already
            return [*walk.wrong, *walk.missing]
        if table.metadata_location == state.metadata_location or str(table.metadata.table_uuid) != uuid:
            return [*walk.wrong, *walk.missing]
        second = TableWalk(self, uuid, io, erasures)
        with BoundedPool(self.workers) as pool:
            second.snapshots(table.metadata, pool)
        # Rows are computed from the timeline's last metadata only, so what an erasure replaced is not shown here.
        unshown = second.unshown(())
        return [*dict.fromkeys([*walk.wrong, *second.wrong, *second.missing, *unshown])]

    def count_object(self, length: int) -> None:
        """Counts an object that was read. Thread-safe."""
        with self._lock:
            self.objects += 1
            self.length += length

    def count_uncovered(self) -> None:
        """Counts an object that no leaf attests."""
        self.uncovered += 1

    def commits(self, snapshot_id: int, uuid: str) -> Iterator[tuple[int, Leaf]]:
        """The leaves that added a snapshot of this id, this table's first: a clone has files of another table."""
        own = self._leaf_at(store_keys.snapshot(snapshot_id, uuid))
        if own is not None:
            yield own
        prefix = store_keys.snapshot(snapshot_id)
        for key, _ in self.db.scan(prefix, store_keys.after(prefix)):
            if key != store_keys.snapshot(snapshot_id, uuid) and (other := self._leaf_at(key)) is not None:
                yield other

    def commit(self, index: int, leaf: Leaf) -> Commit | Fault:
        """The commit with its attestation, or the attestation's fault. The most recent ones are cached."""
        return self._commit(index, leaf)

    def _load_commit(self, index: int, leaf: Leaf) -> Commit | Fault:
        assert leaf.snapshot_id is not None
        key = attestation_key(leaf.table_uuid, leaf.snapshot_id)
        commit = Commit(index, leaf, {}, None)
        name = f"s3://{self.attestations.bucket}/{key}"
        try:
            with translate_errors(key):
                data = self.attestations.s3.get_object(Bucket=self.attestations.bucket, Key=key)["Body"].read()
            attestation = Attestation.decode(data)
        except NotFound:
            return commit.fault(name, "it is missing")
        except Unverified:
            return commit.fault(name, "it is not an attestation")
        if not is_attestation_of(leaf, attestation):
            return commit.fault(name, "it is not the attestation that the commit's leaf was built from")
        self.count_object(len(data))
        entries = {entry.path: entry for entry in attestation.entries}
        return replace(commit, entries=entries, manifest_list=attestation.manifest_list)

    def _chain(self, uuid: str) -> Iterator[tuple[int, Leaf]]:
        """The table's leaves, oldest first."""
        for key, _ in self.db.scan(store_keys.table(uuid), store_keys.after(store_keys.table(uuid)[:-8])):
            indexed = self._leaf_at(key)
            if indexed is not None:
                yield indexed

    def _leaf_at(self, key: bytes) -> tuple[int, Leaf] | None:
        """The leaf that an index row points to, with its index."""
        stored = self.db.get(key)
        if stored is None:
            return None
        index = store_keys.unpack(stored)[0]
        data = self.db.get(store_keys.leaf(index))
        try:
            return None if data is None else (index, Leaf.decode(data))
        except Unverified:  # TreeVerification reports it
            return None
