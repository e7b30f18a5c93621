"""Which rows a commit touched, from Iceberg's metadata alone: files that came or went, positions newly
deleted.

Two snapshots share most of their manifests; only those that one has and the other has not are read, so the
cost is that of what changed. The operation a writer claims ("append", "replace") is not believed: only files
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import Invalid
from catalog.tables.manifests import ManifestReader

Positions: TypeAlias = npt.NDArray[np.int64]

_FILE_PATH_ID = 2147483546  # the id of a position-delete file's column `file_path`, reserved by Iceberg
_NONE: Positions = np.empty(0, np.int64)


@dataclass(frozen=True)
class Source:
    """Rows of a data file: those at `only`, or all but those at `without`. Positions ascend."""

    file: DataFile
    without: Positions = field(default_factory=lambda: _NONE)
    only: Positions | None = None

    def mask(self, start: int, rows: int) -> npt.NDArray[np.bool_]:
        """Which of the file's rows [start, start + rows) are meant."""
        listed = self.without if self.only is None else self.only
        inside = listed[np.searchsorted(listed, start) : np.searchsorted(listed, start + rows)] - start
        chosen = np.full(rows, self.only is None)
        chosen[inside] = self.only is not None
        return chosen


@dataclass(frozen=True)
class Difference:
    """What two snapshots do not share. A row in both lists was moved, not changed."""

    removed: Sequence[Source]
    added: Sequence[Source]


def difference(
    table: Table, parent: Snapshot | None, snapshot: Snapshot | None, manifests: ManifestReader | None = None
) -> Difference:
    """From `parent` (None: the empty table) to `snapshot`. `manifests` may know some of theirs already.

    Requests: two manifest lists, each manifest they do not share, and with position deletes all manifests of
    deletes and those delete files that may concern a touched data file. Raises Invalid for equality deletes.
    """
    reader = _Manifests(table.io, ManifestReader() if manifests is None else manifests)
    old, new = (reader.known.manifests(table.io, one) for one in (parent, snapshot))
    shared = {manifest.manifest_path for manifest in old} & {manifest.manifest_path for manifest in new}
    gone, come = (_live(reader, (one for one in side if one.manifest_path not in shared)) for side in (old, new))
    removed = {path: entry for path, entry in gone.items() if path not in come}
    added = {path: entry for path, entry in come.items() if path not in gone}

    cache = dict[str, Mapping[str, Any]]()
    old_deletes, new_deletes = (_Deletes(table.io, _delete_entries(reader, side), cache) for side in (old, new))
    touched = old_deletes.named_only_here(new_deletes) | new_deletes.named_only_here(old_deletes)
    touched -= removed.keys() | added.keys()
    before = [Source(entry.data_file, old_deletes.of(entry)) for entry in removed.values()]
    after = [Source(entry.data_file, new_deletes.of(entry)) for entry in added.values()]
    for entry in _find(reader, touched, new):
        was, now = old_deletes.of(entry), new_deletes.of(entry)
        before += _only(entry, np.setdiff1d(now, was, assume_unique=True))
        after += _only(entry, np.setdiff1d(was, now, assume_unique=True))
    return Difference(before, after)


@dataclass(frozen=True)
class _Manifests:
    io: FileIO
    known: ManifestReader

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        return self.known.entries(self.io, manifest)


def _only(entry: ManifestEntry, positions: Positions) -> list[Source]:
    return [Source(entry.data_file, only=positions)] if len(positions) else []


def _live(reader: _Manifests, manifests: Iterable[ManifestFile]) -> dict[str, ManifestEntry]:
    """The data files that the manifests hold alive, by path."""
    data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    return {entry.data_file.file_path: entry for one in data for entry in reader.entries(one)}


def _delete_entries(reader: _Manifests, manifests: Iterable[ManifestFile]) -> list[ManifestEntry]:
    deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
    entries = [entry for manifest in deletes for entry in reader.entries(manifest)]
    for entry in entries:
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            raise Invalid(
                f"{entry.data_file.file_path} deletes by equality, which has no exact change set here: have the "
                "writer use position deletes, or compact the table"
            )
    return entries


def _find(reader: _Manifests, paths: set[str], manifests: Sequence[ManifestFile]) -> list[ManifestEntry]:
    """The entries of data files that both snapshots hold: newest manifests first, no more of them than needed."""
    missing, found = set(paths), list[ManifestEntry]()
    data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
    for manifest in sorted(data, key=lambda one: one.sequence_number or 0, reverse=True):
        if not missing:
            break
        found += [entry for entry in reader.entries(manifest) if entry.data_file.file_path in missing]
        missing -= {entry.data_file.file_path for entry in found}
    return found  # a path still missing belongs to no live file: its deletes say nothing any more


class _Deletes:
    """The position deletes of one snapshot. Each file is read at most once, through a cache both snapshots share."""

    def __init__(self, io: FileIO, entries: Sequence[ManifestEntry], cache: dict[str, Mapping[str, Any]]) -> None:
        self._io = io
        self._entries = entries
        self._cache = cache
        self._files = {_identity(entry.data_file) for entry in entries}

    def named_only_here(self, other: _Deletes) -> set[str]:
        """The data files named by delete files that the other snapshot has not."""
        fresh = [entry for entry in self._entries if _identity(entry.data_file) not in other._files]
        return {path for entry in fresh for path in self._positions(entry.data_file)}

    def of(self, data: ManifestEntry) -> Positions:
        """The deleted positions of a data file, ascending, each once."""
        path, since = data.data_file.file_path, data.sequence_number or 0
        found = [
            np.asarray(self._positions(entry.data_file).get(path, _NONE), dtype=np.int64)
            for entry in self._entries
            if (entry.sequence_number or 0) >= since and _may_name(entry.data_file, path)
        ]
        return np.unique(np.concatenate(found)) if found else _NONE

    def _positions(self, file: DataFile) -> Mapping[str, Any]:
        # Puffin files hold many deletion vectors; pyiceberg reads them all, whichever of them is asked for.
        if file.file_path not in self._cache:
            self._cache[file.file_path] = _read_deletes(self._io, file)
        return self._cache[file.file_path]


def _identity(file: DataFile) -> tuple[str, int, int]:
    return file.file_path, file.record_count, file.file_size_in_bytes


def _may_name(file: DataFile, path: str) -> bool:
    """Whether a delete file's statistics allow that it names the data file."""
    low, high = ((bounds or {}).get(_FILE_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    name = path.encode()
    # Writers may cut bounds short; a cut upper bound still covers what begins with it.
    return (low is None or low <= name) and (high is None or name <= high or name.startswith(high))
