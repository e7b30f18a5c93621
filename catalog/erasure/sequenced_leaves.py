"""The leaves of a table whose last commit the timeline has. An erasure begins only from there. Reads only."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from catalog.core.errors import NotFound, Unavailable
from catalog.tables import Tables, TableVersion
from catalog.timeline import Leaf, MetadataFile, Timeline

_POLL_S = 0.2
Leaves = list[tuple[int, Leaf]]


@dataclass(frozen=True)
class SequencedLeaves:
    tables: Tables
    timeline: Callable[[], Timeline]

    def of(self, version: TableVersion) -> Leaves:
        """All leaves of the table, oldest first; Unavailable if the timeline does not have this version yet."""
        try:
            leaves = list(self.timeline().commits_since(version.name))
        except NotFound:
            leaves = []
        file = MetadataFile.read(version.location, self.tables.table_store.io)
        if not leaves or leaves[-1][1].metadata_sha256 != file.sha256 or leaves[-1][1].table_uuid != version.uuid:
            raise Unavailable(
                f"the timeline does not have the last commit of {version.name} yet: run the command again in a minute",
                subject=version.name,
            )
        return leaves

    def wait(self, table: str, patience_s: float) -> Leaves:
        """Waits until the timeline has the table's last commit."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return self.of(self.tables.table_store.load(table))
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
