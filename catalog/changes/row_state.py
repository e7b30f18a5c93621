"""The state of a table's rows that each leaf states: the sequencer's `ComputeState`.

The digest of all rows, and the state map of a table with a key, follow from those before and the changes of the
commit, so a commit costs what it changes. All rows are read only where nothing is known to go on from: at first, after
a commit whose changes are over the limit, and when columns were dropped, which changes the digests of rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.hashing import Hashes
from catalog.changes.limits import Limit, TooLarge
from catalog.changes.multiset import RowsDigest
from catalog.changes.records import RECORD_SIZE
from catalog.changes.snapshot_rows import digest_rows
from catalog.changes.state_map import DuplicateKey, OtherRows, StateMap, StateMaps, root_address
from catalog.changes.state_root import StateDescription
from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.iceberg import ManifestReader
from catalog.merkle.prefix_map import ReadNodes
from catalog.timeline import ChangesDigest, Leaf, RowState

log = logging.getLogger(__name__)

STATE_LIMIT = Limit(rows=1_000_000, bytes=128 << 20)
"""What is read to compute a state anew: about 4 seconds of CPU, besides the reads."""
MAP_ROWS = 200_000
"""The largest table that has a state map, unless its property says otherwise: it is made anew within 350 MB."""
MAP_PROPERTY = "strandline.state-map"
"""`off`, or the number of rows up to which the table has a state map."""

SIZE, UNREADABLE, DUPLICATE, OFF = "size", "unreadable", "duplicate-key", "off"
"""Why a leaf has no state: too many rows or bytes; files that are gone or give no exact rows; a key that two rows have;
the table's property."""


@dataclass(frozen=True)
class StoredState:
    """The state of main's rows at `snapshot_id`, read under the schema `schema_id`.

    `rows` and `map` are None if they are not known. `secret` salts the map's commitments, for as long as the table
    exists: proofs of past states need it.
    """

    snapshot_id: int | None
    schema_id: int
    rows: RowsDigest | None
    map: StateMap | None = None
    missing: str | None = None
    secret: bytes = field(default_factory=lambda: token_bytes(32), repr=False)

    def encode(self) -> bytes:
        header = {
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
            "schema_id": self.schema_id,
            "rows": None if self.rows is None else self.rows.rows,
            "map": None if self.map is None else self.map.encode().hex(),
            "missing": self.missing,
            "secret": self.secret.hex(),
        }
        return json.dumps(header, sort_keys=True).encode() + b"\n" + (self.rows.state if self.rows else b"")

    @classmethod
    def decode(cls, data: bytes) -> StoredState:
        header, _, state = data.partition(b"\n")
        record: dict[str, Any] = json.loads(header)
        return cls(
            None if record["snapshot_id"] is None else int(record["snapshot_id"]),
            record["schema_id"],
            None if record["rows"] is None else RowsDigest.parse({"rows": record["rows"], "state": state}),
            None if record["map"] is None else StateMap.decode(bytes.fromhex(record["map"])),
            record["missing"],
            bytes.fromhex(record["secret"]),
        )


@dataclass(frozen=True)
class StateComputer:
    """Computes the state after each leaf. `limit`: of what is read to compute one anew; `map_rows`: see MAP_ROWS."""

    limit: Limit = STATE_LIMIT
    manifests: ManifestReader | None = None
    map_rows: int = MAP_ROWS

    def __call__(
        self,
        table: Table,
        leaf: Leaf,
        until: Snapshot | None,
        schema_id: int | None,
        stored: bytes | None,
        changes: ChangesDigest | None,
        read_nodes: ReadNodes,
    ) -> RowState:
        """The state after the leaf. Reads no rows if the state before and the leaf's changes are known."""
        schemas = table.schemas()
        schema = schemas.get(table.metadata.current_schema_id if schema_id is None else schema_id, table.schema())
        known = StoredState(None, schema.schema_id, None) if stored is None else StoredState.decode(stored)
        maps = StateMaps(known.secret, read_nodes)
        step = _Step(self, table, leaf, until, schema, describe(schema), maps)
        before = None if stored is None else step.comparable(known, schemas)
        after = replace(step.run(before, changes), secret=known.secret)
        after = replace(after, snapshot_id=leaf.snapshot_id, schema_id=schema.schema_id)
        root = None
        if after.map is not None and step.description is not None:
            root = step.description.state_root(after.map.root)
            maps.nodes[root_address(root)] = after.map.encode() + step.description.encode()
        digest = None if after.rows is None else after.rows.hex
        return RowState(digest, None if root is None else root.hex(), after.missing, after.encode(), maps.nodes)

    def pages_with(self, state_roots: Sequence[str], keys: Sequence[bytes], read_nodes: ReadNodes) -> frozenset[bytes]:
        """The addresses of the buckets that have one of the key digests, in these states as far as they are stored."""
        maps, addresses = StateMaps(b"", read_nodes), set[bytes]()
        for state_root in state_roots:
            (record,) = read_nodes([root_address(bytes.fromhex(state_root))])
            for key in keys if record else ():
                if (address := maps.bucket_with(StateMap.decode(record), key)) is not None:
                    addresses.add(address)
        return frozenset(addresses)

    def digest_with(self, stored: bytes, rows: Sequence[bytes]) -> str | None:
        known = StoredState.decode(stored).rows
        if known is None:
            return None
        return (known + RowsDigest.of_digests(np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 32))).hex

    def forget(self, stored: bytes | None) -> bytes | None:
        """The stored state of no rows in particular, so that the next one is computed anew, with the same secret."""
        if stored is None:
            return None
        return replace(StoredState.decode(stored), snapshot_id=-1, rows=None, map=None, missing=None).encode()


@dataclass(frozen=True)
class _Step:
    """From the state before a leaf to the one after it."""

    computer: StateComputer
    table: Table
    leaf: Leaf
    until: Snapshot | None
    schema: Schema
    description: StateDescription | None
    """None: the table has no key."""
    maps: StateMaps

    def comparable(self, before: StoredState, schemas: dict[int, Schema]) -> StoredState | None:
        """The state before, if it is of the rows before the leaf, and their digests are the same under its schema."""
        old = schemas.get(before.schema_id)
        if before.snapshot_id != self.leaf.parent_id or not keeps_digests(old, self.schema):
            return None
        assert old is not None
        if set(old.identifier_field_ids) != set(self.schema.identifier_field_ids):
            return replace(before, map=None, missing=None)
        return before

    def run(self, before: StoredState | None, changes: ChangesDigest | None) -> StoredState:
        if self.leaf.snapshot_id is None:
            return self._finished(StoredState(None, 0, RowsDigest(), StateMap()))
        records: Hashes | None = np.empty((0, RECORD_SIZE), np.uint8)
        if self.leaf.snapshot_id != self.leaf.parent_id:
            records = None if changes is None else _records(changes)
        if before is None or records is None or (before.rows is None and before.missing != SIZE):
            return self._computed()
        removes, adds = records[:, 0] != ord("I"), records[:, 0] != ord("D")
        if before.rows is None:
            return before if not removes.any() else self._computed()  # it has not become smaller
        if before.rows.rows < removes.sum():
            return self._computed()
        rows = before.rows - RowsDigest.of_digests(records[removes, 33:65])
        after = replace(before, rows=rows + RowsDigest.of_digests(records[adds, 65:97]))
        return self._with_map(after, records)

    def _with_map(self, after: StoredState, records: Hashes) -> StoredState:
        """The state with its map after the changes. Reads all rows if there was no map, and may be one now."""
        assert after.rows is not None
        if (reason := self._map_is_off(after.rows.rows)) is not None:
            return replace(after, map=None, missing=reason)
        if self.description is None:
            return replace(after, map=None, missing=None)
        if after.map is None:
            removes = bool((records[:, 0] != ord("I")).any())
            return after if after.missing == DUPLICATE and not removes else self._computed()
        try:
            return replace(after, map=self.maps.updated(after.map, records), missing=None)
        except DuplicateKey:
            return replace(after, map=None, missing=DUPLICATE)
        except (OtherRows, Unverified):
            log.warning("state map computed anew", extra={"table": self.leaf.table})
            return self._computed()

    def _map_is_off(self, rows: int) -> str | None:
        """Why a table with so many rows has no state map; None if it has one, or has no key."""
        if self.description is None:
            return None
        if self.table.properties.get(MAP_PROPERTY) == OFF:
            return OFF
        return SIZE if rows > self._most_keys else None

    @property
    def _most_keys(self) -> int:
        setting = self.table.properties.get(MAP_PROPERTY, "")
        return int(setting) if setting.isascii() and setting.isdecimal() else self.computer.map_rows

    def _finished(self, after: StoredState) -> StoredState:
        assert after.rows is not None
        reason = self._map_is_off(after.rows.rows)
        if reason is not None or self.description is None:
            return replace(after, map=None, missing=reason)
        return after

    def _computed(self) -> StoredState:
        """The state from all rows of the snapshot."""
        nothing = StoredState(None, self.schema.schema_id, None)
        if self.until is None:
            return replace(nothing, missing=UNREADABLE)
        key, computer = None if self.description is None else self.description.key_names, self.computer
        try:
            rows, keyed = digest_rows(
                self.table, self.until, self.schema, key, self._most_keys, computer.limit, computer.manifests
            )
        except TooLarge as error:
            return self._without(nothing, SIZE, error)
        except (Invalid, NotFound, Unverified, FileNotFoundError, KeyError, pa.ArrowInvalid) as error:
            return self._without(nothing, UNREADABLE, error)
        after = self._finished(replace(nothing, rows=rows, map=StateMap()))
        if after.map is None or keyed is None:
            return after
        try:
            return replace(after, map=self.maps.build(*keyed))
        except DuplicateKey:
            return replace(after, map=None, missing=DUPLICATE)

    def _without(self, state: StoredState, missing: str, error: Exception) -> StoredState:
        extra = {"table": self.leaf.table, "snapshot_id": str(self.leaf.snapshot_id), "reason": str(error)}
        log.info("no state digest", extra=extra)
        return replace(state, missing=missing)


def describe(schema: Schema) -> StateDescription | None:
    """The columns and key of a schema; None without a key, or with one inside a struct."""
    columns = {column.field_id: column for column in schema.fields}
    ids = sorted(schema.identifier_field_ids)
    if not ids or any(field_id not in columns for field_id in ids):
        return None
    return StateDescription(
        tuple((field_id, columns[field_id].name) for field_id in sorted(columns)),
        tuple((field_id, str(columns[field_id].field_type)) for field_id in ids),
    )


def keeps_digests(old: Schema | None, new: Schema) -> bool:
    """Whether a row has the same digest under both schemas: no column was dropped, and no new one has a default."""
    if old is None:
        return False
    if old.schema_id == new.schema_id:
        return True
    before, after = index_by_id(old), index_by_id(new)
    defaults = any(after[field_id].initial_default is not None for field_id in after.keys() - before.keys())
    return not defaults and before.keys() <= after.keys()


def _records(changes: ChangesDigest) -> Hashes | None:
    """The changes' records; None if they were not asked for."""
    if len(changes.records) != changes.count * RECORD_SIZE:
        return None
    return np.frombuffer(changes.records, np.uint8).reshape(-1, RECORD_SIZE)
