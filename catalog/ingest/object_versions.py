"""Versions of objects: their commit tokens, and which of two versions is the newer one.

The snapshot that adds a version's rows carries the version's token and its summary entry. So a repeated delivery is
recognized, and an older version that is delivered late does not replace the rows of a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from urllib.parse import quote, unquote

from pyiceberg.table.snapshots import Snapshot

from catalog.tables import COMMIT_TOKEN, TableVersion, summary_value

OBJECTS = "strandline.objects"
"""Summary property: for each token, in the tokens' order, the object version that it belongs to."""
_NONE = "-"


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """`version` is S3's id, None in a bucket without versioning; there `etag` and `sequencer` identify the version.

    S3's `sequencer` orders the events of one key. Events without one are ordered by time, in whole seconds.
    """

    key: str
    version: str | None
    etag: str
    digest: str
    modified_ms: int
    sequencer: str | None = None

    @classmethod
    def of(
        cls, key: str, version: str | None, etag: str, digest: str, modified: datetime, sequencer: str | None = None
    ) -> ObjectVersion:
        version_id = None if version in (None, "null") else version
        return cls(key, version_id, etag.strip('"'), digest, int(modified.timestamp() * 1000), sequencer)

    @property
    def token(self) -> str:
        """The commit token: the same for every delivery of this version, and different for any other version or key."""
        identity = self.version or f"{self.etag} {self.sequencer or self.modified_ms}"
        return sha256(f"{self.key}\n{identity}".encode()).hexdigest()

    @property
    def object_id(self) -> str:
        return sha256(self.key.encode()).hexdigest()[:16]

    def summary_entry(self) -> str:
        """The version as the summary property OBJECTS has it; `_SummaryEntry` parses it."""
        version = _NONE if self.version is None else quote(self.version, safe="")
        return f"{self.object_id}/{self.sequencer or _NONE}/{self.modified_ms}/{version}/{self.digest[:32]}"

    def newer_in(self, table: TableVersion) -> Iterator[str]:
        """The ids of newer versions of this object whose rows a snapshot of the table added."""
        for other in self._others(table):
            if other.version is not None and other.is_after(self.sequencer, self.modified_ms):
                yield other.version

    def unchanged_in(self, table: TableVersion) -> str | None:
        """The token of the version directly before or after this one, if it has the same bytes: the object was put
        again, perhaps by a client that did not receive the response."""
        before: _SummaryEntry | None = None
        after: _SummaryEntry | None = None
        for other in self._others(table):
            if other.is_after(self.sequencer, self.modified_ms):
                after = other if after is None or after.is_after(other.sequencer, other.modified_ms) else after
            elif before is None or other.is_after(before.sequencer, before.modified_ms):
                before = other
        neighbours = (entry for entry in (before, after) if entry is not None)
        return next((entry.token for entry in neighbours if entry.digest == self.digest[:32]), None)

    def _others(self, table: TableVersion) -> Iterator[_SummaryEntry]:
        for snapshot in table.metadata.snapshots:
            for other in _SummaryEntry.all_in(snapshot):
                if other.object_id == self.object_id and other.token != self.token:
                    yield other


@dataclass(frozen=True, slots=True)
class _SummaryEntry:
    """An object version as a snapshot summary has it."""

    token: str
    object_id: str
    sequencer: str | None
    modified_ms: int
    version: str | None
    digest: str

    @classmethod
    def all_in(cls, snapshot: Snapshot) -> Iterator[_SummaryEntry]:
        for token, entry in zip(
            summary_value(snapshot, COMMIT_TOKEN).split(), summary_value(snapshot, OBJECTS).split(), strict=False
        ):
            object_id, sequencer, modified_ms, version, digest = entry.split("/")
            sequencer_or_none = None if sequencer == _NONE else sequencer
            version_or_none = None if version == _NONE else unquote(version)
            yield cls(token, object_id, sequencer_or_none, int(modified_ms), version_or_none, digest)

    def is_after(self, sequencer: str | None, modified_ms: int) -> bool:
        if self.sequencer and sequencer:
            # As AWS documents it: pad the shorter one with zeros on the right, then compare as text.
            length = max(len(self.sequencer), len(sequencer))
            return self.sequencer.ljust(length, "0") > sequencer.ljust(length, "0")
        return self.modified_ms > modified_ms
