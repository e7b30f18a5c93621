"""Verifies the change sets of `table.changes()` as they arrive, and that the feed is the one that was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from catalog.merkle.checkpoint import Checkpoint as LogCheckpoint
from strandline.errors import MissingDependency, Unverified
from strandline.trust import checkpoint, parse_commit, verifier_keys

if TYPE_CHECKING:
    from catalog.changes import ChangeSet as CheckedSet
    from catalog.changes import FeedVerifier
    from strandline.changes import ChangeSet


class FeedReader:
    """Verifies the change sets of `table.changes()` one by one, as they arrive."""

    def __init__(
        self,
        key: str | Iterable[str],
        uuid: str,
        since: str | int | None,
        kept: bytes | None,
        demand: Literal["lake", "writer"] = "lake",
        until: str | int | None = None,
    ) -> None:
        self._keys, self._uuid, self._demand = verifier_keys(key), uuid, demand
        self._begins_at, self._ends_at = _snapshot(since), _snapshot(until)
        self._last: CheckedSet | None = None
        self._verifier: FeedVerifier | None = None
        self._kept = None if kept is None else checkpoint(kept, key=key)
        # Of any other position only the lake knows the sequence: the feed may begin where it does.
        named = since.removeprefix("sequence:") if isinstance(since, str) and since.startswith("sequence:") else ""
        self._since = -1 if since is None else int(named) if named.isdecimal() else None

    @property
    def extends(self) -> int | None:
        """The size of the kept checkpoint."""
        return None if self._kept is None else self._kept.size

    def verify(self, changes: ChangeSet) -> None:
        """Unverified unless the change set is right, of this table, and follows the one before."""
        try:
            from catalog import LakeError
            from catalog.changes import FeedVerifier, from_ipc
        except ImportError as error:
            message = f"verifying a change feed needs {error.name}: pip install 'strandline[verify]'"
            raise MissingDependency(f"{message}, or pass verify=False") from None
        try:
            parsed = from_ipc(changes.to_bytes())
            if self._verifier is None:
                if self._begins_at not in (None, parsed.commit.parent_id):
                    message = f"the feed begins after snapshot {parsed.commit.parent_id}, not after {self._begins_at}"
                    raise Unverified(f"{message}: commits may have been left out")
                old = self._kept
                self._verifier = FeedVerifier(
                    self._keys,
                    table_uuid=self._uuid,
                    reached=_before(parsed) if self._since is None else self._since,
                    kept=None if old is None else LogCheckpoint(old.origin, old.size, old.root),
                    demand=self._demand,
                )
            self._verifier.add(parsed)
            self._last = parsed
        except LakeError as error:
            raise Unverified(error.message) from None

    def finish(self) -> None:
        """Unverified if the feed should have ended with a snapshot, and ended before it."""
        reached = None if self._last is None else self._last.commit.snapshot_id
        if self._ends_at is not None and reached != self._ends_at and (reached is not None or self._since == -1):
            raise Unverified(f"the feed ends with snapshot {reached}, not with {self._ends_at}: commits were left out")


def _snapshot(position: str | int | None) -> int | None:
    """The id in `snapshot:<id>`. Unlike a time or an index, it is in the leaves: a feed shows it at its end."""
    text = position.removeprefix("snapshot:") if isinstance(position, str) else position
    return int(text) if isinstance(text, str) and text != position and text.lstrip("-").isdecimal() else None


def _before(changes: CheckedSet) -> int:
    """The sequence before the change set's first leaf. The verifier checks the leaf that it is read from."""
    if changes.evidence is None:
        return -1
    first = changes.evidence.passed[0][0] if changes.evidence.passed else changes.evidence.leaf
    return parse_commit(first).sequence - 1
