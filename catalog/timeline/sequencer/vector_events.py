"""A vector table's head as the timeline reads it, and the leaves from the timeline's state of the table to that head.

A vector table has its own sequence of leaves, under the name of its objects in the bucket:
`vectors/<database>.<table>.<column>`, which no Iceberg table can have. Each version that its head offers to readers is
a leaf with operation `vectors`: `snapshot_id` is the source table's snapshot that the version holds,
`manifest_list_sha256` is over Lance's manifest of the version, `content_root` over the manifest's path, length and
digest, `schema_sha256` over what the table was made from, and `metadata_sha256` over the head object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from catalog.core import s3_layout
from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Unverified
from catalog.core.vector_head import Head, VectorVersion
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.log.leaf import MAIN, Leaf, canonical_sha256
from catalog.timeline.sequencer.attestation import ObjectDigest
from catalog.timeline.sequencer.table_state import TableState

VECTOR_VERSION_OPERATION = "vectors"
"""The operation of a leaf for a version of a vector table."""


def is_vector_table(name: str) -> bool:
    """Whether a table name of the timeline is that of a vector table."""
    return name.startswith(s3_layout.VECTORS)


def vector_table_name(id_: str) -> str:
    """
    >>> vector_table_name("silver.notes.text")
    'vectors/silver.notes.text'
    """
    return s3_layout.VECTORS + id_


def head_key(name: str) -> str:
    """
    >>> head_key("vectors/silver.notes.text")
    'vectors/silver.notes.text.json'
    """
    return f"{name}.json"


def manifest_key(name: str, version: int) -> str:
    """The key of Lance's manifest of a version: names count down from 2**64 - 1, so that the newest is listed first.

    >>> manifest_key("vectors/silver.notes.text", 1)
    'vectors/silver.notes.text.lance/_versions/18446744073709551614.manifest'
    """
    return f"{name}.lance/_versions/{2**64 - 1 - version}.manifest"


@dataclass(frozen=True, slots=True)
class VectorHead:
    """A head, parsed: digests of its bytes and of what the table was made from, and its versions, oldest first."""

    uuid: str
    sha256: str
    identity_sha256: str
    offered: tuple[VectorVersion, ...]

    @classmethod
    def parse(cls, data: bytes, name: str) -> VectorHead:
        """Unverified when the bytes are not a head."""
        head = Head.parse(data, head_key(name), name)
        offered = sorted(head.entries, key=lambda version: version.version)
        return cls(head.uuid, sha256(data).hexdigest(), canonical_sha256(head.identity), tuple(offered))


def manifest_root(manifest: ObjectDigest) -> str:
    """`content_root` of a version: the manifest is the only object that its leaf covers."""
    return root([leaf_hash(manifest.line())]).hex()


def vector_leaves(
    name: str,
    location: str,
    head: VectorHead,
    state: TableState | None,
    read_manifest: Callable[[VectorVersion], ObjectDigest],
    now_ms: int,
) -> tuple[list[Leaf], TableState]:
    """The leaves that lead from `state` to the head, and the state after them. No leaves when the head is unchanged.

    `read_manifest` digests a version's manifest. A version offered and withdrawn between two inspections has no leaf.
    """
    before = state or TableState(name)
    current = before.refs.get(MAIN, ("", None))[1]
    leaves = list[Leaf]()

    def add(operation: str, snapshot_id: int | None, ms: int, manifest: ObjectDigest | None = None) -> None:
        sequence = before.sequence + len(leaves)
        leaves.append(_leaf(name, head, operation, snapshot_id, current, sequence, ms, manifest))

    if state is None or state.dropped:
        add("create" if state is None else "rename", current, head.offered[0].refreshed_ms if head.offered else now_ms)
    last_version = before.log[0] if before.log is not None else 0
    log = before.log
    for offered in head.offered:
        if offered.version > last_version:
            add(VECTOR_VERSION_OPERATION, offered.snapshot_id, offered.refreshed_ms, read_manifest(offered))
            current, log = offered.snapshot_id, (offered.version, offered.snapshot_id)
    if not leaves and head.sha256 != before.metadata_sha256:
        add("metadata", current, now_ms)  # versions were withdrawn
    after = replace(
        before,
        name=name,
        sequence=before.sequence + len(leaves),
        refs={} if current is None else {MAIN: ("branch", current)},
        schema_sha256=head.identity_sha256,
        log=log,
        metadata_location=location,
        metadata_sha256=head.sha256,
        dropped=False,
    )
    return leaves, after


def _leaf(
    name: str,
    head: VectorHead,
    operation: str,
    snapshot_id: int | None,
    parent_id: int | None,
    sequence: int,
    committed_ms: int,
    manifest: ObjectDigest | None,
) -> Leaf:
    return Leaf(
        table=name,
        table_uuid=head.uuid,
        snapshot_id=snapshot_id,
        parent_id=parent_id,
        sequence=sequence,
        committed_ms=committed_ms,
        sequenced_ms=0,
        operation=operation,
        ref=MAIN,
        schema_sha256=head.identity_sha256,
        metadata_sha256=head.sha256,
        manifest_list_sha256=None if manifest is None else manifest.sha256,
        content_root=None if manifest is None else manifest_root(manifest),
        content_count=0 if manifest is None else 1,
    )


@dataclass(frozen=True)
class VectorObjects:
    """Heads and manifests in the lake's bucket. Reads only."""

    s3: Any
    bucket: str

    def location(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def read(self, key: str) -> bytes:
        """One GET. NotFound when there is no such object."""
        with translate_errors(self.location(key)):
            body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return body

    def manifest(self, name: str, version: int) -> ObjectDigest:
        """The digest of Lance's manifest of a version. One GET."""
        key = manifest_key(name, version)
        data = self.read(key)
        return ObjectDigest(self.location(key), len(data), sha256(data).hexdigest())

    def checked_manifest(self, name: str, version: VectorVersion) -> ObjectDigest:
        """A version's manifest; Unverified when its digest is not the one that the head states."""
        manifest = self.manifest(name, version.version)
        if manifest.sha256 != version.manifest_sha256:
            raise Unverified(
                f"{manifest.path} does not have the digest that the head of {name} states", subject=manifest.path
            )
        return manifest

    def names(self) -> list[str]:
        """The names of all vector tables, by listing their heads: one request per thousand."""
        with translate_errors(self.location(s3_layout.VECTORS)):
            pages = self.s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=s3_layout.VECTORS, Delimiter="/"
            )
            keys = [str(listed["Key"]) for page in pages for listed in page.get("Contents", ())]
        return [key.removesuffix(".json") for key in keys if key.endswith(".json")]
