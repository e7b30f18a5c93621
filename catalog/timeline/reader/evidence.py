"""Evidence: leaves with a proof that they are in a signed tree, and what they show about a table. Verified offline.

A table as of a point in time is proven through the map of tables (table_map.py): the last leaf of a batch states the
map's root, and a path in the map shows the name's entry, or that there is none. Nothing is optional, so evidence that
hides a later commit, or shows a table that was dropped and made again, does not verify. Needs Python's standard library
and `cryptography`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.core.errors import Invalid, Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.map_verify import verify_absence, verify_value
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy
from catalog.merkle.prefix_map import EMPTY, MapProof
from catalog.merkle.tree import leaf_hash
from catalog.merkle.verify import ProofError, verify_batch
from catalog.timeline.log.leaf import MAIN, Leaf
from catalog.timeline.log.leaf_rules import parse_shown_leaf
from catalog.timeline.log.table_map import TableEntry, entry_after, table_key

MAX_LEAVES_IN_BATCH = 256
"""How many leaves the evidence for an index in the middle of a batch may have, from the batch's first on."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Leaves, with one proof that all of them are in the tree of a signed checkpoint."""

    leaves: tuple[tuple[int, bytes], ...]
    hashes: tuple[bytes, ...]
    note: bytes

    def verify(self, verifier_keys: Iterable[VerifierKey], origin: str | None = None) -> dict[int, Leaf]:
        """The leaves by index; Unverified if the evidence is wrong. Needs nothing but the keys."""
        return self.leaves_in(self.open(verifier_keys, origin))

    def open(
        self, verifier_keys: Iterable[VerifierKey], origin: str | None = None, policy: Policy | None = None
    ) -> Checkpoint:
        """The checkpoint that the evidence is against; Unverified unless it is signed, and cosigned by the policy."""
        try:
            if policy is not None:
                return policy.for_logs(verifier_keys).check(self.note, origin)
            return open_checkpoint(self.note, verifier_keys, origin)
        except ProofError as error:
            raise Unverified(f"the evidence does not verify: {error}") from None

    def leaves_in(self, checkpoint: Checkpoint) -> dict[int, Leaf]:
        """The leaves by index; Unverified unless all of them are in the checkpoint's tree."""
        try:
            indices = [index for index, _ in self.leaves]
            hashed = [leaf_hash(data) for _, data in self.leaves]
            verify_batch(hashed, indices, checkpoint.size, self.hashes, checkpoint.root)
        except ProofError as error:
            raise Unverified(f"the evidence does not verify: {error}") from None
        return {index: parse_shown_leaf(data) for index, data in self.leaves}


@dataclass(frozen=True, slots=True)
class MapEvidence:
    """A name in the map of tables after the leaf `index`, which ends a batch; -1: before the first leaf.

    `value`: the name's entry; None if the map has no such name.
    """

    index: int
    value: bytes | None
    proof: MapProof

    def entry(self, table: str, map_root: bytes) -> TableEntry | None:
        """The table's entry under the root; Unverified if the evidence is wrong."""
        try:
            if self.value is None:
                verify_absence(table_key(table), self.proof.siblings, self.proof.other, map_root)
                return None
            if self.proof.other is not None:
                raise ProofError("it shows a value and the leaf of another key")
            verify_value(table_key(table), self.value, self.proof.siblings, map_root)
        except ProofError as error:
            raise Unverified(f"{table} in the map of tables does not verify: {error}", subject=table) from None
        return TableEntry.decode(self.value)


@dataclass(frozen=True, slots=True)
class AsOf:
    """What the timeline says about a table's name at a cut, and the evidence for it.

    `index` is the cut: the last leaf that counts; -1 is before the first leaf. `table_uuid` is None if there was no
    table of this name. `stated_at` is the index of the leaf that states where main is: its schema is that of
    `snapshot_id`, which is None if main has no snapshot.

    The evidence has the leaf with the map's root, the table's last leaf and the leaf at `stated_at`; for a time, the
    leaves on both sides of it; for an index in the middle of a batch, all leaves of the batch up to it, since the map
    is then that of the batch before.
    """

    table: str
    table_uuid: str | None
    snapshot_id: int | None
    index: int
    stated_at: int | None
    time_ms: int | None
    map: MapEvidence
    evidence: Evidence

    def verify(
        self,
        verifier_keys: Iterable[VerifierKey] = (),
        origin: str | None = None,
        *,
        table: str,
        time_ms: int | None = None,
        index: int | None = None,
        table_uuid: str | None = None,
        checkpoint: Checkpoint | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Checks every claim. What is expected comes from the caller; Unverified if the evidence is for anything else.

        `table`, and `time_ms` or `index`: what the caller asked for. `table_uuid`: the table that he knows by this
        name; a table that was dropped and made again has another. `checkpoint` is the newest one that the caller knows,
        and the evidence must be against it. It is required for a time after which no leaf was sequenced, because
        evidence against an older checkpoint could omit such leaves. `policy`: the witnesses that must have cosigned.
        Costs one signature and about 60 hashes; no requests.
        """
        if (time_ms is None) == (index is None):
            raise Invalid("say as of what the table is expected: give either a time or an index")
        if (self.table, self.time_ms) != (table, time_ms) or index not in (None, self.index):
            raise Unverified(
                f"the evidence is for {self._described}, not for {_describe(table, time_ms, index)}", subject=table
            )
        signed = self.evidence.open(verifier_keys, origin, policy)
        if checkpoint is not None and signed != checkpoint:
            raise Unverified(
                f"the evidence is against the checkpoint of size {signed.size}, not the expected one of size "
                f"{checkpoint.size}",
                subject=table,
            )
        leaves = self.evidence.leaves_in(signed)
        self._check_cut(leaves, signed.size, checkpoint is not None)
        self._check_claims(self._entry(leaves), leaves)
        if table_uuid not in (None, self.table_uuid):
            raise Unverified(
                f"{table} was the table with uuid {self.table_uuid} then, not {table_uuid}: it was dropped and made "
                "again, or renamed",
                subject=table,
            )

    def _check_cut(self, leaves: dict[int, Leaf], size: int, is_newest: bool) -> None:
        """Checks that the cut is in the tree and, for a time, the last one sequenced by then."""
        if not -1 <= self.index < size or (self.time_ms is None and self.index < 0):
            raise Unverified(f"the evidence is for index {self.index} of a timeline of {size} leaves")
        if self.time_ms is None:
            return
        before, after = leaves.get(self.index), leaves.get(self.index + 1)
        if self.index >= 0 and (before is None or before.sequenced_ms > self.time_ms):
            raise self._unverified(f"nothing shows that index {self.index} was sequenced by then")
        if self.index + 1 == size:
            if not is_newest:
                raise self._unverified(
                    "the evidence has no leaf after that time: give the newest checkpoint to check it against"
                )
        elif after is None or after.sequenced_ms <= self.time_ms:
            raise self._unverified(f"nothing shows that index {self.index} was the last one sequenced by then")

    def _entry(self, leaves: dict[int, Leaf]) -> TableEntry | None:
        """The name's entry at the cut: from the map, and from all leaves between it and the cut."""
        at = self.map.index
        if at == -1:
            root = EMPTY.hex()
        elif at in leaves and at <= self.index and leaves[at].map_root is not None:
            root = leaves[at].map_root or ""
        else:
            raise self._unverified(f"no leaf at index {at} states the map of tables")
        if self.index - at > MAX_LEAVES_IN_BATCH:
            raise self._unverified(f"the evidence has the map of index {at}, which is too far from {self.index}")
        if missing := [index for index in range(at + 1, self.index + 1) if index not in leaves]:
            raise self._unverified(f"the evidence lacks leaf {missing[0]}, which may be of the table")
        between = [(index, leaves[index]) for index in range(at + 1, self.index + 1)]
        if newer := [index for index, leaf in between if leaf.map_root is not None]:
            # With the key, the two maps could differ: of all the maps at a cut, only the last one counts.
            raise self._unverified(f"leaf {newer[-1]} states a later map of tables than leaf {at}")
        entry = self.map.entry(self.table, bytes.fromhex(root))
        return entry_after(self.table, entry, between)

    def _check_claims(self, entry: TableEntry | None, leaves: dict[int, Leaf]) -> None:
        if entry is None:
            if (self.table_uuid, self.snapshot_id, self.stated_at) != (None, None, None):
                raise self._unverified("there was no such table")
            return
        claimed = (self.table_uuid, self.snapshot_id, self.stated_at)
        if claimed != (entry.table_uuid, entry.snapshot_id, entry.main_index) or entry.main_index is None:
            raise self._unverified(f"the timeline has the table {entry.table_uuid} at snapshot {entry.snapshot_id}")
        last, stated = leaves.get(entry.index), leaves.get(entry.main_index)
        for leaf in (last, stated):
            if leaf is None or (leaf.table, leaf.table_uuid) != (self.table, entry.table_uuid):
                raise self._unverified("the evidence lacks a leaf of the table")
        assert last is not None
        assert stated is not None
        if not entry.main_index <= entry.index <= self.index or entry.main_index + stated.following > self.index:
            raise self._unverified("the map of tables states a leaf that comes after it")
        if "drop" in (last.operation, stated.operation) or stated.sequence > last.sequence:
            raise self._unverified("the map of tables has a table whose leaves say that it was dropped")
        claims = (MAIN, entry.snapshot_id, entry.state_root)
        if last.sequence != entry.sequence or (stated.ref, stated.snapshot_id, stated.state_root) != claims:
            raise self._unverified("the table's leaves are not those that the map of tables states")

    @property
    def stated(self) -> Leaf | None:
        """The leaf that states where main is; None if there was no such table."""
        return None if self.stated_at is None else Leaf.decode(dict(self.evidence.leaves)[self.stated_at])

    @property
    def last_sequence(self) -> int | None:
        """The sequence of the table's last leaf at the cut; None if there was no such table. Verify first."""
        leaves = [(index, parse_shown_leaf(entry)) for index, entry in self.evidence.leaves]
        return max((leaf.sequence for index, leaf in leaves if self._is_own(index, leaf)), default=None)

    def _is_own(self, index: int, leaf: Leaf) -> bool:
        return index <= self.index and leaf.table_uuid == self.table_uuid

    @property
    def _described(self) -> str:
        return _describe(self.table, self.time_ms, None if self.time_ms is not None else self.index)

    def _unverified(self, what: str) -> Unverified:
        return Unverified(f"{self._described} does not verify: {what}", subject=self.table)


def _describe(table: str, time_ms: int | None, index: int | None) -> str:
    return f"{table} at index {index}" if time_ms is None else f"{table} at the time {time_ms} (ms)"
