"""One table of the lake, walked from a metadata file to every object its snapshots reach. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from typing import Any, Protocol

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import NotFound
from catalog.timeline.attest import CHUNK, Entry, _Bytes, _InMemory
from catalog.timeline.away import explained
from catalog.timeline.faults import Crew, Fault
from catalog.timeline.leaf import Leaf


@dataclass(frozen=True)
class Commit:
    """A commit that added objects: its leaf, and what it attests of each, by path."""

    index: int
    leaf: Leaf
    entries: dict[str, Entry]
    manifest_list: Entry | None

    def fault(self, path: str, what: str) -> Fault:
        return Fault(path, what, self.index, self.leaf.table, self.leaf.snapshot_id)


class Run(Protocol):
    """What a walk asks of the verification it is part of."""

    start: int
    size: int
    uncovered: int

    def commits(self, snapshot_id: int, uuid: str) -> Iterator[tuple[int, Leaf]]: ...

    def commit(self, index: int, leaf: Leaf) -> Commit | Fault: ...

    def count(self, length: int) -> None: ...


class TableWalk:
    """One table, from one metadata file. `wrong`: faults for certain; `gone`: if nothing moved meanwhile."""

    def __init__(self, run: Run, uuid: str, name: str, io: FileIO) -> None:
        self.wrong = list[Fault]()
        self.gone = list[Fault]()
        self.metadata: TableMetadata | None = None
        self._run = run
        self._uuid = uuid
        self._name = name
        self._io = io
        self._seen = set[int]()  # hashes of paths: a file that many snapshots reach is read once

    def table(self, last: tuple[int, Leaf], location: str, crew: Crew, *, held: bool = False) -> None:
        """`held`: the timeline has only a part of what the metadata says, because a transaction waits."""
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
            what = "it cannot be read, so that what it refers to was not looked at"
            self.wrong.append(commit.fault(location, what))
            return
        self.metadata = metadata
        self.snapshots(metadata, crew)
        for snapshot in () if held else metadata.snapshots:
            if next(self._run.commits(snapshot.snapshot_id, self._uuid), None) is None:
                what = f"it has the snapshot {snapshot.snapshot_id}, of which there is no leaf"
                self.wrong.append(commit.fault(location, what))

    def snapshots(self, metadata: TableMetadata, crew: Crew) -> None:
        """All that the snapshots reach, as far as it was added by the commits in question."""
        for snapshot in metadata.snapshots:
            commit = self._commit_of(snapshot.snapshot_id)
            if commit is not None and self._run.start <= commit.index < self._run.size:
                self._snapshot(snapshot, commit, crew)

    def _snapshot(self, snapshot: Snapshot, commit: Commit, crew: Crew) -> None:
        path = snapshot.manifest_list
        data = self._read(path, commit)
        sound = data is not None and sha256(data).hexdigest() == commit.leaf.manifest_list_sha256
        if data is not None and not sound:
            self.wrong.append(commit.fault(path, "its bytes are not those that were committed"))
        manifests = _parsed(lambda: list(read_manifest_list(_Bytes(path, data or b""))))
        if not sound or manifests is None:
            # What it lists cannot be relied on. What its commit added is known all the same.
            self._attested(commit, crew)
        for manifest in manifests or []:
            adder = self._adder(manifest.added_snapshot_id, manifest.manifest_path)
            if adder is not None and adder.index >= self._run.start and self._first_time(manifest.manifest_path):
                self._manifest(manifest, adder, crew)

    def _manifest(self, manifest: ManifestFile, adder: Commit, crew: Crew) -> None:
        data = self._compare(manifest.manifest_path, adder)
        entries = _parsed(lambda: manifest.fetch_manifest_entry(_InMemory(data or b""), discard_deleted=True))
        if entries is None or data is None:
            self._attested(adder, crew)
        for entry in entries or []:
            path = entry.data_file.file_path
            if self._first_time(path):
                commit = self._adder(entry.snapshot_id or manifest.added_snapshot_id, path)
                if commit is not None and commit.index >= self._run.start:
                    crew.submit(self._stream, path, commit)

    def _attested(self, commit: Commit, crew: Crew) -> None:
        for path in commit.entries:
            if self._first_time(path):
                crew.submit(self._stream, path, commit)

    def _commit_of(self, snapshot_id: int) -> Commit | None:
        for index, leaf in self._run.commits(snapshot_id, self._uuid):
            found = self._run.commit(index, leaf)
            if isinstance(found, Commit):
                return found
            self.wrong.append(found)
        return None

    def _adder(self, snapshot_id: int | None, path: str) -> Commit | None:
        """The commit that attests the object; None when none can be asked, which is counted or a fault."""
        of_table: Commit | None = None
        for index, leaf in self._run.commits(snapshot_id, self._uuid) if snapshot_id is not None else ():
            found = self._run.commit(index, leaf)
            if isinstance(found, Fault):
                self.wrong.append(found)
                return None
            if path in found.entries:
                return found
            of_table = of_table or found
        if of_table is not None:
            self.wrong.append(of_table.fault(path, "a snapshot reaches it, but its commit did not add it"))
        else:
            self._run.uncovered += 1
        return None

    def _first_time(self, path: str) -> bool:
        tag = hash(path)
        known = tag in self._seen
        self._seen.add(tag)
        return not known

    def _stream(self, path: str, commit: Commit) -> None:
        digest, length = sha256(), 0
        try:
            with explained(path), self._io.new_input(path).open() as stream:
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
                    length += len(chunk)
        except NotFound:
            self.gone.append(commit.fault(path, "it is gone"))
            return
        self._run.count(length)
        self._judge(path, commit, length, digest.hexdigest())

    def _compare(self, path: str, commit: Commit) -> bytes | None:
        """The object's bytes if they are right."""
        data = self._read(path, commit)
        if data is None:
            return None
        return data if self._judge(path, commit, len(data), sha256(data).hexdigest()) else None

    def _judge(self, path: str, commit: Commit, length: int, digest: str) -> bool:
        entry = commit.entries[path]
        if (length, digest) == (entry.length, entry.sha256):
            return True
        what = "its bytes are not those that were committed"
        if length != entry.length:
            what = f"it has {length} bytes, but {entry.length} were committed"
        self.wrong.append(commit.fault(path, what))
        return False

    def _read(self, path: str, commit: Commit) -> bytes | None:
        try:
            with explained(path), self._io.new_input(path).open() as stream:
                data = bytes(stream.read())
        except NotFound:
            self.gone.append(commit.fault(path, "it is gone"))
            return None
        self._run.count(len(data))
        return data


def _parsed(read: Callable[[], list[Any]]) -> list[Any] | None:
    """What a reader makes of bytes that may be damaged; None if nothing."""
    try:
        return read()
    except Exception:
        return None
