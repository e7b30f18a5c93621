"""The published checkpoint beside the database: it has the same text as the log's own note, and the cosignatures.

Proofs for others are made against it. Reads of the lake itself need no cosignatures, and do not wait for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.core.errors import NotFound
from catalog.timeline.log.publisher import text_of
from catalog.timeline.reader.sources import PublishedSource

FRESH_S = 1.0
"""How long a fetched checkpoint is used if it is not of the database's newest size."""
COMPLETE_S = 60.0
"""How long one of the newest size is used: a witness may cosign it later."""


@dataclass
class PublicLog:
    """The published log. One GET for each new checkpoint, and one a minute."""

    s3: Any
    bucket: str
    clock: Callable[[], float] = time.monotonic
    _source: PublishedSource = field(init=False)
    _fetched: tuple[float, bytes | None] = (float("-inf"), None)

    def __post_init__(self) -> None:
        self._source = PublishedSource(self.s3, self.bucket)

    def checkpoint(self, newest: bytes) -> bytes | None:
        """The published checkpoint; None if there is none. `newest`: the database's own."""
        at, note = self._fetched
        now = self.clock()
        is_newest = note is not None and text_of(note) == text_of(newest)
        if now - at >= (COMPLETE_S if is_newest else FRESH_S):
            try:
                note = self._source.checkpoint()
            except NotFound:
                note = None
            self._fetched = (now, note)
        return note

    def read_tiles(self, paths: Sequence[str]) -> list[bytes]:
        """merkle.tiles.ReadTiles, of the published tiles."""
        return self._source.read_tiles(paths)
