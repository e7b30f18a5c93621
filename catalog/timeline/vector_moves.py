"""A vector table's head as the timeline reads it, and the leaves that lead to it from what the timeline has.

A vector table has a chain of leaves of its own, under the name its objects have in the bucket:
`vectors/<database>.<table>.<column>`, which no Iceberg table can bear. Each version that its head offers to readers
is a leaf `vectors`: `snapshot_id` is the snapshot of the source that the version holds, `manifest_list_sha256` is over
Lance's manifest of it, `content_root` over the manifest's path, length and digest, `schema_sha256` over what the table
was made from, and `metadata_sha256` over the head in which the sequencer saw all this.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from catalog import places
from catalog.errors import Unverified
from catalog.merkle.tree import leaf_hash, root
from catalog.timeline.attest import Entry
from catalog.timeline.away import explained
from catalog.timeline.leaf import MAIN, Leaf, canonical_sha256
from catalog.timeline.moves import TableState

VERSION = "vectors"
"""The operation of a leaf that offers a version."""
_IDENTITY = ("table", "table_uuid", "column", "key", "columns", "embedder", "dimensions")


def is_vectors(name: str) -> bool:
    """Whether a name in the timeline is a vector table's."""
    return name.startswith(places.VECTORS)


def name_of(id_: str) -> str:
    """
    >>> name_of("silver.notes.text")
    'vectors/silver.notes.text'
    """
    return places.VECTORS + id_


def head_key(name: str) -> str:
    """
    >>> head_key("vectors/silver.notes.text")
    'vectors/silver.notes.text.json'
    """
    return f"{name}.json"


def manifest_key(name: str, version: int) -> str:
    """Where Lance keeps the manifest of a version: names count down from 2**64 - 1, so that the newest lists first.

    >>> manifest_key("vectors/silver.notes.text", 1)
    'vectors/silver.notes.text.lance/_versions/18446744073709551614.manifest'
    """
    return f"{name}.lance/_versions/{2**64 - 1 - version}.manifest"


@dataclass(frozen=True, slots=True)
class Offered:
    """One version that a head offers."""

    snapshot_id: int
    version: int
    manifest_sha256: str
    refreshed_ms: int


@dataclass(frozen=True, slots=True)
class VectorHead:
    """A head: the digests of its bytes and of what the table was made from, and its versions, oldest first."""

    uuid: str
    sha256: str
    identity_sha256: str
    offered: tuple[Offered, ...]

    @classmethod
    def parse(cls, data: bytes, name: str) -> VectorHead:
        """Unverified when it is no head: what it offers cannot be sequenced, and nothing is guessed."""
        try:
            record: dict[str, Any] = json.loads(data)
            offered = [
                Offered(
                    int(entry["snapshot_id"]),
                    int(entry["version"]),
                    str(entry["manifest_sha256"]),
                    int(entry["refreshed_ms"]),
                )
                for entry in record["entries"]
            ]
            return cls(
                str(UUID(record["uuid"])),
                sha256(data).hexdigest(),
                canonical_sha256({field: record[field] for field in _IDENTITY}),
                tuple(sorted(offered, key=lambda one: one.version)),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unverified(f"{head_key(name)} is not the head of a vector table: {error}", subject=name) from None


def manifest_root(manifest: Entry) -> str:
    """`content_root` of a version: the manifest is the one object its leaf speaks of."""
    return root([leaf_hash(manifest.line())]).hex()


def vector_leaves(
    name: str,
    location: str,
    head: VectorHead,
    state: TableState | None,
    manifest_of: Callable[[Offered], Entry],
    now_ms: int,
) -> tuple[list[Leaf], TableState]:
    """The leaves that lead from `state` to the head, and the state after them. No leaf: the head is the known one.

    `manifest_of` reads a manifest and gives what it found. A version offered and withdrawn between two looks leaves
    no leaf.
    """
    before = state or TableState(name)
    stood = before.refs.get(MAIN, ("", None))[1]
    found = list[Leaf]()

    def add(operation: str, snapshot_id: int | None, ms: int, manifest: Entry | None = None) -> None:
        found.append(
            Leaf(
                table=name,
                table_uuid=head.uuid,
                snapshot_id=snapshot_id,
                parent_id=stood,
                sequence=before.sequence + len(found),
                committed_ms=ms,
                sequenced_ms=0,
                operation=operation,
                ref=MAIN,
                schema_sha256=head.identity_sha256,
                metadata_sha256=head.sha256,
                manifest_list_sha256=None if manifest is None else manifest.sha256,
                content_root=None if manifest is None else manifest_root(manifest),
                content_count=0 if manifest is None else 1,
            )
        )

    if state is None or state.dropped:
        add("create" if state is None else "rename", stood, head.offered[0].refreshed_ms if head.offered else now_ms)
    known = before.log[0] if before.log is not None else 0
    log = before.log
    for offered in head.offered:
        if offered.version > known:
            add(VERSION, offered.snapshot_id, offered.refreshed_ms, manifest_of(offered))
            stood, log = offered.snapshot_id, (offered.version, offered.snapshot_id)
    if not found and head.sha256 != before.metadata_sha256:
        add("metadata", stood, now_ms)  # versions were withdrawn
    after = replace(
        before,
        name=name,
        sequence=before.sequence + len(found),
        refs={} if stood is None else {MAIN: ("branch", stood)},
        schema_sha256=head.identity_sha256,
        log=log,
        metadata_location=location,
        metadata_sha256=head.sha256,
        dropped=False,
    )
    return found, after


@dataclass(frozen=True)
class VectorObjects:
    """Heads and manifests in the lake's bucket. Reads only."""

    s3: Any
    bucket: str

    def location(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def read(self, key: str) -> bytes:
        """NotFound when it is not there."""
        with explained(self.location(key)):
            body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return body

    def manifest(self, name: str, version: int) -> Entry:
        """Lance's manifest of a version as it lies there."""
        key = manifest_key(name, version)
        data = self.read(key)
        return Entry(self.location(key), len(data), sha256(data).hexdigest())

    def attested(self, name: str, offered: Offered) -> Entry:
        """The manifest, if it is the one the head speaks of; what differs is never sequenced."""
        found = self.manifest(name, offered.version)
        if found.sha256 != offered.manifest_sha256:
            raise Unverified(f"{found.path} is not the manifest that the head of {name} speaks of", subject=found.path)
        return found

    def names(self) -> list[str]:
        """Every vector table, by listing the heads: a page of a thousand a request."""
        with explained(self.location(places.VECTORS)):
            pages = self.s3.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=places.VECTORS, Delimiter="/"
            )
            keys = [str(found["Key"]) for page in pages for found in page.get("Contents", ())]
        return [key.removesuffix(".json") for key in keys if key.endswith(".json")]
