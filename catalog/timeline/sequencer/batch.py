"""One batch: everything that a run writes to the database, in one atomic write. Writes nothing itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Conflict, Invalid, LakeError
from catalog.core.events import AdvanceWatermark, CommitSequenced, NameIndex, PutMeta, encode_value, new_correlation_id
from catalog.core.point_in_time import check_name
from catalog.merkle.tiles import ENTRIES, Tile
from catalog.timeline.log import store_keys
from catalog.timeline.log.head import Head
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.signer import Signer
from catalog.timeline.log.store import Store
from catalog.timeline.log.table_map import TableChanges, TableMap
from catalog.timeline.log.watermarks import Watermark, owner_of
from catalog.timeline.sequencer.detection import NewLeaves

log = logging.getLogger(__name__)


@dataclass
class Batch:
    """Puts and deletes; also the leaves and tiles among them, so that publishing does not read them back."""

    puts: dict[bytes, bytes] = field(default_factory=dict)
    deletes: set[bytes] = field(default_factory=set)
    leaves: list[tuple[int, Leaf]] = field(default_factory=list)
    encoded: list[bytes] = field(default_factory=list)
    tiles: dict[Tile, bytes] = field(default_factory=dict)

    def add_leaves(
        self, new_leaves: Sequence[NewLeaves], size: int, sequenced_ms: int, tables: TableMap
    ) -> tuple[TableMap, dict[str, LakeError]]:
        """Adds the leaves of all tables from index `size` on, and what they change in the map of tables.

        Returns the map after them, and table -> why it is rejected.
        """
        rejected = dict[str, LakeError]()
        changes = TableChanges(tables)
        for of_table in new_leaves:
            try:
                if of_table.name in rejected:
                    continue  # a part of its leaves would leave a gap in its sequence
                self._add_table(of_table, size + len(self.leaves), sequenced_ms, changes)
            except Invalid as error:
                rejected[of_table.name] = error
        if self.leaves:
            tables = self._add_map(tables, changes)
            self.puts[store_keys.time(sequenced_ms, self.leaves[-1][0])] = b""
        return tables, rejected

    def _add_map(self, before: TableMap, changes: TableChanges) -> TableMap:
        """Adds the map after the batch, and its root to the last leaf. Only then are the leaves complete."""
        after = before.with_changes(changes)
        index, last = self.leaves[-1]
        last = replace(last, map_root=after.root)
        self.leaves[-1], self.encoded[-1] = (index, last), last.encode()
        self.puts[store_keys.leaf(index)] = self.encoded[-1]
        for key, value in changes.values().items():
            if value is None:
                self.deletes.add(store_keys.table_entry(key))
            else:
                self.puts[store_keys.table_entry(key)] = value
        for node_hash, record in after.map.new_nodes(before.map):
            self.puts[store_keys.map_node(node_hash)] = record
        return after

    def _add_table(self, new: NewLeaves, size: int, sequenced_ms: int, changes: TableChanges) -> None:
        """Adds a table's leaves with their index rows, and the table's state. Adds nothing when it raises Invalid."""
        stamped = [replace(leaf, sequenced_ms=sequenced_ms, map_root=None) for leaf in new.leaves]
        encoded = [leaf.encode() for leaf in stamped]
        changed = TableChanges(changes)
        for index, leaf in enumerate(stamped, size):
            changed.add(index, leaf)
        changes.merge(changed)
        for index, (leaf, data) in enumerate(zip(stamped, encoded, strict=True), size):
            self.puts[store_keys.leaf(index)] = data
            self.puts[store_keys.table(leaf.table_uuid, leaf.sequence)] = store_keys.pack(index)
            if leaf.is_snapshot and leaf.snapshot_id is not None:
                self.puts[store_keys.snapshot(leaf.snapshot_id, leaf.table_uuid)] = store_keys.pack(index)
            self.leaves.append((index, leaf))
        self.encoded += encoded
        if new.state is not None:
            self.puts[store_keys.state(new.uuid)] = new.state.encode()
        if new.rows is not None:
            self.puts[store_keys.rows(new.uuid)] = new.rows
        for node_hash, node in new.nodes.items():
            self.puts[store_keys.state_node(node_hash)] = node
        self.deletes |= {store_keys.state_node(node_hash) for node_hash in new.erased_nodes - new.nodes.keys()}
        if new.uuids is not None:
            self.puts[store_keys.uuids(new.name)] = store_keys.pack_uuids(new.uuids)

    def add_tree(self, tiles: dict[Tile, bytes], head: Head, keys_note: bytes | None) -> None:
        """Adds the tiles that the leaves changed, the new head with its checkpoint, and the key list if it changed."""
        self.tiles = tiles
        for tile, contents in tiles.items():
            if tile.level != ENTRIES:
                self.puts[store_keys.node(tile.level, tile.index)] = contents
        if keys_note is not None:
            self.puts[store_keys.KEYS] = keys_note
        self.puts[store_keys.HEAD] = head.encode()
        self.puts[store_keys.checkpoint(head.size)] = head.checkpoint.encode()

    def add_request(
        self, request: NameIndex | AdvanceWatermark | PutMeta, size: int, db: Store, signer: Signer
    ) -> None:
        """Adds a name, a watermark or a meta value. None of them is a leaf. `size`: of the tree with this batch."""
        match request:
            case NameIndex(name=name, index=index):
                self._name_index(name, index, size, db)
            case AdvanceWatermark():
                self._advance_watermark(request, db, signer)
            case PutMeta(space=space, id=identity, value=value):
                key = store_keys.meta(space, identity)
                self.puts.pop(key, None)
                self.deletes.discard(key)
                if value is None:
                    self.deletes.add(key)
                else:
                    self.puts[key] = encode_value(value)

    def _name_index(self, name: str, index: int, size: int, db: Store) -> None:
        """Idempotent. Conflict when the name is taken by another index; Invalid when there is no such index."""
        check_name(name)
        key = store_keys.name(name)
        stored = self._stored(db, key)
        named = None if stored is None else store_keys.unpack(stored)[0]
        if named == index:
            return
        if named is not None:
            raise Conflict(f"the name {name!r} is index {named} already: choose another", subject=name)
        if not 0 <= index < size:
            raise Invalid(f"there is no index {index} to name: the timeline has {size} leaves")
        self.puts[key] = store_keys.pack(index)

    def _advance_watermark(self, request: AdvanceWatermark, db: Store, signer: Signer) -> None:
        """Compare and set. Invalid for a request that can never succeed; one that lost its race is ignored.

        Two runs of one consumer, or a message delivered twice, are normal: retrying them or moving them to the dead
        letter queue would be wrong, so they raise nothing.
        """
        name, uuid, sequence = request.table, str(request.table_uuid), request.sequence
        uuids = store_keys.unpack_uuids(self._stored(db, store_keys.uuids(name)) or b"")
        if uuids[-1:] != [uuid] or self._stored(db, store_keys.table(uuid, sequence)) is None:
            raise Invalid(
                f"a watermark cannot be at leaf {sequence} of {name} ({uuid}): the timeline has no such leaf",
                subject=name,
            )
        if request.expected is not None and sequence <= request.expected:
            raise Invalid(
                f"a watermark only advances: it cannot go from {request.expected} to {sequence}", subject=name
            )
        key = store_keys.watermark(request.consumer, name)
        current = Watermark.stored(self._stored(db, key))
        if current is not None and current.table_uuid != uuid:
            current = None  # an earlier table of this name: the consumer starts again
        owner = owner_of(request.holder)  # the API checks it too, but may not have seen a move that was in the queue
        taken = current is not None and owner not in ("", current.owner)
        if taken or (current.sequence if current else None) != request.expected:
            extra = {"consumer": request.consumer, "table": name, "sequence": sequence}
            log.info("watermark not advanced: it was moved by another run, or is another caller's", extra=extra)
            return
        moves = 1 if current is None else current.moves + 1
        watermark = Watermark(request.consumer, name, uuid, sequence, moves, request.holder)
        with translate_errors("the signer"):
            self.puts[key] = watermark.sign(signer)

    def _stored(self, db: Store, key: bytes) -> bytes | None:
        """The value that the key has after this batch, as far as it is complete."""
        return self.puts.get(key) or db.get(key)


def events_of(leaves: Sequence[tuple[int, Leaf]], size: int, correlations: Mapping[str, str]) -> list[CommitSequenced]:
    """One event per table, with the range of its new leaves. `correlations`: table name -> correlation id."""
    by_table = dict[str, list[tuple[int, Leaf]]]()
    for index, leaf in leaves:
        by_table.setdefault(leaf.table_uuid, []).append((index, leaf))
    events = list[CommitSequenced]()
    for uuid, of_table in by_table.items():
        (first, _), (last, leaf) = of_table[0], of_table[-1]
        events.append(
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
    return events
