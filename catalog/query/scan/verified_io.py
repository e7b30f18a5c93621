"""Verified reads: every object that a query reads is compared with the digest that its commit attested.

The chain: a signed checkpoint, the commit's leaf in its tree, the attestation whose root the leaf states, the digest in
the attestation, the bytes. The verified bytes are the bytes that are used: nothing is read twice, and nothing comes
from a cache.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from threading import Lock
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from catalog.core.errors import NotFound, Unverified
from catalog.iceberg import ManifestReader
from catalog.query.scan.object_ranges import ObjectRanges
from catalog.timeline import Attestation, Attestations, Leaf, ObjectDigest, Timeline

MAX_LEAVES_OF_CLONE = 10_000


@dataclass(frozen=True, slots=True)
class VerifiedObject:
    """One object that was read and is what its commit wrote. `index` is the index of the commit's leaf."""

    path: str
    length: int
    sha256: str
    index: int


@dataclass
class Evidence:
    """What a verified query collects: the objects it compared, and a proof file for each leaf they depend on."""

    objects: list[VerifiedObject] = field(default_factory=list)
    proofs: dict[int, bytes] = field(default_factory=dict)


class VerifiedIO(FileIO):
    """A pyiceberg FileIO that returns only verified bytes. `expect` must name an object's commit before it is read.

    `table_uuid`: the table that the query was bound to. The timeline's index, which says where a snapshot's leaf is, is
    not believed: the leaf itself must be of that snapshot and table.
    """

    def __init__(
        self,
        store: ObjectRanges,
        timeline: Timeline,
        attestations: Attestations,
        table: str,
        evidence: Evidence,
        table_uuid: str,
    ) -> None:
        super().__init__()
        self._uuid = table_uuid
        self._store, self._timeline, self._attestations = store, timeline, attestations
        self._table, self.evidence = table, evidence
        self._loaded: dict[int, tuple[int, Attestation]] = {}
        self._expected: dict[str, tuple[int, ObjectDigest]] = {}
        self._lock = Lock()

    def expect(self, path: str, snapshot_id: int | None) -> None:
        """Declares that the snapshot added the object; Unverified if its commit's attestation does not list it."""
        index, attestation = self._attestation(snapshot_id, path)
        entries = (attestation.manifest_list, *attestation.entries)
        digest = next((entry for entry in entries if entry.path == path), None)
        if digest is None:
            raise Unverified(
                f"{path} is not among the objects that commit {index} of {self._table} wrote. If rows of the table "
                "were erased, it may stand for one: `strandline timeline verify --deep` decides",
                subject=path,
            )
        self._expected[path] = (index, digest)

    def read(self, path: str) -> bytes:
        """The object's bytes. One request. Unverified, naming the object, if they are not those that were attested."""
        if path not in self._expected:
            raise Unverified(
                f"{path} was not added by any commit of {self._table} that is in the timeline", subject=path
            )
        index, entry = self._expected[path]
        try:
            data = self._store.get_range(path, 0, entry.length)
        except FileNotFoundError:
            raise Unverified(f"{path} is missing, but commit {index} of {self._table} added it", subject=path) from None
        if len(data) != entry.length or sha256(data).hexdigest() != entry.sha256:
            raise Unverified(
                f"{path} is not what commit {index} of {self._table} wrote: it was changed afterwards", subject=path
            )
        with self._lock:
            self.evidence.objects.append(VerifiedObject(path, entry.length, entry.sha256, index))
        return data

    def new_input(self, location: str) -> InputFile:
        return BytesInput(location, self.read)

    def new_output(self, location: str) -> Any:
        raise NotImplementedError("a query writes nothing")

    def delete(self, location: Any) -> None:
        raise NotImplementedError("a query writes nothing")

    def _attestation(self, snapshot_id: int | None, path: str) -> tuple[int, Attestation]:
        if snapshot_id is None:
            raise Unverified(f"the metadata of {self._table} does not say which commit added {path}", subject=path)
        with self._lock:
            if snapshot_id not in self._loaded:
                self._loaded[snapshot_id] = self._load(snapshot_id, path)
            return self._loaded[snapshot_id]

    def _load(self, snapshot_id: int, path: str) -> tuple[int, Attestation]:
        index, leaf = self._leaf(snapshot_id, path)
        attestation = self._attestations.staged(leaf.table_uuid, snapshot_id)
        stated = (leaf.manifest_list_sha256, leaf.content_root, leaf.content_count)
        if attestation is None or stated != (
            attestation.manifest_list.sha256,
            attestation.content_root,
            len(attestation.entries),
        ):
            raise Unverified(
                f"the attestation of commit {index} of {leaf.table} is missing, or is not the one that its leaf states",
                subject=path,
            )
        return index, attestation

    def _leaf(self, snapshot_id: int, path: str) -> tuple[int, Leaf]:
        try:
            try:
                index, _ = self._timeline.find(snapshot_id, self._table)
            except NotFound:
                index, _ = self._timeline.find(snapshot_id)  # a clone's files were written by commits of its source
        except NotFound:
            raise Unverified(
                f"snapshot {snapshot_id} of {self._table}, which added {path}, is not in the timeline", subject=path
            ) from None
        self.evidence.proofs[index] = self._timeline.proof(index)
        leaf = self._timeline.commit(index)
        if leaf.snapshot_id != snapshot_id or not leaf.is_snapshot:
            raise Unverified(
                f"leaf {index} is not of snapshot {snapshot_id}, which added {path}: the timeline's index is wrong",
                subject=path,
            )
        if leaf.table_uuid != self._uuid and snapshot_id in self._own_snapshots:
            raise Unverified(
                f"leaf {index} is of another table than {self._table}, which added snapshot {snapshot_id} itself",
                subject=path,
            )
        return index, leaf

    @cached_property
    def _own_snapshots(self) -> frozenset[int]:
        """The snapshots that the table itself added, from all of its leaves, each proven: only a clone needs them.

        Another table may have a snapshot of the same id, and attest other bytes under the same names. That the leaves
        are all there is shown by the map of tables, which has the number of the last one.
        """
        size = self._timeline.head().checkpoint.size
        newest = self._timeline.prove_as_of(self._table, index=size - 1)
        last = newest.last_sequence
        if last is None or newest.table_uuid != self._uuid:
            raise Unverified(
                f"{self._table} is not a table now: its clone's files cannot be verified", subject=self._table
            )
        if last > MAX_LEAVES_OF_CLONE:
            raise Unverified(f"{self._table}, a clone, has too many leaves to be verified: {last}", subject=self._table)
        added = set[int]()
        for sequence in range(last + 1):
            indexed = self._timeline.source.of_table(self._uuid, sequence, size)
            leaf = None if indexed is None else self._timeline.commit(indexed[0])
            if leaf is None or (leaf.table_uuid, leaf.sequence) != (self._uuid, sequence):
                raise Unverified(
                    f"the timeline's index does not lead to leaf {sequence} of {self._table}", subject=self._table
                )
            if leaf.is_snapshot and leaf.snapshot_id is not None:
                added.add(leaf.snapshot_id)
        return frozenset(added)


class VerifiedManifests(ManifestReader):
    """Reads manifests through a VerifiedIO, without a cache, and declares to it every object that they list."""

    def __init__(self, verified_io: VerifiedIO) -> None:
        super().__init__()
        self._verified_io = verified_io

    def manifests(self, io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
        if snapshot is None:
            return []
        self._verified_io.expect(snapshot.manifest_list, snapshot.snapshot_id)
        manifests = list(read_manifest_list(self._verified_io.new_input(snapshot.manifest_list)))
        for manifest in manifests:
            self._verified_io.expect(manifest.manifest_path, manifest.added_snapshot_id)
        return manifests

    def entries(self, io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
        entries = manifest.fetch_manifest_entry(self._verified_io, discard_deleted=True)
        for entry in entries:
            self._verified_io.expect(entry.data_file.file_path, entry.snapshot_id)
        return entries


class BytesInput(InputFile):
    """An object whose bytes come from a function, which is called once."""

    def __init__(self, location: str, read: Callable[[str], bytes]) -> None:
        super().__init__(location)
        self._read = read
        self._data: bytes | None = None

    def __len__(self) -> int:
        return len(self._bytes())

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._bytes())

    def _bytes(self) -> bytes:
        if self._data is None:
            self._data = self._read(self.location)
        return self._data
