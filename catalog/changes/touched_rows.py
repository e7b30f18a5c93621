"""Which rows a commit touched, from Iceberg's metadata alone: added and removed data files, newly deleted positions.

Two snapshots share most of their manifests; only those that one of them has are read, so the cost is proportional to
the change. The operation that a writer states ("append", "replace") is not used: only files count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.core.errors import Invalid
from catalog.iceberg import DeleteIndex, ManifestReader, Positions, deleted_positions, read_position_deletes

_NO_POSITIONS: Positions = np.empty(0, np.int64)


@dataclass(frozen=True)
class TouchedFile:
    """Rows of a data file: those at `only`, or all but those at `without`. Positions ascend."""

    file: DataFile
    without: Positions = field(default_factory=lambda: _NO_POSITIONS)
    only: Positions | None = None

    def rows(self, in_file: int) -> int:
        """How many rows are read, in a file with `in_file` rows. Rows at `without` are read and then dropped."""
        return in_file if self.only is None else len(self.only)

    def mask(self, start: int, rows: int) -> npt.NDArray[np.bool_]:
        """Mask of the touched rows among the file's rows [start, start + rows)."""
        positions = self.without if self.only is None else self.only
        inside = positions[np.searchsorted(positions, start) : np.searchsorted(positions, start + rows)] - start
        mask = np.full(rows, self.only is None)
        mask[inside] = self.only is not None
        return mask


@dataclass(frozen=True)
class SnapshotDifference:
    """The rows that only one of two snapshots has. A row in both lists was moved, not changed."""

    removed: Sequence[TouchedFile]
    added: Sequence[TouchedFile]


def diff_snapshots(
    table: Table, parent: Snapshot | None, snapshot: Snapshot | None, manifests: ManifestReader | None = None
) -> SnapshotDifference:
    """From `parent` (None: the empty table) to `snapshot`. Manifests that `manifests` has cached are not read again.

    Requests: two manifest lists and each manifest that they do not share; with position deletes also all delete
    manifests, and the delete files that may apply to a touched data file. Raises Invalid for equality deletes.
    """
    reader = _Manifests(table.io, ManifestReader() if manifests is None else manifests)
    old, new = (reader.cache.manifests(table.io, either) for either in (parent, snapshot))
    shared = {manifest.manifest_path for manifest in old} & {manifest.manifest_path for manifest in new}
    old_files, new_files = (
        _live(reader, (manifest for manifest in side if manifest.manifest_path not in shared)) for side in (old, new)
    )
    removed = {path: entry for path, entry in old_files.items() if path not in new_files}
    added = {path: entry for path, entry in new_files.items() if path not in old_files}

    cache = dict[str, Mapping[str, Any]]()
    old_deletes, new_deletes = (_Deletes(table.io, _delete_entries(reader, side), cache) for side in (old, new))
    touched = old_deletes.paths_not_in(new_deletes) | new_deletes.paths_not_in(old_deletes)
    touched -= removed.keys() | added.keys()
    before = [TouchedFile(entry.data_file, old_deletes.of(entry)) for entry in removed.values()]
    after = [TouchedFile(entry.data_file, new_deletes.of(entry)) for entry in added.values()]
    for entry in _entries_of(reader, touched, new):
        old_positions, new_positions = old_deletes.of(entry), new_deletes.of(entry)
        before += _only(entry, np.setdiff1d(new_positions, old_positions, assume_unique=True))
        after += _only(entry, np.setdiff1d(old_positions, new_positions, assume_unique=True))
    return SnapshotDifference(before, after)


@dataclass(frozen=True)
class _Manifests:
    io: FileIO
    cache: ManifestReader

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return self.cache.entries(self.io, manifest)


def _only(entry: ManifestEntry, positions: Positions) -> list[TouchedFile]:
    """The rows at these positions, [] without any."""
    return [TouchedFile(entry.data_file, only=positions)] if len(positions) else []


def _live(reader: _Manifests, manifests: Iterable[ManifestFile]) -> dict[str, ManifestEntry]:
    """The live data files of the manifests, by path."""
    data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    return {entry.data_file.file_path: entry for manifest in data for entry in reader.entries(manifest)}


def _delete_entries(reader: _Manifests, manifests: Iterable[ManifestFile]) -> list[ManifestEntry]:
    """The live position deletes of the manifests; Invalid for an equality delete."""
    deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    entries = [entry for manifest in deletes for entry in reader.entries(manifest)]
    for entry in entries:
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            raise Invalid(
                f"{entry.data_file.file_path} is an equality delete, whose changes cannot be computed: have the writer "
                "use position deletes, or compact the table"
            )
    return entries


def _entries_of(reader: _Manifests, paths: set[str], manifests: Sequence[ManifestFile]) -> list[ManifestEntry]:
    """The entries of these data files, from the newest manifests first; stops when all are read.

    A path without an entry is of no live file, so deletes for it have no effect.
    """
    missing, entries = set(paths), list[ManifestEntry]()
    data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    for manifest in sorted(data, key=lambda manifest: manifest.sequence_number or 0, reverse=True):
        if not missing:
            break
        entries += [entry for entry in reader.entries(manifest) if entry.data_file.file_path in missing]
        missing -= {entry.data_file.file_path for entry in entries}
    return entries


class _Deletes:
    """The position deletes of one snapshot. Each file is read at most once, through a cache both snapshots share."""

    def __init__(self, io: FileIO, entries: Sequence[ManifestEntry], cache: dict[str, Mapping[str, Any]]) -> None:
        self._io = io
        self._entries = entries
        self._cache = cache
        self._index = DeleteIndex(entries)
        self._files = {_identity(entry.data_file) for entry in entries}

    def paths_not_in(self, other: _Deletes) -> set[str]:
        """The paths of data files in delete files that the other snapshot does not have."""
        own = [entry for entry in self._entries if _identity(entry.data_file) not in other._files]
        return {path for entry in own for path in self._positions(entry.data_file)}

    def of(self, data: ManifestEntry) -> Positions:
        """The deleted positions of a data file, ascending and distinct."""
        deletes = (*self._index.own(data), *self._index.shared(data))
        return np.unique(deleted_positions(deletes, data.data_file.file_path, self._positions))

    def _positions(self, file: DataFile) -> Mapping[str, Any]:
        # A Puffin file holds many deletion vectors, and pyiceberg reads all of them, so each file is read once.
        if file.file_path not in self._cache:
            self._cache[file.file_path] = read_position_deletes(self._io, file)
        return self._cache[file.file_path]


def _identity(file: DataFile) -> tuple[str, int, int]:
    return file.file_path, file.record_count, file.file_size_in_bytes
