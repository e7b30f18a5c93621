"""Forgeries of proofs about the timeline, by somebody without its key: as-of files, maps, proof files, cosigned
checkpoints, attestations; and of the statistics in manifests, by a writer.

Each kind makes an attempt and tells what a verifier believes: None if it refuses. What is believed must be the truth.
"""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.core.errors import Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle import tree
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.policy import Policy
from catalog.merkle.prefix_map import MapProof, PrefixMap
from catalog.merkle.tree import CompactRange, batch_proof, leaf_hash
from catalog.merkle.verify import ProofError
from catalog.timeline import read_as_of, write_as_of
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.reader.evidence import AsOf, Evidence, MapEvidence
from catalog.timeline.sequencer.attestation import Attestation, ObjectDigest
from catalog.timeline.verify.leaf_facts import is_attestation_of
from catalog.timeline.verify.statistics import Statistics, false_statements
from tests.unit.timeline.test_as_of_file import mutated
from tests.unit.timeline.test_replay import complete, history
from tests.worlds.table_map import key_of, map_of

SIGNER = Ed25519Signer("lake.example/forged", bytes(range(32)))
ELSEWHERE = Ed25519Signer("lake.example/other", bytes(range(32)))
WITNESSES = tuple(WitnessSigner(f"witness.example/{n}", bytes([n]) * 32) for n in (1, 2, 3))
NAMES = ("sales.a", "sales.b", "sales.d", "sales.e", "no.such")
POLICY = Policy.parse(
    "\n".join(
        [
            f"log {SIGNER.verifier_key}",
            *(f"witness w{n} {witness.witness_key}" for n, witness in enumerate(WITNESSES)),
            "group two 2 w0 w1 w2",
            "quorum two\n",
        ]
    ).encode()
)
AsOfQuery = tuple[str, int | None, int | None]
"""A table's name, and an index or a time."""


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class Timeline:
    """An honest timeline, and every proof that can be asked of it."""

    leaves: list[Leaf] = field(default_factory=lambda: complete(history()))
    proofs: dict[AsOfQuery, bytes] = field(default_factory=dict)
    truths: dict[AsOfQuery, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.entries = [leaf.encode() for leaf in self.leaves]
        compact, nodes = CompactRange().extend([leaf_hash(entry) for entry in self.entries])
        self.nodes = {(level, index): value for level, index, value in nodes}
        self.size = len(self.entries)
        self.checkpoint = Checkpoint(SIGNER.name, self.size, compact.root())
        self.note = self.checkpoint.sign([SIGNER])
        ends = [index for index, leaf in enumerate(self.leaves) if leaf.map_root is not None]
        for name in NAMES:
            for cut in ends:
                self._prove((name, cut, None), cut)
                self._prove((name, None, self.leaves[cut].sequenced_ms), cut)
        notes = {size: self._older(size) for size in (1, 3, 5, self.size - 2)}
        self.older_notes = list(notes.values())
        self.files = [
            proof_file.write(proof_file.ProofFile(index, tuple(self._path(index)), self.note))
            for index in range(self.size)
        ]
        text = self.checkpoint.text()
        self.lines = [witness.cosign(text, 1_800_000_000) for witness in WITNESSES]
        other = replace(self.checkpoint, size=self.size - 1).text()
        self.other_lines = [witness.cosign(other, 1_800_000_000) for witness in WITNESSES]

    def _read(self, wanted: Any) -> list[bytes]:
        return [self.nodes[at] for at in wanted]

    def _path(self, index: int) -> list[bytes]:
        return tree.inclusion_proof(index, self.size, self._read)

    def _older(self, size: int) -> bytes:
        root = tree.root(leaf_hash(entry) for entry in self.entries[:size])
        return Checkpoint(SIGNER.name, size, root).sign([SIGNER])

    def _prove(self, question: AsOfQuery, cut: int) -> None:
        name, _, time_ms = question
        records = [(at, json.loads(entry)) for at, entry in enumerate(self.entries[: cut + 1])]
        tables = PrefixMap(map_of(records))
        value = tables.get(key_of(name))
        found = {} if value is None else json.loads(value)
        shown = {cut, *([found["index"], found["main_index"]] if found else [])}
        if time_ms is not None:
            shown |= {cut, min(cut + 1, self.size - 1)}
        indexes = sorted(shown)
        snapshot = found.get("snapshot_id")
        claim = AsOf(
            name,
            found.get("table_uuid"),
            None if snapshot is None else int(snapshot),
            cut,
            found.get("main_index"),
            time_ms,
            MapEvidence(cut, value, tables.prove(key_of(name))),
            Evidence(
                tuple((index, self.entries[index]) for index in indexes),
                tuple(batch_proof(indexes, self.size, self._read)),
                self.note,
            ),
        )
        self.proofs[question] = write_as_of(claim)
        self.truths[question] = (claim.table_uuid, claim.snapshot_id, cut)
        assert verified(self, self.proofs[question], question) == self.truths[question]


def verified(timeline: Timeline, data: bytes, question: AsOfQuery) -> Any:
    """What a verifier learns from an as-of file; None if it refuses it."""
    name, index, time_ms = question
    try:
        claim = read_as_of(data)
        claim.verify([SIGNER.verifier_key], table=name, index=index, time_ms=time_ms, checkpoint=timeline.checkpoint)
    except Unverified:
        return None
    return claim.table_uuid, claim.snapshot_id, claim.index


Attempt = Callable[[Timeline, random.Random], bool]
"""Makes one forgery; whether something was believed that is not so."""


def as_of_values(timeline: Timeline, chance: random.Random) -> bool:
    """One value of an as-of file is another."""
    question = chance.choice(list(timeline.proofs))
    record = mutated(json.loads(timeline.proofs[question]), chance)
    return verified(timeline, _canonical(record), question) not in (None, timeline.truths[question])


def as_of_parts(timeline: Timeline, chance: random.Random) -> bool:
    """Parts of other proofs, of another name or cut, in the place of this one's; or the proof of another question."""
    question, other = chance.sample(list(timeline.proofs), 2)
    record, donor = json.loads(timeline.proofs[question]), json.loads(timeline.proofs[other])
    for name in chance.sample(sorted(record), chance.randrange(1, 7)):
        record[name] = donor[name]
    if chance.random() < 0.5:  # the forger adapts the claim to the question
        record |= {"table": question[0], "time_ms": question[2]}
        record["index"] = record["index"] if question[1] is None else question[1]
    return verified(timeline, _canonical(record), question) not in (None, timeline.truths[question])


@cache
def fork() -> Timeline:
    """Another history of as many leaves, which the forger cannot sign: one commit of each table is another."""
    batches = [[replace(one, snapshot_id=99) if one.snapshot_id == 2 else one for one in batch] for batch in history()]
    batches = [[replace(one, parent_id=99) if one.parent_id == 2 else one for one in batch] for batch in batches]
    return Timeline(complete(batches))


def as_of_histories(timeline: Timeline, chance: random.Random) -> bool:
    """The proof of another history, with the signed checkpoint of this one, and parts of both."""
    question = chance.choice(list(timeline.proofs))
    record, honest = json.loads(fork().proofs[question]), json.loads(timeline.proofs[question])
    record["checkpoint"] = honest["checkpoint"]
    for name in chance.sample(["hashes", "leaves", "map"], chance.randrange(3)):
        record[name] = honest[name]
    return verified(timeline, _canonical(record), question) not in (None, timeline.truths[question])


def as_of_leaves(timeline: Timeline, chance: random.Random) -> bool:
    """Any leaves, with their right batch proof, any map among the honest ones, and the claim that suits."""
    question, other = chance.choice(list(timeline.proofs)), chance.choice(list(timeline.proofs))
    claim = read_as_of(timeline.proofs[other])
    indexes = sorted({chance.randrange(timeline.size) for _ in range(chance.randrange(1, 9))} | {claim.map.index})
    evidence = Evidence(
        tuple((index, timeline.entries[index]) for index in indexes),
        tuple(batch_proof(indexes, timeline.size, timeline._read)),
        chance.choice([timeline.note, timeline.note, *timeline.older_notes]),
    )
    cut = claim.index if question[1] is None else question[1]
    forged = replace(claim, table=question[0], index=cut, time_ms=question[2], evidence=evidence)
    return verified(timeline, write_as_of(forged), question) not in (None, timeline.truths[question])


def map_paths(timeline: Timeline, chance: random.Random) -> bool:
    """A path in the map that is shorter, longer, of another key, or ends elsewhere; an absence for a presence."""
    question = chance.choice(list(timeline.proofs))
    claim = read_as_of(timeline.proofs[question])
    proof, donor = claim.map.proof, read_as_of(timeline.proofs[chance.choice(list(timeline.proofs))]).map
    siblings, other, value = list(proof.siblings), proof.other, claim.map.value
    match chance.randrange(7):
        case 0:
            siblings = siblings[: chance.randrange(len(siblings) + 1)]
        case 1:
            siblings.insert(chance.randrange(len(siblings) + 1), chance.choice([bytes(32), chance.randbytes(32)]))
        case 2:
            value = None
        case 3:
            value, other = None, chance.choice([None, donor.proof.other, (key_of(chance.choice(NAMES)), bytes(32))])
        case 4:
            value, siblings, other = donor.value, list(donor.proof.siblings), donor.proof.other
        case 5:
            siblings = [*donor.proof.siblings, *siblings][:256]
        case 6:
            siblings = [bytes(32)] * chance.choice([1, 255, 256, 257])
    forged = replace(claim, map=replace(claim.map, value=value, proof=MapProof(tuple(siblings), other)))
    if value is None and chance.random() < 0.9:
        forged = replace(forged, table_uuid=None, snapshot_id=None, stated_at=None)
    return verified(timeline, write_as_of(forged), question) not in (None, timeline.truths[question])


def proof_files(timeline: Timeline, chance: random.Random) -> bool:
    """An entry at an index that it does not have, or an entry that is not in the log."""
    index = chance.randrange(timeline.size)
    parsed, entry = proof_file.read(timeline.files[index]), timeline.entries[index]
    match chance.randrange(6):
        case 0:
            parsed = replace(parsed, index=chance.randrange(2 * timeline.size))
        case 1:
            parsed = replace(parsed, hashes=proof_file.read(chance.choice(timeline.files)).hashes)
        case 2:
            entry = chance.choice(timeline.entries)
        case 3:
            parsed = replace(parsed, checkpoint=chance.choice(timeline.older_notes))
        case 4:
            at = chance.randrange(len(entry))
            entry = entry[:at] + bytes([entry[at] ^ 1 << chance.randrange(8)]) + entry[at + 1 :]
        case 5:
            hashes = list(parsed.hashes)
            hashes[chance.randrange(len(hashes))] = chance.randbytes(32)
            parsed = replace(parsed, hashes=tuple(hashes))
    data = bytearray(proof_file.write(parsed))
    if chance.random() < 0.3:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    try:
        shown = proof_file.verify(bytes(data), entry, [SIGNER.verifier_key])
    except ProofError:
        return False
    return entry not in timeline.entries or timeline.entries.index(entry) != shown.index


def cosigned_notes(timeline: Timeline, chance: random.Random) -> bool:
    """Cosignatures of another checkpoint, of too few witnesses, twice of one, by the log itself; other texts."""
    honest = [line for line in timeline.lines if chance.random() < 0.5]
    lines = [*honest, *chance.sample(timeline.other_lines, chance.randrange(3))]
    own = WitnessSigner("witness.example/1", SIGNER.seed)
    stranger = WitnessSigner("witness.example/2", bytes([9]) * 32)
    lines += [maker.cosign(timeline.checkpoint.text(), 2**62) for maker in (own, stranger) if chance.random() < 0.3]
    lines += [chance.choice(lines)] if lines and chance.random() < 0.5 else []
    chance.shuffle(lines)
    note = chance.choice([timeline.note, timeline.note, timeline.note, *timeline.older_notes])
    if chance.random() < 0.2:
        note = replace(timeline.checkpoint, origin=ELSEWHERE.name).sign([ELSEWHERE])
    data = bytearray(note + "".join(lines).encode())
    if chance.random() < 0.3:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    try:
        checkpoint = POLICY.check(bytes(data))
    except ProofError:
        return False
    return checkpoint != timeline.checkpoint or len(set(honest)) < 2


ATTESTED = Attestation(
    "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c0a",
    7,
    ObjectDigest("s3://b/list.avro", 9, "11" * 32),
    tuple(ObjectDigest(f"s3://b/{n}.parquet", n, f"{n:02d}" * 32) for n in range(10, 15)),
    "22" * 32,
    3,
)


def attestations(timeline: Timeline, chance: random.Random) -> bool:
    """Another attestation than the one that the leaf was built from."""
    leaf = replace(
        timeline.leaves[1],
        table_uuid=ATTESTED.table_uuid,
        snapshot_id=7,
        manifest_list_sha256=ATTESTED.manifest_list.sha256,
        content_root=ATTESTED.content_root,
        content_count=len(ATTESTED.entries),
        changes_root=ATTESTED.changes_root,
        changes_count=ATTESTED.changes_count,
    )
    lines = [json.loads(line) for line in ATTESTED.encode().splitlines()]
    at = chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, chance.choice(lines))
        case 2:
            chance.shuffle(lines)
        case 3:
            lines[at] = mutated(lines[at], chance)
    data = b"".join(_canonical(line) + b"\n" for line in lines)
    if chance.random() < 0.1:
        data = data.replace(b'"format"', b'"changes_count":0,"format"')
    try:
        forged = Attestation.decode(data)
    except Unverified:
        return False
    # Path and length of the manifest list are in no leaf; the changes are the leaf's own.
    same = replace(forged, manifest_list=ATTESTED.manifest_list).has_objects_of(ATTESTED)
    return is_attestation_of(leaf, forged) and not (same and forged.manifest_list.sha256 == "11" * 32)


def _parquet() -> tuple[bytes, Statistics]:
    """A file, and what an honest manifest states about it."""

    def column(name: str, number: int, values: list[Any], kind: Any) -> tuple[pa.Field[Any], Any]:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)}), pa.array(values, kind)

    columns = [
        column("id", 1, [4, -2, None, 9], pa.int64()),
        column("word", 2, ["fig", "apple", "kiwi", None], pa.string()),
        column("x", 3, [0.5, float("nan"), 2.0, -1.0], pa.float64()),
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([data for _, data in columns], schema=pa.schema([f for f, _ in columns])), sink)
    lower = {1: struct.pack("<q", -2), 2: b"app", 3: struct.pack("<d", -1.0)}
    upper = {1: struct.pack("<q", 9), 2: b"kj", 3: struct.pack("<d", 2.0)}
    counts = {1: 4, 2: 4, 3: 4}
    return sink.getvalue(), Statistics(4, counts, {1: 1, 2: 1, 3: 0}, {3: 1}, lower, upper)


PARQUET, STATED = _parquet()
assert not list(false_statements(STATED, io.BytesIO(PARQUET)))


def statistics(timeline: Timeline, chance: random.Random) -> bool:
    """One statement of the manifest is false."""
    number = chance.choice([1, 2, 3])
    match chance.choice(["rows", "values", "nulls", "nans", "lower", "upper", "strange"]):
        case "rows":
            forged = replace(STATED, rows=chance.choice([0, 3, 5, -1, 2**62]))
        case ("values" | "nulls") as name:
            stated = getattr(STATED, name)
            wrong = stated[number] + chance.choice([-1, 1, 2**40])
            forged = replace(STATED, **{name: stated | {number: wrong}})
        case "nans":
            forged = replace(STATED, nans={3: chance.choice([0, 2, -1])})
        case ("lower" | "upper") as name:
            stated = dict(getattr(STATED, name))
            if number == 2:  # on the wrong side of the text
                stated[2] = (
                    chance.choice([b"b", b"aq", b"zzz"]) if name == "lower" else chance.choice([b"", b"a", b"kiw"])
                )
            else:
                data = bytearray(stated[number])
                data[chance.randrange(8)] ^= 1 << chance.randrange(8)
                stated[number] = bytes(data)
            forged = replace(STATED, **{name: stated})
        case _:
            forged = replace(STATED, lower={**STATED.lower, chance.randrange(4, 99): b"\0" * 8})
    return not list(false_statements(forged, io.BytesIO(PARQUET)))


KINDS: dict[str, tuple[Attempt, float]] = {
    "as-of values": (as_of_values, 0.16),
    "as-of parts": (as_of_parts, 0.12),
    "as-of histories": (as_of_histories, 0.04),
    "as-of leaves": (as_of_leaves, 0.08),
    "maps": (map_paths, 0.16),
    "proof files": (proof_files, 0.12),
    "cosignatures": (cosigned_notes, 0.08),
    "attestations": (attestations, 0.024),
    "statistics": (statistics, 0.016),
}
"""Each kind and its share of all forgeries: four fifths. Feeds have the rest."""
