"""A leaf, a table's entry in the map of tables, and the description of a state map, as a row proof carries them.

What the verifier computes or knows is left out, and stands as "" in the parsed record: the map root of the leaf, the
state root, and the table's name and uuid where the leaf is of the table in question. So no hash is in the file twice,
and none that could only be compared. Specified in docs/spec/timeline.md. Standard library only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from catalog.changes.proof_bytes import ProofBytes, number, text
from catalog.changes.state_root import StateDescription
from catalog.timeline import Leaf, TableEntry

LEFT_OUT = ""
_FIELDS = {
    "attested": "text",
    "changes_count": "number",
    "changes_root": "hash",
    "committed_ms": "signed",
    "content_count": "number",
    "content_root": "hash",
    "manifest_list_sha256": "hash",
    "map_root": "hash",
    "metadata_sha256": "hash",
    "operation": "text",
    "parent_id": "id",
    "ref": "text",
    "rows_digest": "hash",
    "schema_sha256": "hash",
    "sequence": "number",
    "sequenced_ms": "number",
    "snapshot_id": "id",
    "state_digest": "hash",
    "state_missing": "text",
    "state_root": "hash",
    "table": "text",
    "table_uuid": "uuid",
}
"""A leaf's fields in the order of their names, without `format`. Bit 23 of its first three bytes is of the first."""
_REQUIRED = ("committed_ms", "content_count", "operation", "sequence", "sequenced_ms", "table", "table_uuid")
_OF_TABLE = 1 << 1
"""The bit that says: the leaf is of the table in question."""


def shorten_leaf(leaf: Leaf, table: str, entry: TableEntry) -> Leaf:
    """The leaf without what the verifier computes or knows. `entry`: the table's entry, complete."""
    short = replace(leaf, map_root=LEFT_OUT)
    is_same_state = leaf.state_root in (None, entry.state_root)
    if (leaf.table, leaf.table_uuid) != (table, entry.table_uuid) or not is_same_state:
        return short
    state_root = None if leaf.state_root is None else LEFT_OUT
    return replace(short, table=LEFT_OUT, table_uuid=LEFT_OUT, state_root=state_root)


def complete_leaf(short: Leaf, map_root: bytes, table: str, entry: TableEntry) -> Leaf:
    """The leaf with what was left out; ValueError if something else was than `shorten_leaf` leaves out."""
    leaf = replace(short, map_root=map_root.hex())
    if short.table == LEFT_OUT:
        state_root = None if short.state_root is None else entry.state_root
        leaf = replace(leaf, table=table, table_uuid=entry.table_uuid, state_root=state_root)
    if shorten_leaf(leaf, table, entry) != short:
        raise ValueError("its leaf repeats what can be left out")
    return leaf


def write_leaf(leaf: Leaf) -> bytes:
    """ValueError for a leaf that cannot be written: one that no verifier accepts anyway."""
    of_table = leaf.table == LEFT_OUT
    bits, parts = _OF_TABLE if of_table else 0, list[bytes]()
    for at, (name, kind) in enumerate(_FIELDS.items()):
        value = getattr(leaf, name)
        if value is None or (value == LEFT_OUT and (name == "map_root" or (of_table and name.startswith("table")))):
            continue
        bits |= 1 << (23 - at)
        if not (of_table and name == "state_root"):
            parts.append(_written(kind, value))
    return bits.to_bytes(3, "big") + b"".join(parts)


def read_leaf(data: ProofBytes, *, has_map_root: bool = False) -> Leaf:
    """A leaf whose map root is left out; or, with `has_map_root`, one that may have one, and leaves nothing out."""
    bits = int.from_bytes(data.take(3), "big")
    of_table, values = bool(bits & _OF_TABLE), dict[str, Any]()
    if of_table and has_map_root:
        raise ValueError("a leaf after the point leaves something out")
    for at, (name, kind) in enumerate(_FIELDS.items()):
        given = bool(bits >> (23 - at) & 1)
        is_known = name in ("table", "table_uuid") or (name == "state_root" and given)
        if (of_table and is_known) or (name == "map_root" and not has_map_root):
            values[name] = LEFT_OUT
        else:
            values[name] = _read(data, kind) if given else None
    if any(values[name] is None for name in _REQUIRED):
        raise ValueError("a leaf lacks a field")
    return Leaf(**values)


def write_entry(entry: TableEntry) -> bytes:
    if entry.main_index is None:
        raise ValueError("the table has no leaf about main")
    snapshot = b"\0" if entry.snapshot_id is None else b"\1" + _written("id", entry.snapshot_id)
    numbers = (entry.index, entry.main_index, entry.sequence)
    return b"".join(map(number, numbers)) + snapshot + _written("uuid", entry.table_uuid)


def read_entry(data: ProofBytes) -> TableEntry:
    """A table's entry; its state root is left out."""
    index, main_index, sequence = data.number(), data.number(), data.number()
    snapshot = _read(data, "id") if data.take(1) == b"\1" else None
    return TableEntry(_read(data, "uuid"), sequence, index, main_index, snapshot, LEFT_OUT)


def write_description(description: StateDescription) -> bytes:
    parts = list[bytes]()
    for pairs in (description.columns, description.key):
        parts += [number(len(pairs)), *(number(id_) + text(name.encode()) for id_, name in pairs)]
    return b"".join(parts)


def read_description(data: ProofBytes) -> StateDescription:
    columns, key = (tuple((data.number(), data.text().decode()) for _ in range(data.number())) for _ in range(2))
    description = StateDescription(columns, key)
    return StateDescription.decode(description.encode())


def _written(kind: str, value: Any) -> bytes:
    match kind:
        case "number":
            return number(value)
        case "signed":
            return number(value << 1 if value >= 0 else ~value << 1 | 1)
        case "id":
            return int(value).to_bytes(8, "big", signed=True)
        case "hash":
            if len(value) != 64 or bytes.fromhex(value).hex() != value:
                raise ValueError(f"{value!r:.80} is not a SHA-256 in hex")
            return bytes.fromhex(value)
        case "uuid" if _is_uuid(value):
            return b"\0" + UUID(value).bytes
    return text(value.encode())


def _read(data: ProofBytes, kind: str) -> Any:
    match kind:
        case "number":
            return data.number()
        case "signed":
            signed = data.number()
            return ~(signed >> 1) if signed & 1 else signed >> 1
        case "id":
            return int.from_bytes(data.take(8), "big", signed=True)
        case "hash":
            return data.hash().hex()
    value = data.text().decode()
    if kind == "uuid" and not value:
        return str(UUID(bytes=data.take(16)))
    if not value:
        raise ValueError("a text is empty")
    return value


def _is_uuid(value: str) -> bool:
    try:
        return str(UUID(value)) == value
    except ValueError:
        return False
