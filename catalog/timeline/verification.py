"""Verifying the timeline: everything it holds and says, and on request every object of every table.

Faults are collected, not raised: one wrong byte hides no other. `Verification.check` raises for the first.
Reads only; what is needed beyond the objects in question is held a few thousand leaves at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog

from catalog.errors import NotFound, Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.tiles import hash_reader
from catalog.merkle.tree import consistency_proof
from catalog.merkle.verify import ProofError, verify_consistency
from catalog.timeline import keys
from catalog.timeline.attest import Attestations
from catalog.timeline.away import explained
from catalog.timeline.faults import Crew, Fault, Findings, Progress
from catalog.timeline.head import Head
from catalog.timeline.index_verification import row_name
from catalog.timeline.keyring import Keyring
from catalog.timeline.object_verification import ObjectVerification, Recount, RecountRows
from catalog.timeline.publish import CHECKPOINT, KEYS, Published, PublishedTiles, Publisher
from catalog.timeline.published_copy import PublishedCopy
from catalog.timeline.sources import StoredSource
from catalog.timeline.store import Database
from catalog.timeline.tree_verification import TreeVerification

WORKERS = 8
PATIENCE_S = 5.0
"""How long a reader may lag behind what is published before that counts as lost."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and every fault. `note`: the signed checkpoint all this is about, for `since`."""

    size: int
    since: int
    note: bytes
    published_size: int
    """Behind `size` only until the sequencer's next run: the database is published after its flush."""
    leaves: int
    checkpoints: int
    tiles: int
    objects: int
    bytes: int
    changes: int
    """Roots of changes that were computed again from the files."""
    rewrites: int
    """Rewrites whose rows, before and after, were counted again."""
    uncovered: int
    """Objects that a snapshot reaches, but no leaf added: there is nothing to compare them with."""
    fault_count: int
    faults: tuple[Fault, ...]

    def check(self) -> Report:
        """Itself, if nothing was found; else Unverified, which names the first object and its commit."""
        if not self.fault_count:
            return self
        first, more = self.faults[0], self.fault_count - 1
        rest = f", and {more} more" if more else ""
        raise Unverified(f"{first}{rest}", subject=first.object)


@dataclass
class Verifier:
    """Verifies one lake's timeline. `trusted`: the keys to believe; without them, those of its own list."""

    db: Database
    s3: Any
    bucket: str
    catalog: Catalog
    origin: str
    trusted: Sequence[VerifierKey] | None = None
    workers: int = WORKERS
    progress: Progress = lambda what, done, of: None
    recount: Recount = lambda table, since, until, schema_id, root: None
    """Computes the changes of a commit again, for deep verification: catalog.changes.roots.recount."""
    recount_rows: RecountRows = lambda table, since, until, schema_id: None
    """Digests the rows of a rewrite again: catalog.changes.roots.recount_rows."""
    _findings: Findings = field(default_factory=Findings)

    def verify(self, *, deep: bool = False, since: bytes | None = None) -> Report:
        """Shallow: the tree, every checkpoint, every index, the published copy. Deep: every object, too.

        `since` is a signed checkpoint up to which all was verified before (Report.note). Then only what is
        new is read, besides a few tiles to show that the old leaves still are the beginning of the tree: when
        nothing is new, O(log n) reads. Bit rot in what is old needs a run without it.
        """
        self._findings = Findings()
        with explained("the published timeline"):
            published = self._published()
        head = self._head(published.size)
        ring = self._ring(head)
        checkpoint = self._open_head(head, ring)
        before = None if since is None else self._open(since, ring)
        if published.size and published.note != self.db.get(keys.checkpoint(published.size)):
            self._add(CHECKPOINT, "it is not the checkpoint that the timeline signed", published.size - 1)
        start = before.size if before else 0
        objects = ObjectVerification(
            self.db,
            Attestations(self.s3, self.bucket),
            self.catalog,
            start,
            head.size,
            self._findings,
            self.progress,
            self.recount,
            self.recount_rows,
        )
        with Crew(self.workers) as crew:
            copy = PublishedCopy(PublishedTiles(self.s3, self.bucket), published.size, crew, self._findings)
            tree = TreeVerification(self.db, copy, lambda note: self._open(note, ring), self._findings, self.progress)
            if checkpoint is not None and self._extends(before, checkpoint):
                tree.run(before, checkpoint)
        if deep:
            objects.run(lambda: Crew(self.workers))
        return Report(
            size=head.size,
            since=start,
            note=head.checkpoint.encode(),
            published_size=published.size,
            leaves=tree.leaves,
            checkpoints=tree.checkpoints,
            tiles=copy.tiles,
            objects=objects.objects,
            bytes=objects.length,
            changes=objects.changes,
            rewrites=objects.rewrites,
            uncovered=objects.uncovered,
            fault_count=self._findings.count,
            faults=self._findings.faults(),
        )

    def _published(self) -> Published:
        try:
            return Publisher(self.s3, self.bucket).published()
        except Unverified as error:
            self._add(CHECKPOINT, error.message)
            return Published()

    def _head(self, published: int) -> Head:
        """The newest head, once the reader has seen at least what was published before."""
        until = time.monotonic() + PATIENCE_S
        while (head := Head.decode(self.db.get(keys.HEAD))).size < published:
            if time.monotonic() > until:
                what = f"it has {published} leaves, the database only {head.size}: it was replaced by an older one"
                self._add(CHECKPOINT, what)
                break
            time.sleep(0.1)
        return head

    def _ring(self, head: Head) -> Keyring:
        """The key list as stored; the published one must be the same."""
        stored = self.db.get(keys.KEYS)
        if stored is None:
            if head.size:
                self._add(row_name(keys.KEYS), "it is gone")
            return Keyring()
        try:
            with explained(KEYS):
                public = self.s3.get_object(Bucket=self.bucket, Key=KEYS)["Body"].read()
            if public != stored:
                self._add(KEYS, "it is not the key list that the timeline signed")
        except NotFound:
            self._add(KEYS, "it is gone")
        try:
            return Keyring.parse(stored)
        except Unverified as error:
            self._add(row_name(keys.KEYS), error.message)
            return Keyring()

    def _open(self, note: bytes, ring: Keyring) -> Checkpoint:
        if self.trusted is None:
            return ring.open(note, self.origin)
        try:
            return open_checkpoint(note, self.trusted, self.origin)
        except ProofError as error:
            raise Unverified(f"the timeline's checkpoint does not hold: {error}") from None

    def _open_head(self, head: Head, ring: Keyring) -> Checkpoint | None:
        """The head's signed checkpoint; None when there is none that holds, and nothing to compare with."""
        if head.size == 0:
            return None
        try:
            checkpoint = self._open(head.checkpoint.encode(), ring)
        except Unverified as error:
            self._add(row_name(keys.HEAD), error.message)
            return None
        if (checkpoint.size, checkpoint.root.hex()) != (head.size, head.root):
            self._add(row_name(keys.HEAD), "its size and root are not those of its signed checkpoint")
        return checkpoint

    def _extends(self, before: Checkpoint | None, now: Checkpoint) -> bool:
        """Whether the tree still begins with what was verified before: one consistency proof."""
        if before is None:
            return True
        try:
            if before.size > now.size:
                raise ProofError(f"it had {before.size} leaves, and now has {now.size}")
            source = StoredSource(self.db)
            proof = consistency_proof(before.size, now.size, hash_reader(now.size, source.read_tiles))
            verify_consistency(before.size, now.size, proof, before.root, now.root)
        except (ProofError, Unverified) as error:
            self._add(row_name(keys.HEAD), f"its history was changed: {error}")
            return False
        return True

    def _add(self, name: str, what: str, index: int | None = None) -> None:
        self._findings.add(Fault(name, what, index))
