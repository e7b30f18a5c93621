"""A log whose operator holds its key and writes into it whatever he likes: leaves, trees, checkpoints, proofs.

Everything is made by the real code (trees, notes, proof files, change sets); only the claims are false.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any

from catalog.changes import ChangeSet
from catalog.merkle import Checkpoint, CompactRange, Ed25519Signer, leaf_hash, tree
from catalog.merkle import proof as proof_file
from catalog.timeline.log.leaf import Leaf
from tests.property.changes.feeds import KEY, SCHEMA_JSON, change_set

SIGNER = Ed25519Signer("strandline.example/lake", bytes(range(32)))
UUID = "a-uuid"
NAME = "sales.orders"


def encode(record: dict[str, Any]) -> bytes:
    """RFC 8785, for the flat records of text, null and small integers that leaves are."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass
class ForgedLog:
    """Entries, and everything signed over them. Trees are computed once per size."""

    signer: Ed25519Signer = SIGNER
    entries: list[bytes] = field(default_factory=list)
    _trees: dict[int, tuple[bytes, dict[tuple[int, int], bytes]]] = field(default_factory=dict)
    _notes: dict[Checkpoint, bytes] = field(default_factory=dict)

    def append(self, entry: bytes | dict[str, Any]) -> int:
        self.entries.append(entry if isinstance(entry, bytes) else encode(entry))
        return len(self.entries) - 1

    def fork(self, size: int) -> ForgedLog:
        """Another log under the same key, with the same first entries."""
        return ForgedLog(self.signer, self.entries[:size])

    def _tree(self, size: int) -> tuple[bytes, dict[tuple[int, int], bytes]]:
        if size not in self._trees:
            head, nodes = CompactRange().extend([leaf_hash(entry) for entry in self.entries[:size]])
            self._trees[size] = (head.root(), {(level, index): value for level, index, value in nodes})
        return self._trees[size]

    def checkpoint(self, size: int | None = None) -> Checkpoint:
        size = len(self.entries) if size is None else size
        return Checkpoint(self.signer.name, size, self._tree(size)[0])

    def note(self, size: int | None = None) -> bytes:
        checkpoint = self.checkpoint(size)
        if checkpoint not in self._notes:
            self._notes[checkpoint] = checkpoint.sign([self.signer])
        return self._notes[checkpoint]

    def proof(self, index: int, size: int | None = None) -> bytes:
        size = len(self.entries) if size is None else size
        nodes = self._tree(size)[1]
        path = tree.inclusion_proof(index, size, lambda wanted: [nodes[at] for at in wanted])
        return proof_file.write(proof_file.ProofFile(index, tuple(path), self.note(size)))

    def consistency(self, old: int, size: int | None = None) -> tuple[bytes, ...]:
        size = len(self.entries) if size is None else size
        nodes = self._tree(size)[1]
        return tuple(tree.consistency_proof(old, size, lambda wanted: [nodes[at] for at in wanted]))


@dataclass
class ForgedTable:
    """One table's leaves and change sets in a log. Each method appends one leaf; overrides make it lie."""

    log: ForgedLog
    name: str = NAME
    uuid: str = UUID
    key: tuple[str, ...] = KEY
    state: dict[Any, Any] = field(default_factory=dict)
    main: int | None = None
    sequence: int = -1
    sets: list[tuple[ChangeSet, int, tuple[int, ...]]] = field(default_factory=list)
    """Each change set with the index of its leaf and of the leaves between it and the one before."""
    passed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.leaf("create")

    def record(self, operation: str, **overrides: Any) -> dict[str, Any]:
        self.sequence = overrides.pop("sequence", self.sequence + 1)
        record = (
            dict.fromkeys(field.name for field in fields(Leaf))
            | {
                "format": "strandline/commit@v2",
                "table": self.name,
                "table_uuid": self.uuid,
                "snapshot_id": self.main,
                "parent_id": self.main,
                "sequence": self.sequence,
                "committed_ms": 1_700_000_000_000 + self.sequence,
                "sequenced_ms": 1_700_000_000_500 + self.sequence,
                "operation": operation,
                "ref": "main",
                "schema_sha256": sha256(SCHEMA_JSON).hexdigest(),
                "metadata_sha256": "00" * 32,
                "manifest_list_sha256": None,
                "content_root": None,
                "content_count": 0,
                "changes_root": None,
                "changes_count": None,
                "attested": "lake" if overrides.get("changes_root") else None,
            }
            | overrides
        )
        for name in ("snapshot_id", "parent_id"):
            record[name] = None if record[name] is None else str(record[name])
        return record

    def leaf(self, operation: str, **overrides: Any) -> int:
        """A leaf without changes."""
        self.passed.append(self.log.append(self.record(operation, **overrides)))
        return self.passed[-1]

    def commit(self, after: dict[Any, Any], operation: str = "append", **overrides: Any) -> ChangeSet:
        """A commit that leads from the present state to another."""
        return self.put(change_set(self.state, after, self.key), after, operation, **overrides)

    def put(self, changes: ChangeSet, after: dict[Any, Any], operation: str = "append", **overrides: Any) -> ChangeSet:
        """A commit with any change set, under a leaf that vouches for its root."""
        snapshot = overrides.pop("snapshot_id", 1000 + len(self.log.entries))
        claims = {"snapshot_id": snapshot, "changes_root": changes.root.hex(), "changes_count": changes.count}
        record = self.record(operation, **(claims | overrides))
        index = self.log.append(record)
        header = replace(
            changes.commit,
            table=record["table"],
            table_uuid=record["table_uuid"],
            snapshot_id=snapshot,
            parent_id=None if record["parent_id"] is None else int(record["parent_id"]),
            committed_ms=record["committed_ms"],
            sequence=record["sequence"],
        )
        made = replace(changes, commit=header, schema_json=SCHEMA_JSON)
        self.sets.append((made, index, tuple(self.passed)))
        self.main, self.state, self.passed = snapshot, after, []
        return made

    def feed(self, size: int | None = None) -> list[ChangeSet]:
        """Every change set with its evidence, all against one checkpoint."""
        return [self.shown(number, size) for number in range(len(self.sets))]

    def shown(self, number: int, size: int | None = None, log: ForgedLog | None = None) -> ChangeSet:
        changes, index, passed = self.sets[number]
        log = self.log if log is None else log
        between = [(log.entries[at], log.proof(at, size)) for at in passed]
        return changes.with_evidence(log.entries[index], log.proof(index, size), index, between)


def row(region: str, number: int, cents: int = 100) -> dict[Any, Any]:
    """One row of the state, as tests/property/changes/feeds.py has them."""
    from decimal import Decimal

    return {(region, number): {"amount": Decimal(cents).scaleb(-2), "at": 5, "tags": None, "ratio": None}}


def rows(*keys: tuple[str, int], cents: int = 100) -> dict[Any, Any]:
    return {key: value for region, number in keys for key, value in row(region, number, cents).items()}


def honest(commits: Iterable[int] = (3, 5, 7)) -> ForgedTable:
    """A table with a few honest commits, tags and other tables' leaves in between."""
    table = ForgedTable(ForgedLog())
    for number, size in enumerate(commits):
        table.log.append(b'{"another":"table"}')
        table.commit(rows(*((region, at) for at in range(size) for region in ("DE", "FR")), cents=number))
        table.leaf("tag", ref=f"v{number}", parent_id=None)
    return table
