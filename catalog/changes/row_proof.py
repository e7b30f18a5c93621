"""The proof that rows were, or were not, in a table at a point of the timeline: one tlog-proof file (docs/spec).

    checkpoint -> leaf that ends a batch -> map of tables -> the table's state root -> state map -> the rows' digests

Nothing in it is optional, so a row that is there cannot seem absent, and a later commit cannot be hidden. What is
expected (table, keys, point, public keys or policy) comes from the caller. The verifier computes each hash on the way
up, so the file has none of them. Needs the standard library and `cryptography`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from catalog.changes import proof_bytes, proof_records
from catalog.changes.key_digest import key_digest
from catalog.changes.key_sets import RANGED_TYPES
from catalog.changes.row_decoding import decode_row
from catalog.changes.row_proof_format import FORMAT, check_format
from catalog.changes.state_proof import Place, ShownRow
from catalog.changes.state_root import StateDescription
from catalog.core.errors import Invalid, LakeError, Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.map_verify import root_of
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy
from catalog.merkle.proof import ProofFile
from catalog.merkle.proof import read as read_file
from catalog.merkle.proof import write as write_file
from catalog.merkle.tree import leaf_hash, node_hash
from catalog.merkle.verify import ProofError, verify_inclusion
from catalog.timeline import Leaf, TableEntry, parse_shown_leaf, table_key


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """What the caller asked for: never taken from the file.

    `index` or `time_ms`: the point; with neither, the end of `checkpoint`. `checkpoint`: the newest one that the caller
    knows, which the proof must be against; required for a time after which no leaf was sequenced. `table_uuid`: the
    table that he knows by this name. `ranged`: the columns of which the keys are a range: between two of its values
    there must be no other, which depends on the column's type.
    """

    table: str
    keys: Sequence[Mapping[str, Any]]
    index: int | None = None
    time_ms: int | None = None
    table_uuid: str | None = None
    checkpoint: Checkpoint | None = None
    ranged: frozenset[str] = frozenset()

    def check(self) -> None:
        if self.index is not None and self.time_ms is not None:
            raise Invalid("say as of what the row is expected: an index or a time, and not both")
        if self.index is None and self.time_ms is None and self.checkpoint is None:
            raise Invalid("say as of what the row is expected: an index, a time, or the newest checkpoint")
        if not self.keys:
            raise Invalid("say which rows are expected: there is no key")


@dataclass(frozen=True, slots=True)
class RowProof:
    """A parsed proof, not verified yet.

    `leaf` is the one at `index`, which ends a batch; `path` and `checkpoint` show that it is in the log. `entry` is the
    table's in the map of tables, and `map_siblings` its path there; both lack what the verifier computes or knows
    (proof_records). `rows` is where the keys lead in the state map. `next_leaf` is the one after `index`, since a point
    in time lies between the two, and `next_path` the part of its path below where the two paths meet.
    """

    index: int
    path: tuple[bytes, ...]
    checkpoint: bytes
    leaf: Leaf
    entry: TableEntry
    map_siblings: tuple[bytes, ...]
    description: StateDescription
    rows: Place
    next_leaf: Leaf | None = None
    next_path: tuple[bytes, ...] = ()

    @property
    def count(self) -> int:
        """How many of its keys have a row, by its own account."""
        return self.rows.count

    def write(self) -> bytes:
        """The file: for a row among a million 1.7 KB in a new log; in one of 1,000 leaves and ten tables 2.1 to 2.2 KB
        at the newest index, 2.3 to 2.4 KB at an earlier one (tests/unit/changes/test_row_proof_size.py)."""
        parts = [
            proof_records.write_leaf(self.leaf),
            proof_records.write_entry(self.entry),
            proof_bytes.path(self.map_siblings),
            proof_records.write_description(self.description),
            self.rows.write(),
        ]
        if self.next_leaf is not None:
            parts += [proof_records.write_leaf(self.next_leaf), proof_bytes.path(self.next_path)]
        return write_file(ProofFile(self.index, self.path, self.checkpoint, FORMAT + b"".join(parts)))

    @classmethod
    def read(cls, data: bytes) -> RowProof:
        """Parses a file strictly: Unverified unless the bytes are exactly what `write` would write."""
        try:
            file = read_file(data)
            check_format(file.extra)
            parts = proof_bytes.ProofBytes(file.extra[len(FORMAT) :])
            proof = cls(
                file.index,
                file.hashes,
                file.checkpoint,
                proof_records.read_leaf(parts),
                proof_records.read_entry(parts),
                parts.path(),
                proof_records.read_description(parts),
                Place.read(parts),
            )
            if not parts.at_end:
                following = proof_records.read_leaf(parts, has_map_root=True)
                proof = replace(proof, next_leaf=following, next_path=parts.path())
            if proof.write() != data:
                raise ValueError("it is not in its canonical form")
        except (ProofError, ValueError) as error:
            raise Unverified(f"not the proof of a row: {error!s:.200}") from None
        return proof

    def verify(
        self,
        verifier_keys: Iterable[VerifierKey] = (),
        origin: str | None = None,
        *,
        table: str,
        key: Mapping[str, Any],
        policy: Policy | None = None,
        **point: Any,
    ) -> VerifiedRow:
        """What the proof shows of one key: see `verify_all`. It must be the proof of this key alone."""
        return self.verify_all(verifier_keys, origin, ExpectedRows(table, [key], **point), policy=policy).rows[0]

    def verify_all(
        self,
        verifier_keys: Iterable[VerifierKey],
        origin: str | None,
        expected: ExpectedRows,
        *,
        policy: Policy | None = None,
    ) -> VerifiedRows:
        """What the proof shows: the row of each key, or that it has none, in the order of the keys.

        A key is key column -> value, as text or as Python's. Unverified if the proof is of another table, point or set
        of keys, or wrong in any other way. `policy` takes the place of the public keys. Costs one signature, and about
        60 hashes for a key; no requests.
        """
        expected.check()
        try:
            signed = self._open(tuple(verifier_keys), origin, policy)
            if expected.checkpoint is not None and expected.checkpoint != signed:
                other = f"not the expected one of size {expected.checkpoint.size}"
                raise ProofError(f"it is against the checkpoint of size {signed.size}, {other}")
            return self._verified(signed, expected)
        except LakeError as error:
            raise Unverified(
                f"a row of {expected.table} is not proven: {error.message}", subject=expected.table
            ) from None
        except (ProofError, ValueError) as error:
            raise Unverified(f"a row of {expected.table} is not proven: {error}", subject=expected.table) from None

    def _open(self, keys: tuple[VerifierKey, ...], origin: str | None, policy: Policy | None) -> Checkpoint:
        if policy is not None:
            return policy.for_logs(keys).check(self.checkpoint, origin)
        return open_checkpoint(self.checkpoint, keys, origin)

    def _verified(self, signed: Checkpoint, expected: ExpectedRows) -> VerifiedRows:
        """Computes every hash from the rows up to the log's root, then checks the point."""
        check_ranged(self.description, expected.ranged)
        digests = [_key_digest(self.description, key) for key in expected.keys]
        map_root, rows = self.rows.verify(list(dict.fromkeys(digests)))
        entry = replace(self.entry, state_root=self.description.state_root(map_root).hex())
        if expected.table_uuid not in (None, entry.table_uuid):
            raise ProofError(f"it is of the table with the uuid {entry.table_uuid}, not {expected.table_uuid}")
        if entry.main_index is None or not entry.main_index <= entry.index <= self.index:
            raise ProofError("the map of tables states a leaf that comes after it")
        tables_root = root_of(table_key(expected.table), entry.encode(), self.map_siblings)
        leaf = proof_records.complete_leaf(self.leaf, tables_root, expected.table, entry)
        self._check_point(signed, leaf.encode(), expected)
        shown = zip(expected.keys, digests, strict=True)
        return VerifiedRows(
            expected.table,
            entry.table_uuid,
            entry.snapshot_id,
            self.index,
            leaf.sequenced_ms,
            tuple(self._row(key, rows[digest], entry, leaf, signed, expected) for key, digest in shown),
            signed,
        )

    def _row(
        self,
        key: Mapping[str, Any],
        row: ShownRow | None,
        entry: TableEntry,
        leaf: Leaf,
        signed: Checkpoint,
        expected: ExpectedRows,
    ) -> VerifiedRow:
        values = None
        if row is not None and row.encoding:
            names = dict(self.description.columns)
            values = {name: None for _, name in self.description.columns}
            decoded = decode_row(row.encoding)
            values |= {names.get(number, f"field {number}"): value for number, value in decoded.items()}
        digest = None if row is None else row.digest
        about = (expected.table, entry.table_uuid, entry.snapshot_id, self.index, leaf.sequenced_ms)
        return VerifiedRow(*about, dict(key), digest, values, signed)

    def _check_point(self, signed: Checkpoint, entry: bytes, expected: ExpectedRows) -> None:
        """ProofError unless the leaf is in the log, at the point that the caller asked for."""
        try:
            verify_inclusion(leaf_hash(entry), self.index, signed.size, self.path, signed.root)
        except ProofError:
            raise ProofError(
                "it does not lead to the checkpoint: it is of another table, key, row or point, or was changed"
            ) from None
        leaf, is_last = parse_shown_leaf(entry), self.index + 1 == signed.size
        index, time_ms = expected.index, expected.time_ms
        if (self.next_leaf is not None) != (time_ms is not None and not is_last):
            raise ProofError("it shows the leaf after its point, or lacks it")
        if index is not None and index != self.index:
            raise ProofError(f"it is for index {self.index}, not for {index}")
        if index is None and time_ms is None and not is_last:
            raise ProofError(f"it is for index {self.index}, and the newest is {signed.size - 1}")
        if time_ms is None:
            return
        if leaf.sequenced_ms > time_ms:
            raise ProofError(f"leaf {self.index} was sequenced after that time")
        if self.next_leaf is None:
            if expected.checkpoint is None:
                raise ProofError("it has no leaf after that time: give the newest checkpoint to check it against")
            return
        following = self.next_leaf.encode()
        path = next_path(entry, self.index, self.path, self.next_path)
        verify_inclusion(leaf_hash(following), self.index + 1, signed.size, path, signed.root)
        if parse_shown_leaf(following).sequenced_ms <= time_ms:
            raise ProofError(f"leaf {self.index} was not the last one sequenced by that time")


@dataclass(frozen=True, slots=True)
class VerifiedRow:
    """What a proof shows: the table had this row under the key, or none, after leaf `index`.

    `digest`: the row's digest, None if there was no row. `values`: the row, if the proof shows it.
    """

    table: str
    table_uuid: str
    snapshot_id: int | None
    index: int
    sequenced_ms: int
    key: dict[str, Any]
    digest: bytes | None
    values: dict[str, Any] | None
    checkpoint: Checkpoint

    @property
    def exists(self) -> bool:
        return self.digest is not None


@dataclass(frozen=True, slots=True)
class VerifiedRows:
    """What a proof shows of several keys: each one's row, or that there is none. No row of these keys is missing."""

    table: str
    table_uuid: str
    snapshot_id: int | None
    index: int
    sequenced_ms: int
    rows: tuple[VerifiedRow, ...]
    checkpoint: Checkpoint


def next_path(entry: bytes, index: int, path: Sequence[bytes], below: Sequence[bytes]) -> tuple[bytes, ...]:
    """The path of the leaf after `index`, from the path of that at `index` and the hashes below where they meet."""
    at, depth = leaf_hash(entry), 0
    while index >> depth & 1 and depth < len(path):
        at, depth = node_hash(path[depth], at), depth + 1
    return (*below, at, *path[depth + 1 :])


def check_ranged(description: StateDescription, ranged: frozenset[str]) -> None:
    """ValueError for a range of a column whose type has values between two that follow each other in the range."""
    for (_, kind), name in zip(description.key, description.key_names, strict=True):
        if name in ranged and kind not in RANGED_TYPES:
            message = f"a range of {name} cannot be complete: its type is {kind}, which has values in between"
            raise ValueError(f"{message}. Give the values one by one")


def _key_digest(description: StateDescription, key: Mapping[str, Any]) -> bytes:
    if set(key) != set(description.key_names):
        raise ProofError(f"the table's key is ({', '.join(description.key_names)}), not ({', '.join(key)})")
    return key_digest(description.key, [key[name] for name in description.key_names])
