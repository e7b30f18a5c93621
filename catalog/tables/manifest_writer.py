"""Writes manifests and manifest lists, for data files and for delete files, and merges small manifests.

pyiceberg writes manifests of data files only; it and Spark read both kinds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

from pydantic_core import to_json
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.io import OutputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg import CommitIO, ManifestReader
from catalog.tables.avro import Layout, PreparedOutput
from catalog.tables.glue_store import TableVersion

FORMAT_VERSION: Literal[2] = 2
COMPRESSION: Literal["deflate"] = "deflate"
# A manifest this long is not merged further: it is worth its own request when a scan is planned.
FULL_BYTES = 8 << 20
CACHED_LAYOUTS = 1000


class _Writer(ManifestWriterV2):
    """A version 2 manifest of data or delete files, in a layout prepared once per schema and partition spec."""

    def __init__(
        self, version: TableVersion, content: ManifestContent, spec_id: int, output: OutputFile, snapshot_id: int
    ) -> None:
        spec = version.metadata.specs()[spec_id]
        super().__init__(spec, version.schema, output, snapshot_id, COMPRESSION)
        self._content = content
        self._layout, self._header = _layout(version, spec_id)

    def content(self) -> ManifestContent:
        return self._content

    def new_writer(self) -> PreparedOutput:
        kind = "deletes" if self._content == ManifestContent.DELETES else "data"
        return PreparedOutput(self._output_file, self._layout, {**self._header, "content": kind})


_layouts: dict[tuple[str, int, int], tuple[Layout, dict[str, str]]] = {}


def _layout(version: TableVersion, spec_id: int) -> tuple[Layout, dict[str, str]]:
    key = (version.uuid, version.metadata.current_schema_id, spec_id)
    prepared = _layouts.get(key)
    if prepared is None:
        spec, schema = version.metadata.specs()[spec_id], version.schema
        partition = spec.partition_type(schema)
        stored, records = (
            manifest_entry_schema_with_data_file(v, data_file_with_partition(partition, v))
            for v in (FORMAT_VERSION, DEFAULT_READ_VERSION)
        )
        header = {
            "schema": schema.model_dump_json(),
            "partition-spec": to_json(spec.fields).decode(),
            "partition-spec-id": str(spec_id),
            "format-version": str(FORMAT_VERSION),
            AVRO_CODEC_KEY: COMPRESSION,
        }
        if len(_layouts) >= CACHED_LAYOUTS:
            _layouts.clear()
        prepared = _layouts[key] = (Layout("manifest_entry", stored, records), header)
    return prepared


class _ListWriter(ManifestListWriterV2):
    """A version 2 manifest list, in the one layout that all lists have."""

    layout = Layout("manifest_file", MANIFEST_LIST_FILE_SCHEMAS[2], MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION])

    def __enter__(self) -> _ListWriter:
        self._writer = PreparedOutput(self._output_file, self.layout, self._meta)
        self._writer.__enter__()
        return self

    def write_block(self, manifests: list[ManifestFile]) -> None:
        self._writer.write_block(manifests)


@dataclass
class ManifestPlan:
    """The manifests of a new snapshot: which are kept from its parent, and which are written."""

    version: TableVersion
    io: CommitIO
    reader: ManifestReader
    snapshot_id: int
    sequence: int
    kept: list[ManifestFile] = field(default_factory=list)

    def write(
        self,
        parent: Snapshot | None,
        added: Sequence[DataFile],
        removed: Iterable[ManifestEntry],
    ) -> list[ManifestFile]:
        """Writes the new manifests, and returns all manifests of the snapshot.

        A manifest with a removed file is rewritten. Added files are merged with manifests of the same content and
        partition spec and about as many files, once there are ten of those. So an entry is rewritten log(files)
        times over its life, and a scan opens at most 9 log(files) manifests.
        """
        removed_paths = {entry.data_file.file_path for entry in removed}
        old = [m for m in self.reader.manifests(self.io, parent) if m.has_added_files() or m.has_existing_files()]
        new: list[ManifestFile] = []
        for manifest in old:
            entries = self.reader.entries(self.io, manifest) if removed_paths else ()
            if any(entry.data_file.file_path in removed_paths for entry in entries):
                new.append(self._rewrite_without(manifest, removed_paths))
            else:
                self.kept.append(manifest)
        for (content, spec_id), files in _by_content_and_spec(added).items():
            new.append(self._write_merged(content, spec_id, files))
        return new + self.kept

    def write_list(self, parent: Snapshot | None, manifests: list[ManifestFile]) -> str:
        path = self.version.paths().new_metadata_location(f"snap-{self.snapshot_id}-0-{uuid4()}.avro")
        parent_id = parent.snapshot_id if parent else None
        output = self.io.new_output(path)
        with _ListWriter(output, self.snapshot_id, parent_id, self.sequence, COMPRESSION) as writer:
            prepared = [writer.prepare_manifest(manifest) for manifest in manifests]
            writer.write_block(prepared)
        self.reader.keep_list(path, prepared)
        return path

    def _write_merged(self, content: ManifestContent, spec_id: int, files: list[DataFile]) -> ManifestFile:
        """A manifest of the added files, merged with the small manifests that are due."""
        min_count = int(self.version.properties.get("commit.manifest.min-count-to-merge", 10))
        candidates = [m for m in self.kept if (m.content, m.partition_spec_id) == (content, spec_id)]
        merged: list[ManifestFile] = []
        count = len(files)
        while True:
            # Tier by tier: a merge that fills the next tier is merged with it in the same commit.
            tier = [m for m in candidates if m not in merged and _tier(_live_files(m)) == _tier(count)]
            small = [m for m in tier if m.manifest_length < FULL_BYTES]
            if len(small) + 1 < min_count:
                break
            merged += small
            count += sum(_live_files(m) for m in small)
        self.kept = [m for m in self.kept if m not in merged]
        existing = [entry for manifest in merged for entry in self.reader.entries(self.io, manifest)]
        return self._write(content, spec_id, files, existing, ())

    def _rewrite_without(self, manifest: ManifestFile, paths: set[str]) -> ManifestFile:
        entries = self.reader.entries(self.io, manifest)
        existing = [entry for entry in entries if entry.data_file.file_path not in paths]
        deleted = [entry for entry in entries if entry.data_file.file_path in paths]
        return self._write(ManifestContent(manifest.content), manifest.partition_spec_id, (), existing, deleted)

    def _write(
        self,
        content: ManifestContent,
        spec_id: int,
        added: Sequence[DataFile],
        existing: Sequence[ManifestEntry],
        deleted: Sequence[ManifestEntry],
    ) -> ManifestFile:
        path = self.version.paths().new_metadata_location(f"{uuid4()}-m0.avro")
        with _Writer(self.version, content, spec_id, self.io.new_output(path), self.snapshot_id) as writer:
            for file in added:
                # No sequence number: readers inherit the manifest's, which is this snapshot's.
                writer.add_entry(_entry(file, self.snapshot_id))
            for entry in existing:
                writer.existing(entry)
            for entry in deleted:
                writer.delete(entry)
        self.reader.keep(path, [*(_entry(file, self.snapshot_id, self.sequence) for file in added), *existing])
        return writer.to_manifest_file()


def rewrite_manifest(
    version: TableVersion, io: CommitIO, old: ManifestFile, entries: Sequence[ManifestEntry]
) -> ManifestFile:
    """A manifest in the place of an old one, with these entries, each with its status and sequence numbers."""
    path = version.paths().new_metadata_location(f"{uuid4()}-m0.avro")
    output, snapshot_id = io.new_output(path), old.added_snapshot_id or 0
    with _Writer(version, ManifestContent(old.content), old.partition_spec_id, output, snapshot_id) as writer:
        for entry in entries:
            writer.add_entry(entry)
    manifest = writer.to_manifest_file()
    manifest.sequence_number = old.sequence_number
    manifest.min_sequence_number = old.min_sequence_number
    return manifest


def rewrite_list(version: TableVersion, io: CommitIO, snapshot: Snapshot, manifests: list[ManifestFile]) -> str:
    """A manifest list in the place of a snapshot's own. Returns its path."""
    path = version.paths().new_metadata_location(f"snap-{snapshot.snapshot_id}-1-{uuid4()}.avro")
    sequence = snapshot.sequence_number or 0
    output = io.new_output(path)
    with _ListWriter(output, snapshot.snapshot_id, snapshot.parent_snapshot_id, sequence, COMPRESSION) as writer:
        writer.write_block([writer.prepare_manifest(manifest) for manifest in manifests])
    return path


def _entry(file: DataFile, snapshot_id: int, sequence: int | None = None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=sequence,
        file_sequence_number=sequence,
        data_file=file,
    )


def _by_content_and_spec(files: Sequence[DataFile]) -> dict[tuple[ManifestContent, int], list[DataFile]]:
    groups: dict[tuple[ManifestContent, int], list[DataFile]] = {}
    for file in files:
        content = ManifestContent.DATA if file.content == 0 else ManifestContent.DELETES
        groups.setdefault((content, file.spec_id), []).append(file)
    return groups


def _live_files(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _tier(files: int) -> int:
    """Manifests of one tier have about as many files: 1 to 9, 10 to 99, and so on."""
    return int(math.log10(max(files, 1)))
