"""One batch: everything a run writes to the database at once. Writes nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.errors import Invalid, LakeError
from catalog.events import CommitSequenced, MoveMark, NameIndex, PutMeta, encode_value, new_correlation_id
from catalog.merkle.tiles import Tile
from catalog.timeline import keys
from catalog.timeline.away import explained
from catalog.timeline.leaf import Leaf
from catalog.timeline.marks import Mark
from catalog.timeline.signer import Signer
from catalog.timeline.store import Database
from catalog.timeline.survey import Finding

log = logging.getLogger(__name__)


@dataclass
class Batch:
    """Puts and deletes, and what publishing them will need, so that it is not read back."""

    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    leaves: list[tuple[int, Leaf]] = field(default_factory=list)
    encoded: list[bytes] = field(default_factory=list)
    tiles: dict[Tile, bytes] = field(default_factory=dict)

    def add_finding(self, finding: Finding, size: int, ms: int) -> None:
        """A table's leaves, from index `size` on, with their indexes, and its state. Invalid adds nothing."""
        stamped = [replace(leaf, sequenced_ms=ms) for leaf in finding.leaves]
        encoded = [leaf.encode() for leaf in stamped]
        for index, (leaf, data) in enumerate(zip(stamped, encoded, strict=True), size):
            self.puts[keys.leaf(index)] = data
            self.puts[keys.table(leaf.table_uuid, leaf.sequence)] = keys.pack(index)
            if leaf.is_snapshot and leaf.snapshot_id is not None:
                self.puts[keys.snapshot(leaf.snapshot_id, leaf.table_uuid)] = keys.pack(index)
            self.leaves.append((index, leaf))
        self.encoded += encoded
        if finding.state is not None:
            self.puts[keys.state(finding.uuid)] = finding.state.encode()
        if finding.bearers is not None:
            self.puts[keys.uuids(finding.name)] = keys.pack_uuids(finding.bearers)

    def add_findings(self, findings: Sequence[Finding], size: int, ms: int, failed: dict[str, LakeError]) -> int:
        """The leaves of all findings, one after the other; gives the size of the tree with them."""
        first = size
        for finding in findings:
            try:
                self.add_finding(finding, size, ms)
                size += len(finding.leaves)
            except Invalid as error:
                failed[finding.name] = error
        if size > first:
            self.puts[keys.time(ms, size - 1)] = b""
        return size

    def add_request(self, request: NameIndex | MoveMark | PutMeta, size: int, db: Database, signer: Signer) -> None:
        """Names, marks and metadata ride along; they are no leaves. `size` is the tree's with this batch."""
        match request:
            case NameIndex(name=name, index=index):
                key = keys.name(name)
                named = self._number(db, key)
                if named is not None and index in (None, named):
                    return
                if named is not None:
                    raise Invalid(f"the name {name!r} is index {named} already: choose another", subject=name)
                wanted = size - 1 if index is None else index
                if not 0 <= wanted < size:
                    raise Invalid(f"there is no index {wanted} to name: the timeline has {size} leaves")
                self.puts[key] = keys.pack(wanted)
            case MoveMark():
                self._move_mark(request, db, signer)
            case PutMeta(space=space, id=identity, value=value):
                key = keys.meta(space, identity)
                self.puts.pop(key, None)
                self.deletes.discard(key)
                if value is None:
                    self.deletes.add(key)
                else:
                    self.puts[key] = encode_value(value)

    def _move_mark(self, request: MoveMark, db: Database, signer: Signer) -> None:
        """Compare and move. Invalid for what can never be right; a move that lost its race is let go.

        Two runs of one consumer are no fault, and a message that comes again was served before: neither is to be
        tried again or to lie among the dead letters, so neither is an error here.
        """
        name, uuid, sequence = request.table, str(request.table_uuid), request.sequence
        bearers = keys.unpack_uuids(self._stored(db, keys.uuids(name)) or b"")
        if bearers[-1:] != [uuid] or self._stored(db, keys.table(uuid, sequence)) is None:
            raise Invalid(f"a mark at leaf {sequence} of {name} ({uuid}): there is none in the timeline", subject=name)
        if request.expected is not None and sequence <= request.expected:
            raise Invalid(f"a mark moves forward: not from {request.expected} to {sequence}", subject=name)
        key = keys.mark(request.consumer, name)
        stands = Mark.stored(self._stored(db, key))
        if stands is not None and stands.table_uuid != uuid:
            stands = None  # of another table that bore the name: this one begins anew
        if (stands.sequence if stands else None) != request.expected:
            log.info("mark not moved", extra={"consumer": request.consumer, "table": name, "sequence": sequence})
            return
        moves = 1 if stands is None else stands.moves + 1
        mark = Mark(request.consumer, name, uuid, sequence, moves, request.holder)
        with explained("the signer"):
            self.puts[key] = mark.sign(signer)

    def _stored(self, db: Database, key: bytes) -> bytes | None:
        return self.puts.get(key) or db.get(key)

    def _number(self, db: Database, key: bytes) -> int | None:
        stored = self._stored(db, key)
        return None if stored is None else keys.unpack(stored)[0]


def events_of(leaves: Sequence[tuple[int, Leaf]], size: int, correlations: Mapping[str, str]) -> list[CommitSequenced]:
    """One event per table: what came, the reader asks the timeline. `correlations`: table name -> id."""
    by_table = dict[str, list[tuple[int, Leaf]]]()
    for index, leaf in leaves:
        by_table.setdefault(leaf.table_uuid, []).append((index, leaf))
    found = list[CommitSequenced]()
    for uuid, of_table in by_table.items():
        (first, _), (last, leaf) = of_table[0], of_table[-1]
        found.append(
            CommitSequenced(
                correlation_id=correlations.get(leaf.table) or new_correlation_id(),
                table=leaf.table,
                table_uuid=uuid,
                first_index=first,
                last_index=last,
                last_sequence=leaf.sequence,
                snapshot_id=None if leaf.snapshot_id is None else str(leaf.snapshot_id),
                checkpoint_size=size,
            )
        )
    return found
