"""Reads manifests and manifest lists, each once per process: they are immutable."""

from __future__ import annotations

import threading
from collections import OrderedDict

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Snapshot

CACHED_ENTRIES = 100_000
CACHED_LISTS = 256


class ManifestReader:
    """A cache of decoded manifests, by path. Its lists are shared: callers must not change them."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, list[ManifestEntry]] = OrderedDict()
        self._lists: OrderedDict[str, list[ManifestFile]] = OrderedDict()
        self._entry_count = 0
        self._lock = threading.Lock()

    def manifests(self, io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
        if snapshot is None:
            return []
        with self._lock:
            manifests = self._lists.get(snapshot.manifest_list)
        if manifests is None:
            manifests = snapshot.manifests(io)
            self.keep_list(snapshot.manifest_list, manifests)
        return manifests

    def entries(self, io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
        """The manifest's live entries."""
        with self._lock:
            entries = self._entries.get(manifest.manifest_path)
        if entries is None:
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            self.keep(manifest.manifest_path, entries)
        return entries

    def keep(self, path: str, entries: list[ManifestEntry]) -> None:
        """Caches the entries of a manifest that was just written, as a reader would decode them."""
        with self._lock:
            self._entry_count += len(entries) - len(self._entries.get(path, ()))
            self._entries[path] = entries
            while self._entry_count > CACHED_ENTRIES and len(self._entries) > 1:
                self._entry_count -= len(self._entries.popitem(last=False)[1])

    def keep_list(self, path: str, manifests: list[ManifestFile]) -> None:
        with self._lock:
            self._lists[path] = manifests
            if len(self._lists) > CACHED_LISTS:
                self._lists.popitem(last=False)
