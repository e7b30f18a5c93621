"""The tables' objects, hashed and compared with the leaf of the commit that added each. Reads only.

What must be there: the metadata file each table's last leaf speaks of, and all that its snapshots reach: manifest
lists, manifests, data and delete files, and the attestations that say what each should be. An object of
another length or digest is a fault wherever it is met; one that is gone is a fault only if the table's
metadata still reaches it. So nothing is asked of dropped tables, of expired snapshots, or of files that only
those needed. If the table moved on meanwhile (an expiry, say), what was missing is looked at once more, from
its new metadata.

A file that no leaf of the timeline added (from before the first look at a table) cannot be compared: it is
counted as uncovered, and is no fault.

Then the changes of each commit are computed again and compared with its leaf's changes_root, and the rows of each
rewrite, in the files it took away and in those it added, with its rows_digest.
Of vector tables, the head and Lance's manifests are compared (vector_verification.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import LakeError, NotFound, Unverified
from catalog.timeline import keys
from catalog.timeline.attest import Attestation, Attestations, Changed, key_of
from catalog.timeline.away import explained
from catalog.timeline.faults import Crew, Fault, Findings, Progress
from catalog.timeline.index_verification import row_name
from catalog.timeline.leaf import Leaf
from catalog.timeline.moves import MetadataFile, TableState
from catalog.timeline.store import Database
from catalog.timeline.table_walk import Commit, TableWalk
from catalog.timeline.vector_moves import VectorObjects, is_vectors
from catalog.timeline.vector_verification import verify_vectors

ATTESTATIONS_HELD = 256

Recount = Callable[[Table, Snapshot | None, Snapshot, int, str], Changed | None]
"""(table, from, to, schema id, the root that was attested) -> what the files give; None if that cannot be computed."""

RecountRows = Callable[[Table, Snapshot, Snapshot, int], tuple[str, str] | None]
"""(table, from, to, schema id) -> the multiset digests of the rows in the files that went and in those that came."""


@dataclass
class ObjectVerification:
    """All tables of the timeline, or with `start`, only what commits from that index on added."""

    db: Database
    attestations: Attestations
    catalog: Catalog
    start: int
    size: int
    findings: Findings
    progress: Progress
    recount: Recount = lambda table, since, until, schema_id, root: None
    recount_rows: RecountRows = lambda table, since, until, schema_id: None
    objects: int = 0
    changes: int = 0
    rewrites: int = 0
    length: int = 0
    uncovered: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._commit = lru_cache(ATTESTATIONS_HELD)(self._load_commit)

    def run(self, crew_of: Callable[[], Crew]) -> None:
        """`crew_of()` makes a crew; each table has its own, so that it is finished before the next begins."""
        # Not with the catalog's own FileIO, which may keep what it has seen: what lies in S3 now is wanted.
        plain = {name: value for name, value in self.catalog.properties.items() if name != "py-io-impl"}
        io = load_file_io(plain, plain.get("warehouse", "s3://"))
        for key, value in self.db.scan(b"state/", keys.after(b"state/")):
            (uuid,) = keys.unpack_uuids(key[-16:])
            state = TableState.decode(value)
            last = self._leaf_at(keys.table(uuid, state.sequence - 1))
            if state.dropped or state.metadata_location is None or last is None or last[0] < self.start:
                continue
            if is_vectors(state.name):
                objects = VectorObjects(self.attestations.s3, self.attestations.bucket)
                verify_vectors(self, objects, state, list(self._chain(uuid)))
                continue
            walk = TableWalk(self, uuid, state.name, io)
            with crew_of() as crew:
                walk.table(last, state.metadata_location, crew, held=state.held)
            if walk.metadata is not None and not walk.wrong and not walk.gone:
                location = state.metadata_location
                self._recount(uuid, Table(tuple(state.name.split(".")), walk.metadata, location, io, self.catalog))
            for fault in self._again(walk, uuid, state, io, crew_of) if walk.gone else walk.wrong:
                self.findings.add(fault)
            self._commit.cache_clear()

    def _recount(self, uuid: str, table: Table) -> None:
        """Every changes_root and rows_digest of the table against its files, as far as both snapshots are there.

        Only where all objects are as they were committed: else a damaged one would be named twice.
        """
        schemas = MetadataFile.read(table.metadata_location, table.io).schemas
        ids = {digest: schema_id for schema_id, digest in schemas.items()}
        by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
        for index, leaf in self._chain(uuid):
            if not self.start <= index < self.size or (leaf.changes_root is None and leaf.rows_digest is None):
                continue
            if leaf.snapshot_id not in by_id or leaf.parent_id not in {None, *by_id} or leaf.schema_sha256 not in ids:
                continue
            since = None if leaf.parent_id is None else by_id[leaf.parent_id]
            until, schema_id = by_id[leaf.snapshot_id], ids[leaf.schema_sha256]
            self._recount_changes(table, since, until, schema_id, index, leaf)
            if since is not None and leaf.rows_digest is not None:
                self._recount_rows(table, since, until, schema_id, index, leaf)

    def _recount_changes(
        self, table: Table, since: Snapshot | None, until: Snapshot, schema_id: int, index: int, leaf: Leaf
    ) -> None:
        if leaf.changes_root is None:
            return
        with explained(leaf.table):
            found = self.recount(table, since, until, schema_id, leaf.changes_root)
        if found is None:
            return
        self.changes += 1
        if (found.root, found.count) != (leaf.changes_root, leaf.changes_count):
            self._blame(index, leaf, f"its changes_root is not that of its files: they have {found.count} changes")

    def _recount_rows(
        self, table: Table, since: Snapshot, until: Snapshot, schema_id: int, index: int, leaf: Leaf
    ) -> None:
        with explained(leaf.table):
            found = self.recount_rows(table, since, until, schema_id)
        if found is None:
            return
        self.rewrites += 1
        for digest, which in zip(found, ("it took away", "it added"), strict=True):
            if digest != leaf.rows_digest:
                self._blame(index, leaf, f"its rows_digest is not that of the rows in the files {which}")

    def _blame(self, index: int, leaf: Leaf, what: str) -> None:
        name = row_name(keys.leaf(index))
        if leaf.is_snapshot and leaf.snapshot_id is not None:
            name = f"s3://{self.attestations.bucket}/{key_of(leaf.table_uuid, leaf.snapshot_id)}"
        self.findings.add(Commit(index, leaf, {}, None).fault(name, what))

    def _again(
        self, walk: TableWalk, uuid: str, state: TableState, io: FileIO, crew_of: Callable[[], Crew]
    ) -> Sequence[Fault]:
        """Something is missing. If the table is where it was, that is a fault; else its new state decides."""
        try:
            with explained(state.name):
                table = self.catalog.load_table(state.name)
        except NotFound:  # dropped meanwhile
            return walk.wrong
        except LakeError:
            raise
        except Exception:  # its metadata cannot be read: it is among the faults already
            return [*walk.wrong, *walk.gone]
        if table.metadata_location == state.metadata_location or str(table.metadata.table_uuid) != uuid:
            return [*walk.wrong, *walk.gone]
        second = TableWalk(self, uuid, state.name, io)
        with crew_of() as crew:
            second.snapshots(table.metadata, crew)
        return [*dict.fromkeys([*walk.wrong, *second.wrong, *second.gone])]

    def count(self, length: int) -> None:
        with self._lock:
            self.objects += 1
            self.length += length
            self.progress("objects", self.objects, 0)

    def commits(self, snapshot_id: int, uuid: str) -> Iterator[tuple[int, Leaf]]:
        """The leaves that added a snapshot of this id, this table's first: a clone shares another's files."""
        own = self._leaf_at(keys.snapshot(snapshot_id, uuid))
        if own is not None:
            yield own
        prefix = keys.snapshot(snapshot_id)
        for key, _ in self.db.scan(prefix, keys.after(prefix)):
            if key != keys.snapshot(snapshot_id, uuid) and (other := self._leaf_at(key)) is not None:
                yield other

    def commit(self, index: int, leaf: Leaf) -> Commit | Fault:
        """The commit with its attestation, or what is wrong with that: each is read once and kept a while."""
        return self._commit(index, leaf)

    def _load_commit(self, index: int, leaf: Leaf) -> Commit | Fault:
        assert leaf.snapshot_id is not None
        key = key_of(leaf.table_uuid, leaf.snapshot_id)
        commit = Commit(index, leaf, {}, None)
        name = f"s3://{self.attestations.bucket}/{key}"
        try:
            with explained(key):
                data = self.attestations.s3.get_object(Bucket=self.attestations.bucket, Key=key)["Body"].read()
            found = Attestation.decode(data)
        except NotFound:
            return commit.fault(name, "it is gone")
        except Unverified:
            return commit.fault(name, "it is not an attestation")
        says = (leaf.table_uuid, leaf.snapshot_id, leaf.manifest_list_sha256, leaf.content_root)
        changes = (leaf.content_count, leaf.changes_root, leaf.changes_count)
        if says != (found.table_uuid, found.snapshot_id, found.manifest_list.sha256, found.content_root) or (
            changes != (len(found.entries), found.changes_root, found.changes_count)
        ):
            return commit.fault(name, "it is not the attestation that the commit's leaf was made from")
        self.count(len(data))
        entries = {entry.path: entry for entry in found.entries}
        return replace(commit, entries=entries, manifest_list=found.manifest_list)

    def _chain(self, uuid: str) -> Iterator[tuple[int, Leaf]]:
        """The table's leaves, oldest first."""
        for key, _ in self.db.scan(keys.table(uuid), keys.after(keys.table(uuid)[:-8])):
            found = self._leaf_at(key)
            if found is not None:
                yield found

    def _leaf_at(self, key: bytes) -> tuple[int, Leaf] | None:
        stored = self.db.get(key)
        if stored is None:
            return None
        index = keys.unpack(stored)[0]
        data = self.db.get(keys.leaf(index))
        try:
            return None if data is None else (index, Leaf.decode(data))
        except Unverified:  # which the tree's verification has named
            return None
