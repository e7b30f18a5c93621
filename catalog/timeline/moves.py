"""What happened to a table since the timeline last looked, read from its metadata file alone.

Pure: metadata and the timeline's memory of the table go in, moves come out, oldest first. Nobody's message is
believed, so a commit by a stranger's engine shows here like our own.

What one metadata file can tell: every snapshot it still lists; every move of `main`, by the snapshot log; for
all other references and the schema, where they stand now. So a tag made and removed between two looks, or a
snapshot expired before the first one, leaves no leaf; the sequencer runs after every commit to keep that gap
small.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from io import BytesIO
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.serializers import Compressor
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.summary import PARTICIPANTS, PICKED, TRANSACTION_PREFIX
from catalog.summary import TRANSACTION as TRANSACTION_ID
from catalog.timeline.leaf import MAIN, TRANSACTION, canonical_sha256


@dataclass(frozen=True, slots=True)
class Move:
    """One leaf to be. `snapshot` is set when the move is a snapshot of its own."""

    operation: str
    ref: str | None
    snapshot_id: int | None
    parent_id: int | None
    committed_ms: int
    schema_sha256: str | None
    snapshot: Snapshot | None = None
    transaction: Landing | None = None


@dataclass(frozen=True, slots=True)
class Landing:
    """That main moved to what a transaction had staged: which one, and the tables it is over."""

    id: str
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableState:
    """What the timeline holds of one table, after its last leaf."""

    name: str
    sequence: int = 0
    """The number its next leaf gets."""
    refs: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Reference -> (branch or tag, snapshot id)."""
    schema_sha256: str | None = None
    log: tuple[int, int] | None = None
    """The last entry of the snapshot log that was sequenced: (ms, snapshot id)."""
    metadata_location: str | None = None
    metadata_sha256: str | None = None
    dropped: bool = False
    held: bool = False
    """The metadata has more, held back until a transaction has landed on all of its tables."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> TableState:
        record = json.loads(data)
        record["refs"] = {name: (kind, int(target)) for name, (kind, target) in record["refs"].items()}
        record["log"] = None if record["log"] is None else (record["log"][0], record["log"][1])
        return cls(**record)


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A table's metadata file: where it lies, the digest of its bytes, and of each schema in it."""

    location: str
    sha256: str
    schemas: dict[int, str]

    @classmethod
    def read(cls, location: str, io: FileIO) -> MetadataFile:
        with io.new_input(location).open() as stream:
            data = stream.read()
        with Compressor.get_compressor(location).stream_decompressor(BytesIO(data)) as plain:
            record: dict[str, Any] = json.loads(plain.read())
        # Digests are over the schema as its writer wrote it, so that fields unknown to pyiceberg count too.
        schemas = record.get("schemas") or [record["schema"]]
        return cls(
            location,
            sha256(data).hexdigest(),
            {schema.get("schema-id", 0): canonical_sha256(schema) for schema in schemas},
        )


def moves(
    name: str,
    metadata: TableMetadata,
    file: MetadataFile,
    state: TableState | None,
    known: Collection[int],
    held: Collection[str] = (),
) -> tuple[list[Move], TableState]:
    """The moves that lead from `state` to the metadata, and the state they lead to.

    `known`: those of the metadata's snapshots that are in the timeline already. `held`: transactions that must
    not become visible yet; the moves end before the first of them, and are otherwise the same.
    """
    current = file.schemas[metadata.current_schema_id]
    before = state or TableState(name)
    after = replace(before, name=name, dropped=False, held=False)
    refs = dict(before.refs)
    found = list[Move]()

    def whole(operation: str, schema: str, ms: int = metadata.last_updated_ms) -> Move:
        main = refs.get(MAIN, ("", None))[1]
        return Move(operation, MAIN, main, main, ms, schema)

    if state is None:
        # The oldest the metadata still knows: its leaf is the same, however late the table is first seen.
        first = file.schemas[min(file.schemas)]
        files = [entry.timestamp_ms for entry in metadata.metadata_log]
        snapshots = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
        found.append(whole("create", first, min([*files, *snapshots, metadata.last_updated_ms])))
        after = replace(after, schema_sha256=first)
    elif state.name != name or state.dropped:
        found.append(whole("rename", state.schema_sha256 or current))

    history = _History(metadata, file, known)
    for entry_ms, target in _new_log_entries(metadata, before.log, refs):
        stood = refs.get(MAIN, ("", None))[1]
        landing = history.landing(name, target, refs)
        direct = landing is None and history.follows(target, stood)
        for move in history.take_until(target, MAIN if direct else None, landing):
            found.append(move)
            if move.ref is not None and move.snapshot_id is not None:
                refs[move.ref] = ("branch", move.snapshot_id)
        if landing is not None and landing.id in held:
            return found, _held(after, before, found, refs, file)
        stood = refs.get(MAIN, ("", None))[1]
        if stood != target:
            operation = "rollback" if target in history.ancestors(stood) else "branch"
            if landing is not None:
                operation = TRANSACTION
                refs.pop(TRANSACTION_PREFIX + landing.id, None)  # its branch went in the same commit
            found.append(Move(operation, MAIN, target, stood, entry_ms, current, transaction=landing))
            refs[MAIN] = ("branch", target)
        after = replace(after, log=(entry_ms, target))
    for move in history.take_all():
        found.append(move)
        if move.ref is not None and move.snapshot_id is not None:
            refs[move.ref] = ("branch", move.snapshot_id)

    stands = {ref: (str(to.snapshot_ref_type.value), to.snapshot_id) for ref, to in metadata.refs.items()}
    for ref in sorted(refs.keys() | stands.keys()):
        old, new = refs.get(ref), stands.get(ref)
        if new == old:
            continue
        was = old[1] if old else None
        if new is None:
            found.append(Move("unref", ref, None, was, metadata.last_updated_ms, current))
            continue
        kind, target = new
        back = kind == "branch" and target in history.ancestors(was)
        operation = "rollback" if back else kind
        found.append(Move(operation, ref, target, was, metadata.last_updated_ms, current))
    refs = stands

    if current != after.schema_sha256:
        found.append(whole("schema", current))
    if not found and file.location != before.metadata_location:
        found.append(whole("metadata", current))
    after = replace(
        after,
        sequence=before.sequence + len(found),
        refs=refs,
        schema_sha256=current,
        metadata_location=file.location,
        metadata_sha256=file.sha256,
    )
    return found, after


def _held(
    after: TableState, before: TableState, found: list[Move], refs: dict[str, tuple[str, int]], file: MetadataFile
) -> TableState:
    """The state in the middle of a metadata file. Without a move there is nothing to remember of the file."""
    if not found:
        return before
    return replace(
        after,
        sequence=before.sequence + len(found),
        refs=refs,
        metadata_location=file.location,
        metadata_sha256=file.sha256,
        held=True,
    )


def dropped(state: TableState, now_ms: int) -> tuple[Move, TableState]:
    """The move of a table that its catalog no longer has."""
    main = state.refs.get(MAIN, ("", None))[1]
    gone = replace(state, sequence=state.sequence + 1, dropped=True, metadata_location=None)
    return Move("drop", MAIN, None, main, now_ms, state.schema_sha256), gone


def _new_log_entries(
    metadata: TableMetadata, seen: tuple[int, int] | None, refs: dict[str, tuple[str, int]]
) -> list[tuple[int, int]]:
    """The moves of main after the last one sequenced. Expiry cuts the log: then time decides."""
    log = [(entry.timestamp_ms, entry.snapshot_id) for entry in metadata.snapshot_log]
    if seen in log:
        log = log[len(log) - log[::-1].index(seen) :]
    elif seen is not None:
        log = [entry for entry in log if entry[0] > seen[0]]
    # A writer that keeps no log still says where main is.
    current = metadata.current_snapshot_id
    stood = log[-1][1] if log else refs.get(MAIN, ("", None))[1]
    if current is not None and current != stood:
        log.append((metadata.last_updated_ms, current))
    return log


class _History:
    """A table's snapshots: their ancestry, and those the timeline does not have yet, oldest first."""

    def __init__(self, metadata: TableMetadata, file: MetadataFile, known: Collection[int]) -> None:
        self._by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        self._file = file
        self._current = file.schemas[metadata.current_schema_id]
        # Format v1 numbers nothing: there time is the order.
        fresh = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in known]
        self._fresh = sorted(fresh, key=lambda s: (s.sequence_number or 0, s.timestamp_ms))
        self._branch_of = self._branches(metadata)

    def ancestors(self, snapshot_id: int | None) -> set[int]:
        found = set[int]()
        while snapshot_id is not None and snapshot_id in self._by_id and snapshot_id not in found:
            found.add(snapshot_id)
            snapshot_id = self._by_id[snapshot_id].parent_snapshot_id
        return found

    def follows(self, target: int, stood: int | None) -> bool:
        """Whether the target was committed on top of where main stood, as far as the metadata can tell.

        If not, main came to it by a move of its own: past other snapshots of one commit, or by a branch.
        """
        found = self._by_id.get(target)
        parent = found.parent_snapshot_id if found is not None else None
        return parent == stood or parent not in self._by_id

    def landing(self, name: str, target: int, refs: dict[str, tuple[str, int]]) -> Landing | None:
        """The transaction that brought main to the target, unless the timeline has that already."""
        snapshot = self._by_id.get(target)
        identity = _noted(snapshot, TRANSACTION_ID)
        if not identity or (
            TRANSACTION_PREFIX + identity not in refs and all(s.snapshot_id != target for s in self._fresh)
        ):
            return None
        try:
            participants = {str(table): str(id_) for table, id_ in json.loads(_noted(snapshot, PARTICIPANTS))}
        except (ValueError, TypeError):
            return None
        staged = _noted(snapshot, PICKED) or str(target)
        return Landing(identity, tuple(sorted(participants))) if participants.get(name) == staged else None

    def take_until(self, target: int, ref: str | None, landing: Landing | None) -> Iterator[Move]:
        """New snapshots up to the one that main moved to; none when that is no new one.

        `ref` is what led to the last one; those of a transaction were staged on its branch.
        """
        if not any(snapshot.snapshot_id == target for snapshot in self._fresh):
            return
        while True:
            snapshot = self._fresh.pop(0)
            last = snapshot.snapshot_id == target
            on = ref if last and ref is not None else self._branch_of.get(snapshot.snapshot_id)
            if landing is not None and _noted(snapshot, TRANSACTION_ID) == landing.id:
                on = TRANSACTION_PREFIX + landing.id
            yield self._move(snapshot, on)
            if last:
                return

    def take_all(self) -> Iterator[Move]:
        while self._fresh:
            snapshot = self._fresh.pop(0)
            yield self._move(snapshot, self._branch_of.get(snapshot.snapshot_id))

    def _branches(self, metadata: TableMetadata) -> dict[int, str]:
        """Which branch, other than main, each snapshot is on; of several, the first by name."""
        on_main = self.ancestors(metadata.current_snapshot_id)
        found = dict[int, str]()
        for ref, to in sorted(metadata.refs.items()):
            if to.snapshot_ref_type.value == "branch" and ref != MAIN:
                for snapshot_id in self.ancestors(to.snapshot_id) - on_main:
                    found.setdefault(snapshot_id, ref)
        return found

    def _move(self, snapshot: Snapshot, ref: str | None) -> Move:
        schema = self._current if snapshot.schema_id is None else self._file.schemas.get(snapshot.schema_id)
        operation = snapshot.summary.operation.value if snapshot.summary else "append"
        return Move(
            operation,
            ref,
            snapshot.snapshot_id,
            snapshot.parent_snapshot_id,
            snapshot.timestamp_ms,
            schema,
            snapshot,
        )


def _noted(snapshot: Snapshot | None, name: str) -> str:
    found = None if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties.get(name)
    return found or ""
