"""The proof that a row was, or was not, in a table at a point of the timeline: one tlog-proof file (docs/spec).

    checkpoint -> leaf that ends a batch -> map of tables -> the table's state root -> state map -> the row's digest

Nothing in it is optional, so a row that is there cannot seem absent, and a later commit cannot be hidden. What is
expected (table, key, point, keys or policy) comes from the caller. Needs the standard library and `cryptography`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from catalog.changes.key_digest import key_digest
from catalog.changes.packed_json import pack, unpack
from catalog.changes.row_decoding import decode_row
from catalog.changes.row_proof_format import FORMAT
from catalog.changes.state_root import StateDescription
from catalog.core.errors import Invalid, Unverified
from catalog.merkle.checkpoint import Checkpoint, open_checkpoint
from catalog.merkle.map_verify import verify_absence, verify_value
from catalog.merkle.note import VerifierKey
from catalog.merkle.policy import Policy
from catalog.merkle.prefix_map import MapProof
from catalog.merkle.proof import ProofFile
from catalog.merkle.proof import read as read_file
from catalog.merkle.proof import write as write_file
from catalog.merkle.tree import leaf_hash
from catalog.merkle.verify import ProofError, verify_inclusion
from catalog.timeline import Leaf, TableEntry, parse_shown_leaf, table_key

_PARTS = 9
MAX_PART = _MAX_ENTRY = 0xFFFF
_HASH = 32


@dataclass(frozen=True, slots=True)
class RowProof:
    """A parsed proof, not verified yet.

    `entry` is the leaf at `index`, which ends a batch; `path` and `checkpoint` show that it is in the log. `value` is
    the table's entry in the map of tables, and `map_siblings` its path there. `state` is the path of the key in the
    state map, `salted` the salt and digest of its row, None if there is none. `row` is the row's encoding, b"" if it
    is not shown. `next_entry` and `next_path` show the leaf after `index`: a point in time lies between the two.
    """

    index: int
    path: tuple[bytes, ...]
    checkpoint: bytes
    entry: bytes
    value: bytes
    map_siblings: tuple[bytes, ...]
    description: bytes
    salted: bytes | None
    state: MapProof
    row: bytes = b""
    next_entry: bytes = b""
    next_path: tuple[bytes, ...] = ()

    def write(self) -> bytes:
        """The file: 2.2 KB for a million rows, and 43 bytes more for each doubling of the log, or of its tables."""
        other = b"".join(self.state.other or ())
        parts = [
            pack(self.entry),
            pack(self.value),
            b"".join(self.map_siblings),
            self.description,
            b"A" + other if self.salted is None else b"P" + self.salted,
            b"".join(self.state.siblings),
            self.row,
            pack(self.next_entry),
            b"".join(self.next_path),
        ]
        if any(len(part) > MAX_PART for part in parts):
            raise ValueError(f"a part of the proof has more than {MAX_PART} bytes")
        extra = FORMAT + b"".join(len(part).to_bytes(2, "big") + part for part in parts)
        return write_file(ProofFile(self.index, self.path, self.checkpoint, extra))

    @classmethod
    def read(cls, data: bytes) -> RowProof:
        """Parses a file strictly: Unverified unless the bytes are exactly what `write` would write."""
        try:
            file = read_file(data)
            entry, value, map_siblings, description, row_state, siblings, row, next_entry, next_path = _parts(
                file.extra
            )
            kind, shown = row_state[:1], row_state[1:]
            if (kind, len(shown)) not in ((b"P", 64), (b"A", 0), (b"A", 64)):
                raise ValueError("it says neither that there is a row nor that there is none")
            other = (shown[:32], shown[32:]) if kind == b"A" and shown else None
            proof = cls(
                file.index,
                file.hashes,
                file.checkpoint,
                unpack(entry, _MAX_ENTRY),
                unpack(value, _MAX_ENTRY),
                _hashes(map_siblings),
                description,
                shown if kind == b"P" else None,
                MapProof(_hashes(siblings), other),
                row,
                unpack(next_entry, _MAX_ENTRY),
                _hashes(next_path),
            )
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
        index: int | None = None,
        time_ms: int | None = None,
        table_uuid: str | None = None,
        checkpoint: Checkpoint | None = None,
        policy: Policy | None = None,
    ) -> VerifiedRow:
        """What the proof shows; Unverified if it is of another table, key or point, or wrong in any other way.

        `key`: key column -> value, as text or as Python's. `index` or `time_ms`: the point that the caller asked for;
        with neither, the end of `checkpoint`. `checkpoint`: the newest one that the caller knows, which the proof must
        be against; required for a time after which no leaf was sequenced. `table_uuid`: the table that he knows by this
        name. `policy` takes the place of the keys. Costs one signature and about 60 hashes; no requests.
        """
        if index is not None and time_ms is not None:
            raise Invalid("say as of what the row is expected: an index or a time, and not both")
        if index is None and time_ms is None and checkpoint is None:
            raise Invalid("say as of what the row is expected: an index, a time, or the newest checkpoint")
        try:
            return self._verified(
                self._open(tuple(verifier_keys), origin, policy, checkpoint),
                (table, table_uuid),
                key,
                (index, time_ms),
                checkpoint is not None,
            )
        except (ProofError, ValueError) as error:
            raise Unverified(f"the row of {table} is not proven: {error}", subject=table) from None

    def _open(
        self, keys: tuple[VerifierKey, ...], origin: str | None, policy: Policy | None, expected: Checkpoint | None
    ) -> Checkpoint:
        if policy is not None:
            signed = policy.for_logs(keys).check(self.checkpoint, origin)
        else:
            signed = open_checkpoint(self.checkpoint, keys, origin)
        if expected is not None and signed != expected:
            raise ProofError(
                f"it is against the checkpoint of size {signed.size}, not the expected one of size {expected.size}"
            )
        return signed

    def _verified(
        self,
        signed: Checkpoint,
        expected: tuple[str, str | None],
        key: Mapping[str, Any],
        point: tuple[int | None, int | None],
        is_newest: bool,
    ) -> VerifiedRow:
        leaf = self._leaf_at(signed, *point, is_newest)
        if leaf.map_root is None:
            raise ProofError(f"leaf {self.index} does not end a batch, so it has no map of tables")
        table, table_uuid = expected
        verify_value(table_key(table), self.value, self.map_siblings, bytes.fromhex(leaf.map_root))
        entry = TableEntry.decode(self.value)
        if table_uuid not in (None, entry.table_uuid):
            raise ProofError(f"it is of the table with the uuid {entry.table_uuid}, not {table_uuid}")
        if entry.main_index is None or not entry.main_index <= entry.index <= self.index:
            raise ProofError("the map of tables states a leaf that comes after it")
        if entry.state_root is None:
            raise ProofError("the timeline has no map of the table's rows at that point")
        description = StateDescription.decode(self.description)
        digest = self._verify_row(description, key, bytes.fromhex(entry.state_root))
        values = None
        if self.row:
            if digest is None or sha256(self.row).digest() != digest:
                raise ProofError("the row that it shows is not the row of the key")
            names = dict(description.columns)
            values = {name: None for _, name in description.columns}
            values |= {names.get(number, f"field {number}"): value for number, value in decode_row(self.row).items()}
        return VerifiedRow(
            table, entry.table_uuid, entry.snapshot_id, self.index, leaf.sequenced_ms, digest, values, signed
        )

    def _verify_row(self, description: StateDescription, key: Mapping[str, Any], state_root: bytes) -> bytes | None:
        """The digest of the key's row; None if there is none."""
        if set(key) != set(description.key_names):
            raise ProofError(f"the table's key is ({', '.join(description.key_names)}), not ({', '.join(key)})")
        at = key_digest(description.key, [key[name] for name in description.key_names])
        root = _map_root(at, self.salted, self.state)
        if description.state_root(root) != state_root:
            raise ProofError("it does not lead to the state root in the map of tables")
        if self.salted is None:
            verify_absence(at, self.state.siblings, self.state.other, root)
            return None
        verify_value(at, self.salted, self.state.siblings, root)
        return self.salted[_HASH:]

    def _leaf_at(self, signed: Checkpoint, index: int | None, time_ms: int | None, is_newest: bool) -> Leaf:
        """The proven leaf at `self.index`; ProofError unless that is the point which the caller asked for."""
        verify_inclusion(leaf_hash(self.entry), self.index, signed.size, self.path, signed.root)
        leaf, is_last = parse_shown_leaf(self.entry), self.index + 1 == signed.size
        if bool(self.next_entry) != (time_ms is not None and not is_last):
            raise ProofError("it shows the leaf after its point, or lacks it")
        if index is not None and index != self.index:
            raise ProofError(f"it is for index {self.index}, not for {index}")
        if index is None and time_ms is None and not is_last:
            raise ProofError(f"it is for index {self.index}, and the newest is {signed.size - 1}")
        if time_ms is None:
            return leaf
        if leaf.sequenced_ms > time_ms:
            raise ProofError(f"leaf {self.index} was sequenced after that time")
        if is_last:
            if not is_newest:
                raise ProofError("it has no leaf after that time: give the newest checkpoint to check it against")
            return leaf
        verify_inclusion(leaf_hash(self.next_entry), self.index + 1, signed.size, self.next_path, signed.root)
        if parse_shown_leaf(self.next_entry).sequenced_ms <= time_ms:
            raise ProofError(f"leaf {self.index} was not the last one sequenced by that time")
        return leaf


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
    digest: bytes | None
    values: dict[str, Any] | None
    checkpoint: Checkpoint

    @property
    def exists(self) -> bool:
        return self.digest is not None


def _map_root(key: bytes, salted: bytes | None, proof: MapProof) -> bytes:
    """The root that the path leads to."""
    if len(proof.siblings) > 256:
        raise ProofError("a path in the state map has at most 256 hashes")
    at = bytes(_HASH)
    if salted is not None:
        at = sha256(b"\x02" + key + sha256(salted).digest()).digest()
    elif proof.other is not None:
        at = sha256(b"\x02" + proof.other[0] + proof.other[1]).digest()
    for depth in range(len(proof.siblings) - 1, -1, -1):
        right = key[depth >> 3] >> (7 - (depth & 7)) & 1
        pair = (proof.siblings[depth], at) if right else (at, proof.siblings[depth])
        at = sha256(b"\x03" + pair[0] + pair[1]).digest()
    return at


def _parts(extra: bytes) -> Sequence[bytes]:
    if not extra.startswith(FORMAT):
        raise ValueError("it is a proof file of another kind")
    parts, at = list[bytes](), len(FORMAT)
    while at < len(extra):
        size = int.from_bytes(extra[at : at + 2], "big")
        parts.append(extra[at + 2 : at + 2 + size])
        at += 2 + size
    if len(parts) != _PARTS or at != len(extra):
        raise ValueError(f"it has not exactly {_PARTS} parts")
    return parts


def _hashes(data: bytes) -> tuple[bytes, ...]:
    if len(data) % _HASH:
        raise ValueError("a path is not a list of hashes")
    return tuple(data[at : at + _HASH] for at in range(0, len(data), _HASH))
