"""Verifies a table's feed offline: every change set, and that no commit is missing, repeated or out of order.

In a feed from the table's beginning, the changes must also lead to the rows that each leaf states (feed_rows.py).
What is expected (table, range, checkpoints) comes from the caller, never from the feed. Needs pyarrow, catalog.merkle
and this package; makes no requests. Raises Unverified, which says what is wrong, and no other exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from catalog.changes.change_set import ChangeSet, KeyRange
from catalog.changes.commit_leaf import MAIN, Demand, ParsedLeaf, parse_leaf
from catalog.changes.feed_rows import FeedRows
from catalog.changes.multiset import RowsDigest
from catalog.changes.verifier import describe, refusing, verify_at
from catalog.core.errors import Invalid, Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy
from catalog.merkle.proof import read as read_proof
from catalog.merkle.tree import leaf_hash
from catalog.merkle.verify import ProofError, verify_consistency, verify_inclusion


@dataclass(frozen=True, slots=True)
class FeedState:
    """Where a verified feed ended. Keep it, and pass it on with the next feed of the table.

    It shows more than the sequence number: that the next feed's tree extends this one's, and that its first commit is
    compared with the snapshot that main was at here.
    """

    table: str
    table_uuid: str
    sequence: int
    index: int
    """The timeline index of the last verified leaf."""
    main: int | None
    """Main's snapshot after it; None: main has no snapshot. Meaningless unless `main_known`."""
    main_known: bool
    dropped: bool
    checkpoint: Checkpoint
    rows: FeedRows = field(default_factory=FeedRows)
    """Main's rows after it, as far as they are known."""


def verify_feed(
    feed: Iterable[ChangeSet],
    keys: VerifierKey | Iterable[VerifierKey],
    *,
    table: str | None = None,
    table_uuid: str | None = None,
    since: int | FeedState | None = None,
    until: int | None = None,
    origin: str | None = None,
    checkpoint: Checkpoint | None = None,
    kept: Checkpoint | None = None,
    partial: bool = False,
    key_range: KeyRange | None = None,
    policy: Policy | None = None,
    demand: Demand = "lake",
) -> int | None:
    """Verifies each change set, that it is of the expected table, and that they follow each other without a gap.

    `table`, `table_uuid`: the table that the caller expects; at least one is required. `since` is the table's sequence
    number after which the feed begins (None: it begins with the table's first leaf), or better the state of the
    FeedVerifier that verified the feed before; `until` is a sequence number that it must reach. For `checkpoint`,
    `kept`, `partial`, `key_range`, `policy` and `demand` see FeedVerifier. Returns the sequence number that the feed
    reached, that of `since` if the feed is empty. A feed cannot show that no later commit exists: compare it with a
    newer feed, or with the event that announced the commit. Memory: one change set.
    """
    verifier = FeedVerifier(
        [keys] if isinstance(keys, VerifierKey) else list(keys),
        table,
        table_uuid,
        since if isinstance(since, int) else -1,
        origin,
        checkpoint=checkpoint,
        kept=kept,
        partial=partial,
        key_range=key_range,
        resume=since if isinstance(since, FeedState) else None,
        policy=policy,
        demand=demand,
    )
    for changes in feed:
        verifier.add(changes)
    reached = verifier.finish(until)
    return None if reached < 0 else reached


@dataclass
class FeedVerifier:
    """Verifies one table's feed, change set by change set: call `add` for each in order, then `finish`.

    Use one FeedVerifier for the whole feed: it keeps the state that shows that the next change set follows the last.
    The caller names the table that he expects, by its name, its uuid or both. For a renamed table, give the name in
    the feed's last leaf. A table that was dropped and made anew has another uuid: its feed is another one. After
    Unverified, nothing more may be added.
    """

    keys: Sequence[VerifierKey]
    table: str | None = None
    table_uuid: str | None = None
    reached: int = -1
    """The sequence number of the last verified leaf; initially, of the leaf after which the feed must begin."""
    origin: str | None = None
    checkpoint: Checkpoint | None = None
    """The checkpoint that all proofs must be against, if the caller has one from elsewhere (a witness, a policy)."""
    kept: Checkpoint | None = None
    """A checkpoint that the caller kept: the feed's tree must extend it."""
    partial: bool = False
    """Whether change sets may lack changes: pages, selections, key ranges."""
    key_range: KeyRange | None = None
    """The only keys that the caller wants: each change set is complete, or has all changes of these keys."""
    resume: FeedState | None = None
    """Where the feed before this one ended."""
    policy: Policy | None = None
    """In place of the keys, which are then those of its logs: every checkpoint must be cosigned as it demands."""
    demand: Demand = "lake"
    """Who must have computed each changes_root: the lake, from the objects; "writer": whoever committed will do."""
    name: str | None = None
    """The table's name in the last verified leaf."""
    _index: int = -1
    """The timeline index of the last verified leaf."""
    _main: int | None = None
    """Main's snapshot id after the last verified leaf; None: main has no snapshot."""
    _main_known: bool = field(default=True, repr=False)
    """False in a feed that begins in the middle of the table's history, until a leaf states where main is."""
    _dropped: bool = False
    _rows: FeedRows = field(default_factory=FeedRows, repr=False)
    """Main's rows after the last verified leaf, if the feed has the table's whole history."""
    _last: Checkpoint | None = None
    """The checkpoint of the last verified proof; initially the kept one."""
    _opened: tuple[bytes, Checkpoint] | None = field(default=None, repr=False)
    """The last note whose signature was verified."""
    _failed: bool = False

    def __post_init__(self) -> None:
        if self.table is None and self.table_uuid is None and self.resume is None:
            raise Invalid("say which table the feed must be of: its name, its uuid or both")
        if self.policy is not None and self.keys:
            raise Invalid("pass the keys or a policy, and not both: the policy's logs are the keys")
        self._last, self._main_known = self.kept, self.reached < 0
        self._rows = FeedRows(RowsDigest() if self.reached < 0 else None)
        if (state := self.resume) is not None:
            if self.table_uuid not in (None, state.table_uuid):
                raise Invalid(f"the state is of the table with uuid {state.table_uuid}, not {self.table_uuid}")
            self.table_uuid, self.name, self.reached = state.table_uuid, state.table, state.sequence
            self._index, self._main, self._main_known = state.index, state.main, state.main_known
            self._dropped, self._rows = state.dropped, state.rows
            if self.kept is None:
                self._last = state.checkpoint
        if self._last is not None and self.origin is None:
            self.origin = self._last.origin

    def add(self, changes: ChangeSet) -> None:
        """Verifies the next change set. Unverified if it is wrong, or does not follow the one before."""
        if self._failed:
            raise Unverified("an earlier change set of this feed did not verify: verify it again from its beginning")
        self._failed = True
        with refusing(changes):
            self._check_expected_part(changes)
            if changes.evidence is None:
                raise Unverified(f"the changes of {describe(changes)} carry no evidence: request the feed with proofs")
            inclusions = [self._open(changes, *shown) for shown in (*changes.evidence.passed, _own(changes))]
            index, checkpoint = inclusions[-1]
            if any(other != checkpoint for _, other in inclusions):
                raise Unverified(f"{describe(changes)}: its leaves are not all proven against one checkpoint")
            self._check_checkpoint(changes, checkpoint)
            for (entry, _), (at, _) in zip(changes.evidence.passed, inclusions, strict=False):
                self._add_leaf(changes, parse_leaf(entry), at, has_changes=False)
            verify_at(changes, index, self.demand)
            leaf = parse_leaf(changes.evidence.leaf)
            if changes.commit.sequence != leaf.sequence:
                raise Unverified(f"{describe(changes)} is leaf {leaf.sequence} of its table, and does not say so")
            self._add_leaf(changes, leaf, index, has_changes=True)
            self._last, self.origin = checkpoint, checkpoint.origin
        self._failed = False

    def finish(self, until: int | None = None) -> int:
        """Returns the sequence number that the feed reached. Unverified for another table, or below `until`."""
        if self._failed:
            raise Unverified("a change set of this feed did not verify: nothing after it is proven")
        if self.table is not None and self.name not in (None, self.table):
            raise Unverified(
                f"the feed's last leaf is of {self.name} (uuid {self.table_uuid}), not of {self.table}: if that is the "
                "same table under an earlier name, verify it by that name or by its uuid",
                subject=self.table,
            )
        if until is not None and self.reached < until:
            raise Unverified(f"the feed ends with leaf {self.reached} of its table, and should reach {until}")
        return self.reached

    def state(self) -> FeedState | None:
        """What to keep for the next feed; None before the first verified change set."""
        if self._last is None or self.name is None or self.table_uuid is None or self._failed:
            return self.resume
        return FeedState(
            self.name,
            self.table_uuid,
            self.reached,
            self._index,
            self._main,
            self._main_known,
            self._dropped,
            self._last,
            self._rows,
        )

    def _check_expected_part(self, changes: ChangeSet) -> None:
        part = changes.part
        if part is None or (self.key_range is None and self.partial):
            return
        if self.key_range is None:
            raise Unverified(
                f"{describe(changes)} has only {len(changes)} of {changes.count} changes: ask for parts (partial) if "
                "that is intended"
            )
        if part.keys != self.key_range:
            raise Unverified(f"{describe(changes)} is not of the expected key range: changes may be missing")

    def _open(self, changes: ChangeSet, entry: bytes, proof: bytes) -> tuple[int, Checkpoint]:
        """The index of an entry that the proof shows to be in the log, and the checkpoint that it is proven against."""
        try:
            parsed = read_proof(proof)
            if self._opened is None or self._opened[0] != parsed.checkpoint:
                self._opened = parsed.checkpoint, self._open_checkpoint(parsed.checkpoint)
            signed = self._opened[1]
            verify_inclusion(leaf_hash(entry), parsed.index, signed.size, parsed.hashes, signed.root)
        except ProofError as error:
            raise Unverified(f"a leaf of {describe(changes)} is not in the signed timeline: {error}") from None
        return parsed.index, signed

    def _open_checkpoint(self, note: bytes) -> Checkpoint:
        if self.policy is not None:
            return self.policy.check(note, self.origin)
        return open_checkpoint(note, self.keys, self.origin)

    def _check_checkpoint(self, changes: ChangeSet, signed: Checkpoint) -> None:
        """Verifies that the tree is the expected one, and extends the tree of the change set before."""
        subject, last = describe(changes), self._last
        if self.checkpoint is not None and not _same(signed, self.checkpoint):
            raise Unverified(
                f"{subject} is proven against the checkpoint of size {signed.size}, not against the expected one of "
                f"size {self.checkpoint.size}"
            )
        if last is None or _same(signed, last) or (last.size == 0 and last.origin == signed.origin):
            return
        if signed.origin != last.origin:
            raise Unverified(f"{subject} is in another log, {signed.origin}; the feed before is in {last.origin}")
        assert changes.evidence is not None
        size, hashes = changes.evidence.consistency or (None, ())
        unproven = f"{subject}: nothing shows that its tree of size {signed.size} extends the one of size {last.size}"
        if size != last.size:
            raise Unverified(f"{unproven}: request the feed with a proof of consistency from size {last.size}")
        try:
            verify_consistency(last.size, signed.size, hashes, last.root, signed.root)
        except ProofError as error:
            raise Unverified(f"{unproven}: {error}") from None

    def _add_leaf(self, changes: ChangeSet, leaf: ParsedLeaf, index: int, *, has_changes: bool) -> None:
        """Verifies the table's next leaf: the change set's own, or one before it that changes no rows."""
        subject = describe(changes)
        if leaf.table_uuid != (self.table_uuid or leaf.table_uuid):
            raise Unverified(
                f"{subject}: its leaf is of the table with uuid {leaf.table_uuid}, not {self.table_uuid}. A table that "
                "was dropped and made anew has a feed of its own"
            )
        if leaf.sequence != self.reached + 1 or index <= self._index:
            raise Unverified(
                f"{subject}: leaf {leaf.sequence} of its table follows leaf {self.reached} in the feed: "
                "a commit was left out, repeated or moved"
            )
        if leaf.moves_rows != has_changes:
            reason = "it may change rows, but has no change set" if leaf.moves_rows else "it changes no rows"
            raise Unverified(f"{subject}: leaf {leaf.sequence} of its table is in the wrong position: {reason}")
        if leaf.table != (self.name or leaf.table) and leaf.operation != "rename":
            raise Unverified(
                f"{subject}: leaf {leaf.sequence} is of {leaf.table}, the leaves before are of {self.name}"
            )
        self._check_main(subject, leaf)
        self._rows = self._rows.after(leaf, changes if has_changes else None, subject)
        self.reached, self._index, self.name = leaf.sequence, index, leaf.table
        self.table_uuid = leaf.table_uuid

    def _check_main(self, subject: str, leaf: ParsedLeaf) -> None:
        """Verifies that the leaf goes on from where main was, and leaves main there unless it has a change set."""
        if self._dropped and leaf.operation != "rename":
            raise Unverified(f"{subject}: leaf {leaf.sequence} follows the leaf that says that the table was dropped")
        if (leaf.sequence == 0) != (leaf.operation == "create"):
            raise Unverified(f"{subject}: leaf {leaf.sequence} of its table is {leaf.operation}")
        if leaf.ref != MAIN:
            if leaf.operation in ("create", "rename", "drop", "schema", "metadata"):
                raise Unverified(f"{subject}: leaf {leaf.sequence}, {leaf.operation}, does not state where main is")
            return
        if self._main_known and leaf.parent_id != self._main:
            raise Unverified(
                f"{subject}: leaf {leaf.sequence} is compared with snapshot {leaf.parent_id}, but main was at snapshot "
                f"{self._main} before: the changes between those two are not in the feed"
            )
        if not leaf.moves_rows and leaf.snapshot_id != (None if leaf.operation == "drop" else leaf.parent_id):
            raise Unverified(
                f"{subject}: leaf {leaf.sequence}, {leaf.operation}, moves main from snapshot {leaf.parent_id} to "
                f"{leaf.snapshot_id}, and has no changes"
            )
        self._dropped = leaf.operation == "drop"
        # After a drop main is where it was: the table may be registered again.
        self._main, self._main_known = leaf.parent_id if self._dropped else leaf.snapshot_id, True


def _own(changes: ChangeSet) -> tuple[bytes, bytes]:
    assert changes.evidence is not None
    return changes.evidence.leaf, changes.evidence.proof


def _same(a: Checkpoint, b: Checkpoint) -> bool:
    """Whether they are of one tree. Extension lines and cosignatures may differ."""
    return (a.origin, a.size, a.root) == (b.origin, b.size, b.root)
