"""The map of tables: table name -> what the timeline knows of the table, as a verifiable map (catalog.merkle).

The last leaf of each batch states the map's root *after itself*: a value names leaves by index, never by hash. So a
proof of one name under that root shows which table had the name then, its last leaf and its snapshot, or that there
was no such table; nothing later can be hidden, and a name cannot have two histories in one tree.

    key     SHA-256 of b"strandline/table\n" and the table's name in UTF-8
    value   canonical JSON (RFC 8785): index, main_index, sequence, snapshot_id, state_root,
            table_uuid

A drop removes the name, so that its absence means "no such table". A rename moves the entry. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, Protocol

from catalog.core.errors import Invalid, Unverified
from catalog.merkle.prefix_map import PrefixMap
from catalog.timeline.log.leaf import MAIN, Leaf

_KEY_PREFIX = b"strandline/table\n"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def table_key(name: str) -> bytes:
    """
    >>> table_key("sales.orders").hex()[:16]
    'ac471a3b4da510ba'
    """
    return sha256(_KEY_PREFIX + name.encode()).digest()


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as of a leaf of the timeline.

    `sequence` and `index` are of the table's last leaf; `main_index` is the index of its last leaf with ref "main",
    which states `snapshot_id`, where main is, and `state_root`, the root of the map of main's rows, if it has one.
    """

    table_uuid: str
    sequence: int
    index: int
    main_index: int | None
    snapshot_id: int | None
    state_root: str | None = None

    def encode(self) -> bytes:
        record: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        record["snapshot_id"] = None if self.snapshot_id is None else str(self.snapshot_id)
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> TableEntry:
        """Parses strictly: Unverified unless the bytes are exactly what `encode` would write."""
        try:
            record = json.loads(data)
            record["snapshot_id"] = None if record["snapshot_id"] is None else int(record["snapshot_id"])
            entry = cls(**record)
            numbers = (entry.sequence, entry.index, *([] if entry.main_index is None else [entry.main_index]))
            if entry.state_root is not None and not _SHA256.fullmatch(entry.state_root):
                raise ValueError("its state_root is not a SHA-256 in hex")
            if type(entry.table_uuid) is not str or any(type(number) is not int for number in numbers):
                raise ValueError("a field has another type")
            if entry.encode() != data:
                raise ValueError("it is not in its canonical form")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Unverified(f"not an entry of the map of tables: {data[:80]!r} ({error})") from None
        return entry


def next_entry(entry: TableEntry | None, index: int, leaf: Leaf) -> TableEntry | None:
    """The entry of the leaf's table after the leaf; None after a drop. `entry`: before it."""
    if leaf.operation == "drop":
        return None
    if leaf.ref == MAIN:
        return TableEntry(leaf.table_uuid, leaf.sequence, index, index, leaf.snapshot_id, leaf.state_root)
    main = (None, None, None) if entry is None else (entry.main_index, entry.snapshot_id, entry.state_root)
    return TableEntry(leaf.table_uuid, leaf.sequence, index, *main)


def entry_after(table: str, entry: TableEntry | None, leaves: Sequence[tuple[int, Leaf]]) -> TableEntry | None:
    """The name's entry after more leaves. `entry`: before them; `leaves`: all of the timeline's up to some index.

    The leaves of a transaction take effect together, at the last of them. Unverified if one does not follow.
    """
    last = leaves[-1][0] if leaves else -1
    for index, leaf in leaves:
        if index + leaf.following > last:
            continue
        is_same = entry is not None and entry.table_uuid == leaf.table_uuid
        if entry is not None and is_same and leaf.sequence != entry.sequence + 1:
            raise Unverified(f"leaf {index} does not follow the leaf of {table} at index {entry.index}", subject=table)
        if leaf.table == table:
            if entry is not None and not is_same:
                raise Unverified(f"leaf {index} is of a second table {table}", subject=table)
            entry = next_entry(entry, index, leaf)
        elif is_same:
            entry = None  # renamed
    return entry


class _Tables(Protocol):
    def entry(self, key: bytes) -> TableEntry | None: ...

    def key_of(self, uuid: str) -> bytes | None: ...


@dataclass(frozen=True)
class TableMap:
    """The map at the end of a batch. Immutable."""

    map: PrefixMap
    keys: Mapping[str, bytes]
    """Table uuid -> the key that its entry has."""

    @classmethod
    def load(cls, map_: PrefixMap) -> TableMap:
        """From the stored map. Unverified if it has two names for one table."""
        keys = dict[str, bytes]()
        for key, value in map_.items():
            uuid = TableEntry.decode(value).table_uuid
            if keys.setdefault(uuid, key) != key:
                raise Unverified(f"the timeline's map of tables has two names for table {uuid}", subject="map")
        return cls(map_, keys)

    @property
    def root(self) -> str:
        return self.map.root.hex()

    def entry(self, key: bytes) -> TableEntry | None:
        value = self.map.get(key)
        return None if value is None else TableEntry.decode(value)

    def key_of(self, uuid: str) -> bytes | None:
        return self.keys.get(uuid)

    def with_changes(self, changes: TableChanges) -> TableMap:
        """The map after the leaves of a batch. Costs about log2 n hashes per changed table."""
        moved = {uuid: key for uuid, key in changes.keys.items() if self.keys.get(uuid) != key}
        keys = {uuid: key for uuid, key in {**self.keys, **moved}.items() if key is not None} if moved else self.keys
        return TableMap(self.map.updated(changes.values()), keys)


class TableChanges:
    """What new leaves change in a map; the last state of each table counts. The map itself stays as it is."""

    def __init__(self, before: TableMap | TableChanges) -> None:
        self._before: _Tables = before
        self.entries = dict[bytes, TableEntry | None]()
        self.keys = dict[str, bytes | None]()

    def add(self, index: int, leaf: Leaf) -> None:
        """Adds a leaf. Invalid when its name is that of another table, or is not its table's name."""
        uuid, key = leaf.table_uuid, table_key(leaf.table)
        old_key = self.key_of(uuid)
        if old_key != key:
            holder = self.entry(key)
            if holder is not None:
                raise Invalid(
                    f"the timeline has another table {leaf.table} ({holder.table_uuid}), which was neither dropped "
                    f"nor renamed: catch up that table, then {leaf.table} again",
                    subject=leaf.table,
                )
            if old_key is not None and leaf.operation != "rename":
                raise Invalid(f"the leaf is of {leaf.table}, but its table {uuid} has another name", subject=leaf.table)
        entry = next_entry(None if old_key is None else self.entry(old_key), index, leaf)
        if old_key is not None and old_key != key:
            self.entries[old_key] = None
        self.entries[key] = entry
        self.keys[uuid] = None if entry is None else key

    def merge(self, other: TableChanges) -> None:
        """Adds changes that were made on top of these."""
        self.entries |= other.entries
        self.keys |= other.keys

    def entry(self, key: bytes) -> TableEntry | None:
        return self.entries[key] if key in self.entries else self._before.entry(key)

    def key_of(self, uuid: str) -> bytes | None:
        return self.keys[uuid] if uuid in self.keys else self._before.key_of(uuid)

    def values(self) -> dict[bytes, bytes | None]:
        """Key -> its value; None: the key is removed."""
        return {key: None if entry is None else entry.encode() for key, entry in self.entries.items()}
