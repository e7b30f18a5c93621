"""The attestation: the digest of every object a commit added, and the root over them that goes into its leaf.

As stored it is text, one JSON value per line: a head, then one entry `[path, length, sha256]` per object,
sorted by path. `content_root` is the RFC 6962 root over the entry lines, so a stranger needs the file and
SHA-256 only. A writer stages it next to its commit; whatever is missing or wrong is computed again from the
objects, to the same bytes. Staging saves the sequencer reading the data; it is never a reason to believe a
digest of metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple

import rfc8785
from botocore.exceptions import ClientError
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog import places
from catalog.errors import NotFound, Unverified
from catalog.merkle.tree import leaf_hash, root

FORMAT = "strandline/attestation@v1"
PREFIX = places.ATTESTATIONS
CHUNK = 4 << 20
WORKERS = 4


@dataclass(frozen=True, slots=True)
class Changed:
    """The root, in hex, over the changes of a table's rows from one snapshot to another, and how many they are."""

    root: str
    count: int


ChangesOf = Callable[[Table, Snapshot | None, Snapshot, int], Changed | None]
"""(table, from, to, schema id) -> what changed; None when that is too much to compute here, or has no exact answer.

Computed from the files alone. A callable, because change capture is a room above this one."""


class Entry(NamedTuple):
    """One object that the commit added."""

    path: str
    length: int
    sha256: str

    def line(self) -> bytes:
        return rfc8785.dumps([self.path, self.length, self.sha256])


@dataclass(frozen=True, slots=True)
class Attestation:
    """All objects one commit added. The manifest list has a digest of its own: it says what belongs here."""

    table_uuid: str
    snapshot_id: int
    manifest_list: Entry
    entries: tuple[Entry, ...]
    changes_root: str | None = None
    changes_count: int | None = None

    def with_changes(self, changed: Changed | None) -> Attestation:
        return self if changed is None else replace(self, changes_root=changed.root, changes_count=changed.count)

    @property
    def changed(self) -> Changed | None:
        if self.changes_root is None or self.changes_count is None:
            return None
        return Changed(self.changes_root, self.changes_count)

    @property
    def content_root(self) -> str:
        return root(leaf_hash(entry.line()) for entry in self.entries).hex()

    def encode(self) -> bytes:
        head: dict[str, Any] = {
            "format": FORMAT,
            "table_uuid": self.table_uuid,
            "snapshot_id": str(self.snapshot_id),
            "manifest_list": list(self.manifest_list),
            "changes_root": self.changes_root,
            "changes_count": self.changes_count,
        }
        lines = [rfc8785.dumps(head), *(entry.line() for entry in self.entries)]
        return b"\n".join(lines) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Attestation:
        """Reads an attestation, strictly: Unverified unless the bytes are what `encode` would write."""
        try:
            head, *lines = (json.loads(line) for line in data.split(b"\n")[:-1])
            found = cls(
                head["table_uuid"],
                int(head["snapshot_id"]),
                Entry(*head["manifest_list"]),
                tuple(Entry(*line) for line in lines),
                head["changes_root"],
                head["changes_count"],
            )
            if found.encode() != data:
                raise ValueError("it is not in its canonical form")
        except (ValueError, TypeError, KeyError) as error:
            raise Unverified(f"not an attestation: {data[:80]!r} ({error})") from None
        return found


def key_of(table_uuid: str, snapshot_id: int) -> str:
    """Where the attestation lies in the lake's bucket: `attest/<table-uuid>/<snapshot-id>`."""
    return f"{PREFIX}{table_uuid}/{snapshot_id}"


def compute(table_uuid: str, snapshot: Snapshot, io: FileIO, staged: Attestation | None = None) -> Attestation:
    """The attestation of a snapshot, from its objects; at most WORKERS chunks of CHUNK bytes in memory.

    Reads the manifest list, the manifests the snapshot added and, unless `staged` already has exactly the
    objects those name with the lengths they state, every data and delete file it added. Raises Unverified
    when an object is not as long as the metadata says, NotFound when one is gone.
    """
    listing = _read(io, snapshot.manifest_list)
    manifests = [
        manifest
        for manifest in read_manifest_list(_Bytes(snapshot.manifest_list, listing))
        if manifest.added_snapshot_id == snapshot.snapshot_id
    ]
    with ThreadPoolExecutor(WORKERS) as pool:
        contents = list(pool.map(lambda manifest: _read(io, manifest.manifest_path), manifests))
        added = [
            _checked(manifest.manifest_path, manifest.manifest_length, len(data), sha256(data).hexdigest())
            for manifest, data in zip(manifests, contents, strict=True)
        ]
        files = dict[str, int]()
        for manifest, data in zip(manifests, contents, strict=True):
            files |= _added_files(manifest, data, snapshot.snapshot_id)
        digests = _staged_digests(staged, table_uuid, snapshot, added, files)
        if digests is None:
            found = pool.map(lambda path: _digest(io, path, files[path]), files)
            digests = {entry.path: entry for entry in found}
    entries = sorted([*added, *digests.values()])
    manifest_list = Entry(snapshot.manifest_list, len(listing), sha256(listing).hexdigest())
    computed = Attestation(table_uuid, snapshot.snapshot_id, manifest_list, tuple(entries))
    if staged is not None and replace(staged, changes_root=None, changes_count=None) == computed:
        return staged  # only what is right about the objects is believed about the changes
    return computed


@dataclass(frozen=True)
class Attestations:
    """The staged attestations in the lake's bucket. Once its leaf is sequenced, one never changes."""

    s3: Any
    bucket: str

    def stage(self, attestation: Attestation) -> None:
        """Writes it unless one is there already, in one PUT. Whichever was first stays: `load` judges it."""
        try:
            self._put(attestation, IfNoneMatch="*")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 412:
                raise

    def staged(self, table_uuid: str, snapshot_id: int) -> Attestation | None:
        """What was staged for the commit, unchecked; None when there is nothing, or nothing readable."""
        try:
            answer = self.s3.get_object(Bucket=self.bucket, Key=key_of(table_uuid, snapshot_id))
            return Attestation.decode(answer["Body"].read())
        except Unverified:
            return None
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise

    def load(
        self, table_uuid: str, snapshot: Snapshot, io: FileIO, changes: Callable[[], Changed | None] = lambda: None
    ) -> Attestation:
        """The commit's attestation: the staged one if right, else computed from the objects, and staged.

        Right and staged: one GET here, one for the manifest list, one per added manifest. `changes` is asked
        for what a writer left out; it answers the same to everybody, so the bytes are the same, too.
        """
        staged = self.staged(table_uuid, snapshot.snapshot_id)
        found = compute(table_uuid, snapshot, io, staged)
        if found.changes_root is None and (changed := changes()) is not None:
            found = found.with_changes(changed)
        if found is not staged:
            # No leaf speaks of it yet. Whoever else computes it writes the same bytes.
            self._put(found)
        return found

    def _put(self, attestation: Attestation, **condition: str) -> None:
        self.s3.put_object(
            Bucket=self.bucket,
            Key=key_of(attestation.table_uuid, attestation.snapshot_id),
            Body=attestation.encode(),
            ContentType="application/jsonl",
            **condition,
        )


def _staged_digests(
    staged: Attestation | None,
    table_uuid: str,
    snapshot: Snapshot,
    manifests: Sequence[Entry],
    files: dict[str, int],
) -> dict[str, Entry] | None:
    """The staged digests of the data files, if it is of this commit and of exactly its objects."""
    if staged is None or (staged.table_uuid, staged.snapshot_id) != (table_uuid, snapshot.snapshot_id):
        return None
    expected = {entry.path: entry for entry in manifests}
    rest = {entry.path: entry for entry in staged.entries if expected.get(entry.path) != entry}
    if len(staged.entries) != len(expected) + len(files):
        return None
    return rest if {path: entry.length for path, entry in rest.items()} == files else None


def _added_files(manifest: ManifestFile, data: bytes, snapshot_id: int) -> dict[str, int]:
    """Path and length of each data and delete file the snapshot added, by its manifest."""
    entries = manifest.fetch_manifest_entry(_InMemory(data), discard_deleted=True)
    return {
        entry.data_file.file_path: entry.data_file.file_size_in_bytes
        for entry in entries
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
    }


def _checked(path: str, stated: int, length: int, digest: str) -> Entry:
    if length != stated:
        raise Unverified(f"{path} has {length} bytes, but its table's metadata says {stated}", subject=path)
    return Entry(path, length, digest)


def _read(io: FileIO, path: str) -> bytes:
    with _opened(io, path) as stream:
        return bytes(stream.read())


def _digest(io: FileIO, path: str, stated: int) -> Entry:
    digest, length = sha256(), 0
    with _opened(io, path) as stream:
        while chunk := stream.read(CHUNK):  # the stream knows its length: no request is made for the empty end
            digest.update(chunk)
            length += len(chunk)
    return _checked(path, stated, length, digest.hexdigest())


@contextmanager
def _opened(io: FileIO, path: str) -> Iterator[Any]:
    try:
        with io.new_input(path).open() as stream:
            yield stream
    except FileNotFoundError:
        raise NotFound(f"{path} is gone, but a snapshot needs it", subject=path) from None


class _Bytes(InputFile):
    """An object that was read already, so that its digest and its contents are of the same bytes."""

    def __init__(self, location: str, data: bytes) -> None:
        super().__init__(location)
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return BytesIO(self._data)


class _InMemory(FileIO):
    """A FileIO that has one object, whatever it is asked for."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def new_input(self, location: str) -> InputFile:
        return _Bytes(location, self._data)

    def new_output(self, location: str) -> Any:
        raise NotImplementedError("an object in memory is only read")

    def delete(self, location: Any) -> None:
        raise NotImplementedError("an object in memory is only read")
