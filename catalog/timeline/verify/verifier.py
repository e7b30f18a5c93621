"""Verifies the timeline: its tree, checkpoints, indexes and published copy; on request, every object of every table.

Faults are collected, not raised, so that one does not hide others; `Report.check` raises for the first. Reads only,
with a few thousand leaves in memory at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import NotFound, Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy
from catalog.merkle.tiles import hash_reader
from catalog.merkle.tree import consistency_proof
from catalog.merkle.verify import ProofError, verify_consistency
from catalog.timeline.log import store_keys
from catalog.timeline.log.head import Head
from catalog.timeline.log.keyring import Keyring
from catalog.timeline.log.publisher import (
    CHECKPOINT_PATH,
    KEYS_PATH,
    PublishedCheckpoint,
    PublishedTiles,
    Publisher,
    text_of,
)
from catalog.timeline.log.store import Store
from catalog.timeline.reader.sources import StoredSource
from catalog.timeline.sequencer.attestation import Attestations
from catalog.timeline.sequencer.row_state import ComputeState
from catalog.timeline.verify.erasures import Erased
from catalog.timeline.verify.faults import BoundedPool, Fault, FaultCollector
from catalog.timeline.verify.indexes import row_name
from catalog.timeline.verify.objects import ObjectVerification, Recount, RecountRows
from catalog.timeline.verify.published import PublishedCopy
from catalog.timeline.verify.tree import TreeVerification

WORKERS = 8
MAX_LAG_S = 5.0
"""How long the reader may lag behind the published checkpoint before the database counts as replaced."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was verified, and every fault. `note`: the signed checkpoint that was verified; a later run's `since`."""

    size: int
    since: int
    note: bytes
    """With a policy, the published one: only that has cosignatures."""
    published_size: int
    """Smaller than `size` at most until the sequencer's next run: the tree is published after the flush."""
    leaves: int
    checkpoints: int
    tiles: int
    objects: int
    bytes: int
    changes: int
    """Changes roots that were recomputed from the files."""
    rewrites: int
    """Rewrites whose rows digest was recomputed, before and after."""
    states: int
    """Leaves whose state of main's rows was recomputed from the files."""
    uncounted: int
    """Commits whose changes or rows digest was not recomputed: too many rows, or files that give no exact result."""
    statistics: int
    """Data files whose counts and bounds in a manifest were compared with their rows."""
    uncompared: int
    """Data files with which that was not possible: of another format than Parquet, or without field ids."""
    uncovered: int
    """Objects that a snapshot refers to and no leaf attests: there is nothing to compare them with."""
    erased: tuple[Erased, ...]
    """Erasures of rows: what they took away is not shown, and everything else is as it was committed."""
    fault_count: int
    faults: tuple[Fault, ...]

    def check(self) -> Report:
        """Returns itself if there is no fault; otherwise raises Unverified for the first one."""
        if not self.fault_count:
            return self
        first, more = self.faults[0], self.fault_count - 1
        others = f", and {more} more" if more else ""
        raise Unverified(f"{first}{others}", subject=first.object)


@dataclass
class Verifier:
    """Verifies one lake's timeline. `trusted`: the keys to accept; by default those of its own key list.

    With them, a later key counts only if one of them vouches for it, and a retired one only for the sizes of its time.

    `policy` takes the place of `trusted`: its logs are the keys, and the published checkpoint and `since` must be
    cosigned as it demands. Other stored checkpoints are the log's own notes, which no witness signs.

    `recount`, `recount_rows` and `compute_state` recompute changes, rows digests and states for deep verification:
    catalog.changes.recount, recount_rows and StateComputer. They are parameters because catalog.changes is a layer
    above this one. Without them, these commits are reported as uncounted.
    """

    db: Store
    s3: Any
    bucket: str
    catalog: Catalog
    origin: str
    trusted: Sequence[VerifierKey] | None = None
    workers: int = WORKERS
    recount: Recount | None = None
    recount_rows: RecountRows | None = None
    compute_state: ComputeState | None = None
    policy: Policy | None = None
    _faults: FaultCollector = field(default_factory=FaultCollector)

    def verify(self, *, deep: bool = False, since: bytes | None = None, table: str | None = None) -> Report:
        """Verifies the tree, every checkpoint, every index and the published copy; with `deep`, every object, too.

        `since` is a signed checkpoint that was verified before (Report.note). Then only newer leaves are read, and a
        few tiles to prove that the tree still begins with the older ones: O(log n) reads if nothing is new. Damage to
        older data is found only by a run without `since`. `table`: the one whose objects are verified; None: all.
        """
        self._faults = FaultCollector()
        with translate_errors("the published timeline"):
            published = self._published()
        head = self._head(published.size)
        keyring = self._keyring(head)
        checkpoint = self._open_head(head, keyring)
        before = None if since is None else self._open_trusted(since, keyring)
        self._check_published(published, head, keyring)
        start = before.size if before else 0
        objects = ObjectVerification(
            self.db,
            Attestations(self.s3, self.bucket),
            self.catalog,
            start,
            head.size,
            self._faults,
            self.workers,
            self.recount,
            self.recount_rows,
            self.compute_state,
            table,
        )
        with BoundedPool(self.workers) as pool:
            copy = PublishedCopy(PublishedTiles(self.s3, self.bucket), published.size, pool, self._faults)
            tree = TreeVerification(self.db, copy, lambda note: self._open(note, keyring), self._faults)
            if checkpoint is not None and self._extends(before, checkpoint):
                tree.run(before, checkpoint)
        if deep:
            objects.run()
        return Report(
            size=head.size,
            since=start,
            note=head.checkpoint.encode() if self.policy is None else published.note,
            published_size=published.size,
            leaves=tree.leaves,
            checkpoints=tree.checkpoints,
            tiles=copy.tiles,
            objects=objects.objects,
            bytes=objects.length,
            changes=objects.changes,
            rewrites=objects.rewrites,
            states=objects.states,
            uncounted=objects.uncounted,
            statistics=objects.statistics,
            uncompared=objects.uncompared,
            uncovered=objects.uncovered,
            erased=tuple(objects.erased),
            fault_count=self._faults.count,
            faults=self._faults.faults(),
        )

    def verify_table(self, table: str) -> tuple[Fault, ...]:
        """The faults of one table's objects, deeply, without the tree and the published copy. NotFound without one."""
        faults = FaultCollector()
        size = Head.decode(self.db.get(store_keys.HEAD)).size
        objects = ObjectVerification(
            self.db,
            Attestations(self.s3, self.bucket),
            self.catalog,
            0,
            size,
            faults,
            self.workers,
            self.recount,
            self.recount_rows,
            self.compute_state,
            table,
        )
        objects.run()
        if not objects.tables:
            raise NotFound(f"{table} is not in the timeline, or was dropped: nothing of it was verified", subject=table)
        return faults.faults()

    def _published(self) -> PublishedCheckpoint:
        try:
            return Publisher(self.s3, self.bucket).published()
        except Unverified as error:
            self._add(CHECKPOINT_PATH, error.message)
            return PublishedCheckpoint()

    def _check_published(self, published: PublishedCheckpoint, head: Head, keyring: Keyring) -> None:
        """It must have the text that was signed, the log's own signature, and the cosignatures of the policy."""
        if not published.size:
            if self.policy is not None and head.size:
                self._add(CHECKPOINT_PATH, "none is published, so witnesses have cosigned nothing")
            return
        stored = self.db.get(store_keys.checkpoint(published.size)) or b""
        try:
            if text_of(published.note) != text_of(stored):
                raise Unverified("it is not the checkpoint that the timeline signed")
            self._open_trusted(published.note, keyring)
        except Unverified as error:
            self._add(CHECKPOINT_PATH, error.message, published.size - 1)

    def _head(self, published: int) -> Head:
        """The newest head. Waits up to MAX_LAG_S for the reader to reach the published size."""
        deadline = time.monotonic() + MAX_LAG_S
        while (head := Head.decode(self.db.get(store_keys.HEAD))).size < published:
            if time.monotonic() > deadline:
                what = f"it has {published} leaves, the database only {head.size}: it was replaced by an older one"
                self._add(CHECKPOINT_PATH, what)
                break
            time.sleep(0.1)
        return head

    def _keyring(self, head: Head) -> Keyring:
        """The stored key list. The published one must be the same."""
        stored = self.db.get(store_keys.KEYS)
        if stored is None:
            if head.size:
                self._add(row_name(store_keys.KEYS), "it is missing")
            return Keyring()
        try:
            with translate_errors(KEYS_PATH):
                public = self.s3.get_object(Bucket=self.bucket, Key=KEYS_PATH)["Body"].read()
            if public != stored:
                self._add(KEYS_PATH, "it is not the key list that the timeline signed")
        except NotFound:
            self._add(KEYS_PATH, "it is missing")
        try:
            keyring = Keyring.stored(stored)
            pinned = self.trusted if self.policy is None else self.policy.logs
            return keyring if pinned is None else keyring.trusting(pinned)
        except Unverified as error:
            self._add(row_name(store_keys.KEYS), error.message)
            return Keyring()

    def _open(self, note: bytes, keyring: Keyring) -> Checkpoint:
        """The checkpoint in a note that the log signed."""
        if self.policy is None:
            return keyring.open(note, self.origin)
        try:
            return open_checkpoint(note, self.policy.logs, self.origin)
        except ProofError as error:
            raise Unverified(f"the timeline's checkpoint does not verify: {error}") from None

    def _open_trusted(self, note: bytes, keyring: Keyring) -> Checkpoint:
        """The same, and it must be cosigned as the policy demands."""
        if self.policy is None:
            return self._open(note, keyring)
        try:
            return self.policy.check(note, self.origin)
        except ProofError as error:
            raise Unverified(f"the timeline's checkpoint does not meet the policy: {error}") from None

    def _open_head(self, head: Head, keyring: Keyring) -> Checkpoint | None:
        """The head's signed checkpoint; None for an empty timeline, or when the checkpoint does not verify."""
        if head.size == 0:
            return None
        try:
            checkpoint = self._open(head.checkpoint.encode(), keyring)
        except Unverified as error:
            self._add(row_name(store_keys.HEAD), error.message)
            return None
        if (checkpoint.size, checkpoint.root.hex()) != (head.size, head.root):
            self._add(row_name(store_keys.HEAD), "its size and root are not those of its signed checkpoint")
        return checkpoint

    def _extends(self, before: Checkpoint | None, now: Checkpoint) -> bool:
        """Whether the tree extends the one that was verified before: one consistency proof."""
        if before is None:
            return True
        try:
            if before.size > now.size:
                raise ProofError(f"it had {before.size} leaves, and now has {now.size}")
            source = StoredSource(self.db)
            proof = consistency_proof(before.size, now.size, hash_reader(now.size, source.read_tiles))
            verify_consistency(before.size, now.size, proof, before.root, now.root)
        except (ProofError, Unverified) as error:
            self._add(row_name(store_keys.HEAD), f"its history was changed: {error}")
            return False
        return True

    def _add(self, name: str, what: str, index: int | None = None) -> None:
        self._faults.add(Fault(name, what, index))
