"""Walks one table from a metadata file to every object that its snapshots refer to. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Any, Protocol

from pyarrow.lib import ArrowException
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import LakeError, NotFound
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.sequencer.attestation import DIGEST_CHUNK_BYTES, ObjectDigest
from catalog.timeline.sequencer.bytes_file import BytesFile, BytesFileIO
from catalog.timeline.verify.erasures import Erasures
from catalog.timeline.verify.faults import BoundedPool, Fault
from catalog.timeline.verify.statistics import NotComparable, Statistics, false_statements


@dataclass(frozen=True)
class Commit:
    """A commit that added objects: its leaf, and the attested digest of each object, by path."""

    index: int
    leaf: Leaf
    entries: dict[str, ObjectDigest]
    manifest_list: ObjectDigest | None

    def fault(self, path: str, what: str) -> Fault:
        return Fault(path, what, self.index, self.leaf.table, self.leaf.snapshot_id)


class Verification(Protocol):
    """What a walk needs of the verification that it is part of."""

    start: int
    size: int

    def commits(self, snapshot_id: int, uuid: str) -> Iterator[tuple[int, Leaf]]: ...

    def commit(self, index: int, leaf: Leaf) -> Commit | Fault: ...

    def count_object(self, length: int) -> None: ...

    def count_uncovered(self) -> None: ...


class TableWalk:
    """Verifies one table from one metadata file.

    `wrong`: faults for certain. `missing`: faults only if the table has not changed since, for example by an expiry.
    `false`: statistics in manifests that the rows contradict. The objects are then as committed: the commit lied.
    """

    def __init__(self, verification: Verification, uuid: str, io: FileIO, erasures: Erasures | None = None) -> None:
        self.wrong = list[Fault]()
        self.missing = list[Fault]()
        self.false = list[Fault]()
        self.compared = list[str]()  # data files whose statistics were compared with their rows
        self.uncompared = list[str]()
        self.metadata: TableMetadata | None = None
        self._verification = verification
        self._uuid = uuid
        self._io = io
        self._erasures = Erasures() if erasures is None else erasures
        self._replaced = dict[
            int, tuple[Commit, int]
        ]()  # commits with a replaced manifest list, and the erasure's index
        self._visited = set[int]()  # hashes of paths: a file that many snapshots refer to is read once

    def table(self, last: tuple[int, Leaf], location: str, pool: BoundedPool, *, held: bool = False) -> None:
        """The metadata file and all that it refers to.

        `held`: the metadata has snapshots that are not in the timeline yet, because a transaction is incomplete.
        """
        index, leaf = last
        commit = Commit(index, leaf, {}, None)
        data = self._read(location, commit)
        if data is None:
            return
        if sha256(data).hexdigest() != leaf.metadata_sha256:
            self.wrong.append(commit.fault(location, "it is not the metadata file that was sequenced"))
        try:
            with Compressor.get_compressor(location).stream_decompressor(BytesIO(data)) as plain:
                metadata = TableMetadataUtil.parse_raw(plain.read().decode())
        except Exception:  # whatever a reader of damaged bytes raises
            what = "it cannot be parsed, so the objects that it refers to were not verified"
            self.wrong.append(commit.fault(location, what))
            return
        self.metadata = metadata
        self.snapshots(metadata, pool)
        for snapshot in () if held else metadata.snapshots:
            if next(self._verification.commits(snapshot.snapshot_id, self._uuid), None) is None:
                what = f"it has the snapshot {snapshot.snapshot_id}, which has no leaf"
                self.wrong.append(commit.fault(location, what))

    def snapshots(self, metadata: TableMetadata, pool: BoundedPool) -> None:
        """The objects of all snapshots, as far as the verified commits added them."""
        for snapshot in metadata.snapshots:
            commit = self._commit_of(snapshot.snapshot_id)
            if commit is not None and self._verification.start <= commit.index < self._verification.size:
                self._snapshot(snapshot, commit, pool)

    def _snapshot(self, snapshot: Snapshot, commit: Commit, pool: BoundedPool) -> None:
        path = snapshot.manifest_list
        data = self._read(path, commit)
        sound = data is not None and self._is_manifest_list_of(path, commit, data)
        if data is not None and not sound:
            self.wrong.append(commit.fault(path, "its bytes are not those that were committed"))
        manifests = _parsed(lambda: list(read_manifest_list(BytesFile(path, data or b""))))
        if not sound or manifests is None:
            # The list is not reliable. The attestation still names the objects that the commit added.
            self._verify_attested(commit, pool)
        for manifest in manifests or []:
            path = manifest.manifest_path
            added_by = self._commit_that_added(manifest.added_snapshot_id, path)
            if added_by is not None and added_by.index >= self._verification.start and self._first_visit(path):
                self._manifest(manifest, added_by, pool)

    def unshown(self, verified: Collection[int]) -> Iterator[Fault]:
        """Faults of snapshots whose objects an erasure replaced, if nothing shows that their other rows are the same.

        A replaced object is reached only through a replaced manifest list: any other list names what was attested.
        `verified`: the indexes of the leaves whose changes or rows were computed from the objects and are as stated.
        """
        for commit, erasure in self._replaced.values():
            if commit.index not in verified:
                what = (
                    f"its objects were replaced by the erasure of leaf {erasure}, and neither its changes nor its rows "
                    "could be computed: they may be others than were committed"
                )
                yield commit.fault(commit.manifest_list.path if commit.manifest_list else commit.leaf.table, what)

    def _is_manifest_list_of(self, path: str, commit: Commit, data: bytes) -> bool:
        digest, replacement = sha256(data).hexdigest(), self._erasures.replacement(path)
        if replacement is None:
            return digest == commit.leaf.manifest_list_sha256
        self._replaced[commit.index] = (commit, replacement.index)
        return (replacement.sha256, replacement.new_sha256) == (commit.leaf.manifest_list_sha256, digest)

    def _attested_path(self, path: str) -> str:
        """The path under which the object was attested: that of the object in whose place it stands."""
        replacement = self._erasures.replacement(path)
        return path if replacement is None else replacement.path

    def _manifest(self, manifest: ManifestFile, added_by: Commit, pool: BoundedPool) -> None:
        data = self._read_verified(manifest.manifest_path, added_by)
        entries = _parsed(lambda: manifest.fetch_manifest_entry(BytesFileIO(data or b""), discard_deleted=True))
        if entries is None or data is None:
            self._verify_attested(added_by, pool)
        for entry in entries or []:
            path = entry.data_file.file_path
            stated = Statistics.of(entry.data_file)
            # Another manifest may state something else about the same file.
            if self._first_visit(path, stated.key):
                pool.submit(self._verify_statistics, path, stated, added_by)
            if self._first_visit(path):
                commit = self._commit_that_added(entry.snapshot_id or manifest.added_snapshot_id, path)
                if commit is not None and commit.index >= self._verification.start:
                    pool.submit(self._verify_file, path, commit)

    def _verify_attested(self, commit: Commit, pool: BoundedPool) -> None:
        for path in commit.entries:
            if not self._erasures.is_gone(path) and self._first_visit(path):
                pool.submit(self._verify_file, path, commit)

    def _commit_of(self, snapshot_id: int) -> Commit | None:
        for index, leaf in self._verification.commits(snapshot_id, self._uuid):
            commit = self._verification.commit(index, leaf)
            if isinstance(commit, Commit):
                return commit
            self.wrong.append(commit)
        return None

    def _commit_that_added(self, snapshot_id: int | None, path: str) -> Commit | None:
        """The commit that attests the object; None, and a fault or a count of uncovered objects, if there is none."""
        without_path: Commit | None = None
        for index, leaf in self._verification.commits(snapshot_id, self._uuid) if snapshot_id is not None else ():
            commit = self._verification.commit(index, leaf)
            if isinstance(commit, Fault):
                self.wrong.append(commit)
                return None
            if path in commit.entries and self._erasures.replacement(path) is not None:
                self.wrong.append(commit.fault(path, "an erasure put another object in its place, under its own path"))
                return None
            if self._attested_path(path) in commit.entries:
                return commit
            without_path = without_path or commit
        if without_path is not None:
            self.wrong.append(without_path.fault(path, "a snapshot refers to it, but its commit did not add it"))
        else:
            self._verification.count_uncovered()
        return None

    def _first_visit(self, path: str, *more: Hashable) -> bool:
        tag = hash((path, *more))
        visited = tag in self._visited
        self._visited.add(tag)
        return not visited

    def _verify_file(self, path: str, commit: Commit) -> None:
        """Hashes a data or delete file, DIGEST_CHUNK_BYTES at a time, and compares it."""
        digest, length = sha256(), 0
        try:
            with translate_errors(path), self._io.new_input(path).open() as stream:
                while chunk := stream.read(DIGEST_CHUNK_BYTES):
                    digest.update(chunk)
                    length += len(chunk)
        except NotFound:
            self.missing.append(commit.fault(path, "it is missing"))
            return
        self._verification.count_object(length)
        self._is_as_committed(path, commit, length, digest.hexdigest())

    def _verify_statistics(self, path: str, stated: Statistics, commit: Commit) -> None:
        """Compares the manifest's statistics with the rows."""
        if not stated.is_data:
            return
        try:
            if not stated.is_parquet:
                raise NotComparable
            with translate_errors(path), self._io.new_input(path).open() as stream:
                for what in false_statements(stated, stream):
                    self.false.append(commit.fault(path, what))
            self.compared.append(path)
        except (LakeError, ArrowException, OSError, NotComparable):
            self.uncompared.append(path)  # if it is missing or damaged, _verify_file says so

    def _read_verified(self, path: str, commit: Commit) -> bytes | None:
        """The object's bytes; None, and a fault, if they are not those that were committed."""
        data = self._read(path, commit)
        if data is None:
            return None
        return data if self._is_as_committed(path, commit, len(data), sha256(data).hexdigest()) else None

    def _is_as_committed(self, path: str, commit: Commit, length: int, digest: str) -> bool:
        entry, expected = commit.entries[self._attested_path(path)], None
        if (replacement := self._erasures.replacement(path)) is not None:
            if (replacement.length, replacement.sha256) != (entry.length, entry.sha256):
                what = (
                    f"it stands for {entry.path}, but the erasure of leaf {replacement.index} replaced another object"
                )
                self.wrong.append(commit.fault(path, what))
                return False
            expected = (replacement.new_length, replacement.new_sha256)
        if (length, digest) == (expected or (entry.length, entry.sha256)):
            return True
        if replacement is not None:
            what = f"its bytes are not those that the erasure of leaf {replacement.index} put there"
            self.wrong.append(commit.fault(path, what))
            return False
        what = "its bytes are not those that were committed"
        if length != entry.length:
            what = f"it has {length} bytes, but {entry.length} were committed"
        self.wrong.append(commit.fault(path, what))
        return False

    def _read(self, path: str, commit: Commit) -> bytes | None:
        try:
            with translate_errors(path), self._io.new_input(path).open() as stream:
                data = bytes(stream.read())
        except NotFound:
            self.missing.append(commit.fault(path, "it is missing"))
            return None
        self._verification.count_object(len(data))
        return data


def _parsed(parse: Callable[[], list[Any]]) -> list[Any] | None:
    """The result of parsing bytes that may be damaged; None if that raises."""
    try:
        return parse()
    except Exception:
        return None
