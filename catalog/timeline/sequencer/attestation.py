"""The attestation: the digest of every object that a commit added, and the root over them that its leaf contains.

It is stored as text, one JSON value per line: a header, then one entry `[path, length, sha256]` per object, sorted by
path. `content_root` is the RFC 6962 root over the entry lines, so that checking it takes only the file and SHA-256. A
writer stages it with its commit. The sequencer computes it from the objects, with the same bytes, whenever it can
compute the commit's row changes; a staged one is believed for commits that are too large for that, and for their data
files only: digests of metadata are always computed. The leaf says which it was (`attested`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import rfc8785
from botocore.exceptions import ClientError
from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile, read_manifest_list
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, lost_race
from catalog.core.errors import NotFound, Unverified
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.log.leaf import ATTESTED_BY_LAKE, ATTESTED_BY_WRITER
from catalog.timeline.sequencer.bytes_file import BytesFile, BytesFileIO

FORMAT = "strandline/attestation@v1"
PREFIX = s3_layout.ATTESTATIONS
DIGEST_CHUNK_BYTES = 4 << 20
WORKERS = 4
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ChangesDigest:
    """The root, in hex, over the row changes between two snapshots of a table, and their count.

    `records`: the changes themselves, 97 bytes each (docs/row-digest.md), if they were asked for.
    """

    root: str
    count: int
    records: bytes = field(default=b"", compare=False, repr=False)


class Miscounted(NamedTuple):
    """A data file whose number of rows is not the one that its manifest states."""

    path: str
    stated: int
    rows: int


@dataclass(frozen=True, slots=True)
class RecomputedChanges:
    """The changes of a commit, recomputed from its files, and the files whose manifest states a wrong row count."""

    root: str
    count: int
    miscounted: tuple[Miscounted, ...] = ()
    records: bytes = field(default=b"", repr=False)
    """Of the changes that are shown: 97 bytes each."""
    shown: int = 0
    """How many changes are shown: `count` without those that an erasure took away."""


class ComputeChanges(Protocol):
    """Computes the row changes between two snapshots, from their files alone: catalog.changes.changes_of.

    None when they are too many to compute here, or cannot be determined exactly. A parameter, because catalog.changes
    is a layer above this one and imports it.
    """

    def __call__(
        self, table: Table, since: Snapshot | None, until: Snapshot, schema_id: int, /
    ) -> ChangesDigest | None: ...


class ObjectDigest(NamedTuple):
    """One object that the commit added."""

    path: str
    length: int
    sha256: str

    def line(self) -> bytes:
        return rfc8785.dumps([self.path, self.length, self.sha256])


@dataclass(frozen=True, slots=True)
class Attestation:
    """All objects that one commit added, without the manifest list, which names them and has its own digest."""

    table_uuid: str
    snapshot_id: int
    manifest_list: ObjectDigest
    entries: tuple[ObjectDigest, ...]
    changes_root: str | None = None
    changes_count: int | None = None

    def with_changes(self, changed: ChangesDigest | None) -> Attestation:
        return self if changed is None else replace(self, changes_root=changed.root, changes_count=changed.count)

    def has_objects_of(self, other: Attestation) -> bool:
        """Whether the other is of the same commit and the same objects, whatever changes it states."""
        return replace(self, changes_root=None, changes_count=None) == replace(
            other, changes_root=None, changes_count=None
        )

    @property
    def changed(self) -> ChangesDigest | None:
        if self.changes_root is None or self.changes_count is None:
            return None
        return ChangesDigest(self.changes_root, self.changes_count)

    @property
    def content_root(self) -> str:
        return root(leaf_hash(entry.line()) for entry in self.entries).hex()

    def encode(self) -> bytes:
        header: dict[str, Any] = {
            "format": FORMAT,
            "table_uuid": self.table_uuid,
            "snapshot_id": str(self.snapshot_id),
            "manifest_list": list(self.manifest_list),
            "changes_root": self.changes_root,
            "changes_count": self.changes_count,
        }
        lines = [rfc8785.dumps(header), *(entry.line() for entry in self.entries)]
        return b"\n".join(lines) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Attestation:
        """Parses an attestation strictly: Unverified unless the bytes are what `encode` would write."""
        try:
            header, *lines = (json.loads(line) for line in data.split(b"\n")[:-1])
            attestation = cls(
                header["table_uuid"],
                int(header["snapshot_id"]),
                ObjectDigest(*header["manifest_list"]),
                tuple(ObjectDigest(*line) for line in lines),
                header["changes_root"],
                header["changes_count"],
            )
            attestation._check_types()
            if attestation.encode() != data:
                raise ValueError("it is not in its canonical form")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Unverified(f"not an attestation: {data[:80]!r} ({error})") from None
        return attestation

    def _check_types(self) -> None:
        """ValueError for values that no leaf may have: a writer stages what it likes, and the leaf is signed."""
        if type(self.table_uuid) is not str or not -(2**63) <= self.snapshot_id < 2**63:
            raise ValueError("its table or snapshot is not an id")
        for path, length, digest in (self.manifest_list, *self.entries):
            if type(path) is not str or not _is_count(length) or not _is_digest(digest):
                raise ValueError(f"the object {path!r:.80} has not a length and a SHA-256")
        changes = (self.changes_root, self.changes_count)
        if changes != (None, None) and not (_is_digest(changes[0]) and _is_count(changes[1])):
            raise ValueError("its changes have not a root and a count")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_digest(value: object) -> bool:
    return type(value) is str and _SHA256.fullmatch(value) is not None


def attestation_key(table_uuid: str, snapshot_id: int) -> str:
    """The attestation's key in the lake's bucket: `attest/<table-uuid>/<snapshot-id>`."""
    return f"{PREFIX}{table_uuid}/{snapshot_id}"


def compute(
    table_uuid: str,
    snapshot: Snapshot,
    io: FileIO,
    staged: Attestation | None = None,
    read: Mapping[str, ObjectDigest] = MappingProxyType({}),
) -> Attestation:
    """The attestation of a snapshot, computed from its objects, with WORKERS * DIGEST_CHUNK_BYTES of memory at most.

    Reads the manifest list and the manifests that the snapshot added. Also reads every data and delete file that it
    added, except those in `read`, which the caller has read; and none if `staged` has exactly the objects that the
    manifests name, with the lengths that they state. Raises Unverified when an object's length differs from the
    metadata, NotFound when one is missing.
    """
    listing = _read(io, snapshot.manifest_list)
    manifests = [
        manifest
        for manifest in read_manifest_list(BytesFile(snapshot.manifest_list, listing))
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
            computed_digests = pool.map(lambda path: _digest(io, path, files[path], read.get(path)), files)
            digests = {entry.path: entry for entry in computed_digests}
    entries = sorted([*added, *digests.values()])
    manifest_list = ObjectDigest(snapshot.manifest_list, len(listing), sha256(listing).hexdigest())
    computed = Attestation(table_uuid, snapshot.snapshot_id, manifest_list, tuple(entries))
    if staged is not None and computed.has_objects_of(staged):
        return staged  # its changes are accepted only when its objects are right
    return computed


@dataclass(frozen=True)
class Attestations:
    """The staged attestations in the lake's bucket. One does not change once its leaf is sequenced."""

    s3: Any
    bucket: str

    def stage(self, attestation: Attestation) -> None:
        """Writes the attestation, in one PUT, unless the commit has one already, which `load` then checks."""
        try:
            self._put(attestation, IfNoneMatch="*")
        except ClientError as error:
            if not lost_race(error):
                raise

    def staged(self, table_uuid: str, snapshot_id: int) -> Attestation | None:
        """The attestation staged for the commit, unchecked; None when there is none, or it cannot be parsed."""
        try:
            response = self.s3.get_object(Bucket=self.bucket, Key=attestation_key(table_uuid, snapshot_id))
            return Attestation.decode(response["Body"].read())
        except Unverified:
            return None
        except ClientError as error:
            if is_missing(error):
                return None
            raise

    def load(
        self,
        table_uuid: str,
        snapshot: Snapshot,
        io: FileIO,
        changes: Callable[[FileIO], ChangesDigest | None] = lambda _: None,
        *,
        believe_changes: bool = True,
    ) -> tuple[Attestation, str | None]:
        """The commit's attestation, and who computed it (a leaf's `attested`). Stores it unless the staged one has the
        same objects.

        `changes` computes the commit's row changes through the FileIO that it is given; None if it cannot. If it can,
        everything is computed from the objects. Otherwise the staged attestation is believed, if it has exactly the
        commit's objects, and its changes if `believe_changes`. Costs one GET for the staged attestation, one for the
        manifest list, one per added manifest, and what `changes` reads.
        """
        staged = self.staged(table_uuid, snapshot.snapshot_id)
        reading = DigestingIO(io)
        if (changed := changes(reading)) is not None:
            attestation = compute(table_uuid, snapshot, io, read=reading.digests).with_changes(changed)
        else:
            attestation = compute(table_uuid, snapshot, io, staged)
            if not believe_changes:
                attestation = replace(attestation, changes_root=None, changes_count=None)
        if staged is None or not attestation.has_objects_of(staged):
            # Objects never change, so any other process that computes it writes the same ones. The changes may differ:
            # a sequencer that was fenced compares with another parent. So they alone are no reason to write, and the
            # leaf is their only record.
            self._put(attestation)
        if attestation.changed is None:
            return attestation, None
        return attestation, ATTESTED_BY_WRITER if changed is None else ATTESTED_BY_LAKE

    def _put(self, attestation: Attestation, **condition: str) -> None:
        self.s3.put_object(
            Bucket=self.bucket,
            Key=attestation_key(attestation.table_uuid, attestation.snapshot_id),
            Body=attestation.encode(),
            ContentType="application/jsonl",
            **condition,
        )


def _staged_digests(
    staged: Attestation | None,
    table_uuid: str,
    snapshot: Snapshot,
    manifests: Sequence[ObjectDigest],
    files: dict[str, int],
) -> dict[str, ObjectDigest] | None:
    """The staged digests of the data files; None unless the attestation is of this commit and exactly its objects."""
    if staged is None or (staged.table_uuid, staged.snapshot_id) != (table_uuid, snapshot.snapshot_id):
        return None
    expected = {entry.path: entry for entry in manifests}
    data_files = {entry.path: entry for entry in staged.entries if expected.get(entry.path) != entry}
    if len(staged.entries) != len(expected) + len(files):
        return None
    return data_files if {path: entry.length for path, entry in data_files.items()} == files else None


def _added_files(manifest: ManifestFile, data: bytes, snapshot_id: int) -> dict[str, int]:
    """Path -> length of each data and delete file that the snapshot added, according to its manifest."""
    entries = manifest.fetch_manifest_entry(BytesFileIO(data), discard_deleted=True)
    return {
        entry.data_file.file_path: entry.data_file.file_size_in_bytes
        for entry in entries
        if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
    }


def _checked(path: str, stated: int, length: int, digest: str) -> ObjectDigest:
    if length != stated:
        raise Unverified(f"{path} has {length} bytes, but its table's metadata states {stated}", subject=path)
    return ObjectDigest(path, length, digest)


def _read(io: FileIO, path: str) -> bytes:
    with _opened(io, path) as stream:
        return bytes(stream.read())


def _digest(io: FileIO, path: str, stated: int, read: ObjectDigest | None) -> ObjectDigest:
    if read is not None:
        return _checked(path, stated, read.length, read.sha256)
    digest, length = sha256(), 0
    with _opened(io, path) as stream:
        while chunk := stream.read(DIGEST_CHUNK_BYTES):  # at the end no request is made: the length is known
            digest.update(chunk)
            length += len(chunk)
    return _checked(path, stated, length, digest.hexdigest())


@contextmanager
def _opened(io: FileIO, path: str) -> Iterator[Any]:
    try:
        with io.new_input(path).open() as stream:
            yield stream
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist, but a snapshot refers to it", subject=path) from None


class DigestingIO(FileIO):
    """A FileIO that reads objects whole, with one request for small ones, and keeps the digest of each.

    Memory: the objects that are open. What is computed through it is computed from the bytes of `digests`.
    """

    def __init__(self, io: FileIO) -> None:
        super().__init__(io.properties)
        self.digests = dict[str, ObjectDigest]()
        self._io = io

    def new_input(self, location: str) -> InputFile:
        data = _read(self._io, location)
        self.digests[location] = ObjectDigest(location, len(data), sha256(data).hexdigest())
        return BytesFile(location, data)

    def new_output(self, location: str) -> Any:
        raise NotImplementedError("the sequencer writes no object of a table")

    def delete(self, location: Any) -> None:
        raise NotImplementedError("the sequencer deletes no object of a table")
