"""Forgeries of row proofs: a timeline with rows, its honest proofs, and mutations of their meaning and of their bytes.

Everything is signed by a key that the forger does not have: what he can do is show other parts of the truth, or lies.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields, replace
from hashlib import sha256
from typing import Any

import numpy as np

from catalog.changes import ExpectedRows, RowProof
from catalog.changes.key_digest import key_digest
from catalog.changes.proof_records import LEFT_OUT, shorten_leaf
from catalog.changes.row_proof import next_path
from catalog.changes.state_map import StateMap, StateMaps
from catalog.changes.state_proof import Fork, OtherLeaf, Place, ShownRow, joined
from catalog.changes.state_root import StateDescription
from catalog.core.errors import Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.prefix_map import PrefixMap
from catalog.merkle.tree import CompactRange, inclusion_proof, leaf_hash, root
from catalog.timeline import Leaf, TableEntry, table_key

SIGNER = Ed25519Signer("lake.example/rows", bytes(range(32)))
UUIDS = {"sales.a": "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c0a", "sales.b": "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c0b"}
DESCRIPTION = StateDescription(((1, "id"), (2, "v")), ((1, "long"),))
Asked = tuple[str, tuple[int, ...], int | None, int | None]
"""Table, keys, index, time."""


def encoding(key: int, value: int) -> bytes:
    slots = b"".join(bytes((0, 0, 0, field, 2)) + number.to_bytes(8, "big") for field, number in ((1, key), (2, value)))
    return bytes(4) + b"\x0f" + (2).to_bytes(8, "big") + slots


def digest(key: int) -> bytes:
    return key_digest(DESCRIPTION.key, [key])


class Rows:
    """Two tables over six leaves. `truths`: what an honest proof of each question shows."""

    def __init__(self) -> None:
        self.nodes = dict[bytes, bytes]()
        self.maps = StateMaps(bytes(32), lambda wanted: [self.nodes[at] for at in wanted])
        states: list[tuple[str, dict[int, int]]] = [
            ("sales.a", {}),
            ("sales.b", {at: at for at in range(3)}),
            ("sales.a", {at: at for at in range(150)}),
            ("sales.a", {at: at + 1 for at in range(0, 150, 2)}),
            ("sales.b", dict.fromkeys(range(2, 9), 7)),
            ("sales.a", {at: at for at in range(100)}),
        ]
        self.contents = list[dict[str, dict[int, int]]]()
        self.entries, self.leaves, tables = list[bytes](), list[Leaf](), PrefixMap()
        self.tables, self.states = list[PrefixMap](), list[dict[str, StateMap]]()
        sequences = dict.fromkeys(UUIDS, -1)
        for index, (name, content) in enumerate(states):
            sequences[name] += 1
            keys = [digest(at) for at in content]
            rows = [sha256(encoding(at, value)).digest() for at, value in content.items()]
            state = self.maps.build(_hashes(keys), _hashes(rows)) if content else StateMap()
            self.nodes |= self.maps.nodes
            hexed = sha256(f"{index}".encode()).hexdigest()
            leaf = Leaf(
                table=name, table_uuid=UUIDS[name], snapshot_id=index + 1, parent_id=None, sequence=sequences[name],
                committed_ms=index, sequenced_ms=1000 + 10 * index, operation="append", ref="main",
                schema_sha256=hexed, metadata_sha256=hexed, content_root=hexed, changes_root=hexed, changes_count=1,
                attested="lake", state_digest=hexed, state_root=DESCRIPTION.state_root(state.root).hex(),
            )  # fmt: skip
            entry = TableEntry(UUIDS[name], sequences[name], index, index, index + 1, leaf.state_root)
            tables = tables.updated({table_key(name): entry.encode()})
            self.leaves.append(replace(leaf, map_root=tables.root.hex()))
            self.entries.append(self.leaves[-1].encode())
            self.tables.append(tables)
            self.states.append({**(self.states[-1] if self.states else {}), name: state})
            self.contents.append({**(self.contents[-1] if self.contents else {}), name: content})
        self.size = len(self.entries)
        hashes = [leaf_hash(entry) for entry in self.entries]
        self._tree = {(level, at): value for level, at, value in CompactRange().extend(hashes)[1]}
        self.checkpoint = Checkpoint(SIGNER.name, self.size, root(hashes))
        self.note = self.checkpoint.sign([SIGNER])
        self.proofs, self.truths = dict[Asked, RowProof](), dict[Asked, Any]()
        for name in UUIDS:
            for index in range(1, self.size):
                for numbers in ((1,), (7,), (777,), (1, 2, 3), (0, 8, 140, 777, 778), tuple(range(20))):
                    for asked in ((name, numbers, index, None), (name, numbers, None, 1000 + 10 * index + 3)):
                        self._prove(asked, index)

    def _path(self, index: int) -> tuple[bytes, ...]:
        return tuple(inclusion_proof(index, self.size, lambda wanted: [self._tree[at] for at in wanted]))

    def _prove(self, asked: Asked, index: int) -> None:
        name, numbers, _, time_ms = asked
        if name not in self.states[index]:
            return
        value = self.tables[index].get(table_key(name))
        assert value is not None
        entry, state = TableEntry.decode(value), self.states[index][name]
        content, own = self.contents[index][name], self._path(index)
        shown = {sha256(encoding(at, v)).digest(): encoding(at, v) for at, v in content.items() if at % 3}
        proof = RowProof(
            index, own, self.note, shorten_leaf(self.leaves[index], name, entry), replace(entry, state_root=LEFT_OUT),
            self.tables[index].prove(table_key(name)).siblings, DESCRIPTION,
            joined([(digest(at), *self.maps.prove(state, digest(at))) for at in numbers]).with_rows(
                lambda row: shown.get(row, b"")
            ),
        )  # fmt: skip
        if time_ms is not None and index + 1 < self.size:
            after = self._path(index + 1)
            below = after[: len(after) - len(next_path(b"", index, own, ()))]
            proof = replace(proof, next_leaf=self.leaves[index + 1], next_path=below)
        self.proofs[asked] = proof
        self.truths[asked] = [{"id": at, "v": content[at]} if at in content else None for at in numbers]
        shows = [
            (row is not None, row if at % 3 else None) for at, row in zip(numbers, self.truths[asked], strict=True)
        ]
        assert self.learned(proof.write(), asked) == shows

    def learned(self, data: bytes, asked: Asked) -> Any:
        """What a verifier learns from a file; None if it refuses it."""
        name, numbers, index, time_ms = asked
        keys = [{"id": number} for number in numbers]
        expected = ExpectedRows(name, keys, index, time_ms, checkpoint=self.checkpoint)
        try:
            found = RowProof.read(data).verify_all([SIGNER.verifier_key], None, expected)
        except Unverified:
            return None
        return [(row.exists, row.values) for row in found.rows]

    def is_believed(self, forged: RowProof | bytes, asked: Asked) -> bool:
        """Whether a forgery is believed that says anything else than the truth. Hiding a row's values is no lie."""
        try:
            data = forged if isinstance(forged, bytes) else forged.write()
        except (ValueError, TypeError, AttributeError):
            return False  # what cannot be written is no file
        learned = self.learned(data, asked)
        return learned is not None and not all(
            exists == (truth is not None) and values in (None, truth)
            for (exists, values), truth in zip(learned, self.truths[asked], strict=True)
        )


def _hashes(values: list[bytes]) -> Any:
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, 32)


Forge = Callable[[Rows, random.Random, Asked], Any]


def parts(rows: Rows, chance: random.Random, asked: Asked) -> RowProof:
    """Parts of the proofs of other questions in the place of this one's."""
    proof, donor = rows.proofs[asked], rows.proofs[chance.choice(list(rows.proofs))]
    names = [field.name for field in fields(RowProof) if field.name != "checkpoint"]
    return replace(proof, **{name: getattr(donor, name) for name in chance.sample(names, chance.randrange(1, 8))})


def other_question(rows: Rows, chance: random.Random, asked: Asked) -> RowProof:
    donor = rows.proofs[chance.choice(list(rows.proofs))]
    return replace(donor, index=rows.proofs[asked].index) if chance.random() < 0.3 else donor


def records(rows: Rows, chance: random.Random, asked: Asked) -> RowProof:
    """One field of the leaf, of the entry or of the description is another."""
    proof, donor = rows.proofs[asked], rows.proofs[chance.choice(list(rows.proofs))]
    part = chance.choice(["leaf", "entry", "description", "next_leaf"])
    record, other = getattr(proof, part), getattr(donor, part)
    if record is None:
        return replace(proof, next_leaf=rows.leaves[chance.randrange(rows.size)], next_path=donor.next_path)
    name = chance.choice([field.name for field in fields(record)])
    if part == "description":
        value: Any = chance.choice([((1, "int"),), ((2, "long"),), ((1, "v"), (2, "id")), ((1, "id"), (3, "v"))])
    else:
        value = chance.choice([getattr(other, name) if other else None, None, LEFT_OUT, 0, 5, "ab" * 32, "main"])
    return replace(proof, **{part: replace(record, **{name: value})})


def places(rows: Rows, chance: random.Random, asked: Asked) -> RowProof:
    """What a key's path ends in, or what is beside it, is something else."""
    proof, donor = rows.proofs[asked], rows.proofs[chance.choice(list(rows.proofs))]
    if chance.random() < 0.1:  # the path of one key for all: the others seem absent
        first = min(digest(number) for number in asked[1])
        state = rows.states[proof.index][asked[0]]
        return replace(proof, rows=joined([(first, *rows.maps.prove(state, first))]))
    return replace(proof, rows=_changed(proof.rows, donor.rows, chance))


def _changed(place: Place, donor: Place, chance: random.Random) -> Place:
    if isinstance(place.end, Fork) and chance.random() < 0.8:
        side = chance.choice(["left", "right"])
        return replace(place, end=replace(place.end, **{side: _changed(getattr(place.end, side), donor, chance)}))
    siblings, at = list(place.siblings), chance.randrange(len(place.siblings) + 1)
    match chance.randrange(9):
        case 0:
            return replace(place, end=None)
        case 1:
            return donor
        case 2:
            return replace(place, end=donor.end)
        case 3:
            siblings.insert(at, chance.choice([bytes(32), chance.randbytes(32)]))
        case 4:
            siblings = siblings[:at]
        case 5 if isinstance(place.end, ShownRow):
            change: Any = chance.choice([{"position": 1}, {"salt": bytes(32)}, {"encoding": encoding(7, 99)}])
            if chance.random() < 0.3:
                change = {"encoding": b"", "digest": chance.randbytes(32)}
            return replace(place, end=replace(place.end, **change))
        case 6 if isinstance(place.end, ShownRow):
            return replace(place, end=OtherLeaf(digest(chance.randrange(20)), place.end.commitment))
        case 7:
            return replace(place, end=Fork(replace(place, siblings=()), Place((), None)))
        case _:
            siblings = list(donor.siblings)
    return replace(place, siblings=tuple(siblings))


def file_bytes(rows: Rows, chance: random.Random, asked: Asked) -> bytes:
    honest, other = (rows.proofs[each].write() for each in (asked, chance.choice(list(rows.proofs))))
    return mutated(chance, honest, other)


def extra_bytes(rows: Rows, chance: random.Random, asked: Asked) -> bytes:
    honest, other = (rows.proofs[each].write() for each in (asked, chance.choice(list(rows.proofs))))
    file = proof_file.read(honest)
    return proof_file.write(replace(file, extra=mutated(chance, file.extra, proof_file.read(other).extra)))


FORGERIES: dict[str, Forge] = {
    "parts": parts,
    "other questions": other_question,
    "records": records,
    "places": places,
    "bytes": file_bytes,
    "extra": extra_bytes,
}


def mutated(seed: random.Random, data: bytes, other: bytes) -> bytes:
    """A flip, cut, overwrite, splice or repetition of the bytes."""
    at, end = sorted(seed.randrange(len(data) + 1) for _ in range(2))
    match seed.randrange(6):
        case 0:
            at = min(at, len(data) - 1)
            return data[:at] + bytes((data[at] ^ 1 << seed.randrange(8),)) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + seed.randbytes(end - at) + data[end:]
        case 3:
            return data[:at] + other[at:end] + data[end:]
        case 4:
            return data[:at] + data[at:end] * 2 + data[end:]
        case _:
            return data[:end] + other[end:]
