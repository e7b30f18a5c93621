"""Reading with proof: every object a query reads is compared with the digest its commit attested.

The chain: a signed checkpoint, the leaf of the commit in its tree, the attestation whose root the leaf states, the
digest in the attestation, the bytes. Bytes that pass are the bytes that are used: nothing is read a second time, and
nothing comes from a cache.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Any

from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import NotFound, Unverified
from catalog.tables.manifests import ManifestReader
from catalog.tables.objects import Store
from catalog.timeline.attest import Attestation, Attestations, Entry
from catalog.timeline.leaf import Leaf
from catalog.timeline.proofs import Timeline


@dataclass(frozen=True, slots=True)
class Checked:
    """One object that was read and is what its commit wrote. `index` is the commit's leaf."""

    path: str
    length: int
    sha256: str
    index: int


@dataclass
class Evidence:
    """What a verified query gathers: the objects it checked, and a proof file for each leaf it relied on."""

    objects: list[Checked] = field(default_factory=list)
    proofs: dict[int, bytes] = field(default_factory=dict)


class CheckedIO(FileIO):
    """pyiceberg's FileIO over checked bytes. An object is expected before it is read, by who added it."""

    def __init__(
        self, store: Store, timeline: Timeline, attestations: Attestations, table: str, evidence: Evidence
    ) -> None:
        super().__init__()
        self._store, self._timeline, self._attestations = store, timeline, attestations
        self._table, self.evidence = table, evidence
        self._commits: dict[int, tuple[int, Attestation]] = {}
        self._expected: dict[str, tuple[int, Entry]] = {}
        self._lock = Lock()

    def expect(self, path: str, snapshot_id: int | None) -> None:
        """The object was added by that snapshot; Unverified if its commit's attestation does not have it."""
        index, attested = self._commit(snapshot_id, path)
        found = next((entry for entry in (attested.manifest_list, *attested.entries) if entry.path == path), None)
        if found is None:
            raise Unverified(f"{path} is not among what commit {index} of {self._table} wrote", subject=path)
        self._expected[path] = (index, found)

    def read(self, path: str) -> bytes:
        """The object's bytes, if they are those that were attested; Unverified, naming it, if not."""
        if path not in self._expected:
            raise Unverified(
                f"{path} was not added by any commit of {self._table} that is in the timeline", subject=path
            )
        index, entry = self._expected[path]
        try:
            data = self._store.get_range(path, 0, entry.length)
        except FileNotFoundError:
            raise Unverified(f"{path} is gone, but commit {index} of {self._table} added it", subject=path) from None
        if len(data) != entry.length or sha256(data).hexdigest() != entry.sha256:
            raise Unverified(
                f"{path} is not what commit {index} of {self._table} wrote: it was altered after that", subject=path
            )
        with self._lock:
            self.evidence.objects.append(Checked(path, entry.length, entry.sha256, index))
        return data

    def new_input(self, location: str) -> InputFile:
        return BytesInput(location, self.read)

    def new_output(self, location: str) -> Any:
        raise NotImplementedError("a query writes nothing")

    def delete(self, location: Any) -> None:
        raise NotImplementedError("a query writes nothing")

    def _commit(self, snapshot_id: int | None, path: str) -> tuple[int, Attestation]:
        if snapshot_id is None:
            raise Unverified(f"the metadata of {self._table} does not say which commit added {path}", subject=path)
        with self._lock:
            if snapshot_id not in self._commits:
                self._commits[snapshot_id] = self._load(snapshot_id, path)
            return self._commits[snapshot_id]

    def _load(self, snapshot_id: int, path: str) -> tuple[int, Attestation]:
        index, leaf = self._leaf(snapshot_id, path)
        found = self._attestations.staged(leaf.table_uuid, snapshot_id)
        says = (leaf.manifest_list_sha256, leaf.content_root, leaf.content_count)
        if found is None or says != (found.manifest_list.sha256, found.content_root, len(found.entries)):
            raise Unverified(
                f"the attestation of commit {index} of {leaf.table} is gone, or is not the one its leaf was made from",
                subject=path,
            )
        return index, found

    def _leaf(self, snapshot_id: int, path: str) -> tuple[int, Leaf]:
        try:
            try:
                index, _ = self._timeline.find(snapshot_id, self._table)
            except NotFound:
                index, _ = self._timeline.find(snapshot_id)  # a clone's files are their source's commits
        except NotFound:
            raise Unverified(
                f"snapshot {snapshot_id} of {self._table}, which added {path}, is not in the timeline", subject=path
            ) from None
        self.evidence.proofs[index] = self._timeline.proof(index)
        return index, self._timeline.commit(index)


class CheckedManifests(ManifestReader):
    """Manifests through checked bytes, remembered by nobody; what they name is expected from then on."""

    def __init__(self, checked: CheckedIO) -> None:
        super().__init__()
        self._checked = checked

    def manifests(self, io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
        if snapshot is None:
            return []
        self._checked.expect(snapshot.manifest_list, snapshot.snapshot_id)
        found = list(read_manifest_list(self._checked.new_input(snapshot.manifest_list)))
        for manifest in found:
            self._checked.expect(manifest.manifest_path, manifest.added_snapshot_id)
        return found

    def entries(self, io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
        found = manifest.fetch_manifest_entry(self._checked, discard_deleted=True)
        for entry in found:
            self._checked.expect(entry.data_file.file_path, entry.snapshot_id)
        return found


class BytesInput(InputFile):
    """An object whose bytes come from a function, once."""

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
