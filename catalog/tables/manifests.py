"""Manifests: reading them once, writing them for data and for deletes, and merging small ones as they pile up.

pyiceberg writes manifests of data only; its readers and Spark read both kinds.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import uuid4

from pydantic_core import to_json
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.io import FileIO, OutputFile
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

from catalog.tables.avro import Layout, PreparedOutput
from catalog.tables.fileio import CommitIO
from catalog.tables.versions import Version

FORMAT: Literal[2] = 2
COMPRESSION: Literal["deflate"] = "deflate"
# A manifest this long is worth a request of its own when a scan is planned: it is not merged further.
FULL_BYTES = 8 << 20
KEPT_ENTRIES = 100_000
KEPT_LAYOUTS = 1000


class _Writer(ManifestWriterV2):
    """A version 2 manifest of either content, in a layout that is prepared once per schema and partition spec."""

    def __init__(
        self, version: Version, content: ManifestContent, spec_id: int, output: OutputFile, snapshot_id: int
    ) -> None:
        spec = version.metadata.specs()[spec_id]
        super().__init__(spec, version.schema, output, snapshot_id, COMPRESSION)
        self._content = content
        self._layout, self._header = _prepared(version, spec_id)

    def content(self) -> ManifestContent:
        return self._content

    def new_writer(self) -> PreparedOutput:
        kind = "deletes" if self._content == ManifestContent.DELETES else "data"
        return PreparedOutput(self._output_file, self._layout, {**self._header, "content": kind})


_layouts: dict[tuple[str, int, int], tuple[Layout, dict[str, str]]] = {}


def _prepared(version: Version, spec_id: int) -> tuple[Layout, dict[str, str]]:
    key = (version.uuid, version.metadata.current_schema_id, spec_id)
    found = _layouts.get(key)
    if found is None:
        spec, schema = version.metadata.specs()[spec_id], version.schema
        partition = spec.partition_type(schema)
        stored, records = (
            manifest_entry_schema_with_data_file(v, data_file_with_partition(partition, v))
            for v in (FORMAT, DEFAULT_READ_VERSION)
        )
        header = {
            "schema": schema.model_dump_json(),
            "partition-spec": to_json(spec.fields).decode(),
            "partition-spec-id": str(spec_id),
            "format-version": str(FORMAT),
            AVRO_CODEC_KEY: COMPRESSION,
        }
        if len(_layouts) >= KEPT_LAYOUTS:
            _layouts.clear()
        found = _layouts[key] = (Layout("manifest_entry", stored, records), header)
    return found


class _ListWriter(ManifestListWriterV2):
    """A version 2 manifest list, in the one layout they all have."""

    layout = Layout("manifest_file", MANIFEST_LIST_FILE_SCHEMAS[2], MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION])

    def __enter__(self) -> _ListWriter:
        self._writer = PreparedOutput(self._output_file, self.layout, self._meta)
        self._writer.__enter__()
        return self


class ManifestReader:
    """Decoded manifests by path. They are immutable, so nobody may change what is read from here."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, list[ManifestEntry]] = OrderedDict()
        self._lists: OrderedDict[str, list[ManifestFile]] = OrderedDict()
        self._kept = 0
        self._lock = threading.Lock()

    def manifests(self, io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
        if snapshot is None:
            return []
        with self._lock:
            found = self._lists.get(snapshot.manifest_list)
        if found is None:
            found = snapshot.manifests(io)
            self.keep_list(snapshot.manifest_list, found)
        return found

    def entries(self, io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
        """The manifest's live entries."""
        with self._lock:
            found = self._entries.get(manifest.manifest_path)
        if found is None:
            found = manifest.fetch_manifest_entry(io, discard_deleted=True)
            self.keep(manifest.manifest_path, found)
        return found

    def keep(self, path: str, entries: list[ManifestEntry]) -> None:
        """Keeps what a manifest says, as somebody who reads it would find it."""
        with self._lock:
            self._kept += len(entries) - len(self._entries.get(path, ()))
            self._entries[path] = entries
            while self._kept > KEPT_ENTRIES and len(self._entries) > 1:
                self._kept -= len(self._entries.popitem(last=False)[1])

    def keep_list(self, path: str, manifests: list[ManifestFile]) -> None:
        with self._lock:
            self._lists[path] = manifests
            if len(self._lists) > 256:
                self._lists.popitem(last=False)


@dataclass
class ManifestPlan:
    """The manifests of the snapshot to be: which stay, and what is written into new ones."""

    version: Version
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
        """Writes every manifest that must be new, and returns all manifests of the snapshot.

        A manifest that lost a file is written again; the added files are merged with their like (same content,
        same partition spec, about as many files) once ten such manifests have come together. So a file is
        rewritten log(files) times over its life and a scan opens 9 log(files) manifests at most.
        """
        gone = {entry.data_file.file_path for entry in removed}
        old = [m for m in self.reader.manifests(self.io, parent) if m.has_added_files() or m.has_existing_files()]
        new: list[ManifestFile] = []
        for manifest in old:
            if gone and any(e.data_file.file_path in gone for e in self.reader.entries(self.io, manifest)):
                new.append(self._without(manifest, gone))
            else:
                self.kept.append(manifest)
        for (content, spec_id), files in _grouped(added).items():
            new.append(self._with(content, spec_id, files))
        return new + self.kept

    def write_list(self, parent: Snapshot | None, manifests: list[ManifestFile]) -> str:
        path = self.version.paths().new_metadata_location(f"snap-{self.snapshot_id}-0-{uuid4()}.avro")
        parent_id = parent.snapshot_id if parent else None
        output = self.io.new_output(path)
        with _ListWriter(output, self.snapshot_id, parent_id, self.sequence, COMPRESSION) as writer:
            prepared = [writer.prepare_manifest(manifest) for manifest in manifests]
            writer._writer.write_block(prepared)
        self.reader.keep_list(path, prepared)
        return path

    def _with(self, content: ManifestContent, spec_id: int, files: list[DataFile]) -> ManifestFile:
        """A manifest of the added files, and of those it is time to merge them with."""
        least = int(self.version.properties.get("commit.manifest.min-count-to-merge", 10))
        alike = [m for m in self.kept if (m.content, m.partition_spec_id) == (content, spec_id)]
        merged: list[ManifestFile] = []
        count = len(files)
        while True:
            # One tier after the other, so that a merge that fills the next tier is merged with that at once.
            tier = [m for m in alike if m not in merged and _tier(_live(m)) == _tier(count)]
            small = [m for m in tier if m.manifest_length < FULL_BYTES]
            if len(small) + 1 < least:
                break
            merged += small
            count += sum(_live(m) for m in small)
        self.kept = [m for m in self.kept if m not in merged]
        existing = [entry for manifest in merged for entry in self.reader.entries(self.io, manifest)]
        return self._write(content, spec_id, files, existing, ())

    def _without(self, manifest: ManifestFile, gone: set[str]) -> ManifestFile:
        entries = self.reader.entries(self.io, manifest)
        stay = [entry for entry in entries if entry.data_file.file_path not in gone]
        leave = [entry for entry in entries if entry.data_file.file_path in gone]
        return self._write(ManifestContent(manifest.content), manifest.partition_spec_id, (), stay, leave)

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


def _entry(file: DataFile, snapshot_id: int, sequence: int | None = None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=sequence,
        file_sequence_number=sequence,
        data_file=file,
    )


def _grouped(files: Sequence[DataFile]) -> dict[tuple[ManifestContent, int], list[DataFile]]:
    groups: dict[tuple[ManifestContent, int], list[DataFile]] = {}
    for file in files:
        content = ManifestContent.DATA if file.content == 0 else ManifestContent.DELETES
        groups.setdefault((content, file.spec_id), []).append(file)
    return groups


def _live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _tier(files: int) -> int:
    return int(math.log10(max(files, 1)))
