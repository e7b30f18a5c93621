"""The SlateDB key layout, all of it. No other module builds a key.

Numbers are big-endian and of fixed width (levels 1 byte, all others 8), so that a scan returns rows in numeric order.
Text is at the end of its key, or is followed by a slash that it must not contain.

    leaf/<index>               the leaf's bytes
    node/<level>/<index>       a hash tile of 256 hashes; the last of each level grows
    head                       size, root, time, the signed checkpoint
    checkpoint/<size>          every checkpoint that was signed
    keys                       the key list: verifier keys, and the size from which each signs
    pruned                     the size up to which superseded partial tiles are deleted
    table/<uuid>/<sequence>    the index of the table's leaf of that sequence
    state/<uuid>               the table as of its last leaf: name, references, schema, metadata file
    map/<key>                  the table map's value of the key, as of the last leaf; <key> is 32 bytes (table_map.py)
    mapnode/<hash>             a node of the table map, of now or of any earlier batch, by its hash of 32 bytes
    rows/<uuid>                main's rows as of the table's last leaf: their digest's state (catalog.changes.row_state)
    statenode/<hash>           a page of a table's state map, of now or of any earlier leaf, by its hash
    uuid/<table name>          the uuids of the tables that had the name, the newest last
    time/<ms>/<index>          one per batch: <index> is the last one sequenced at <ms>
    id/<snapshot>/<uuid>       the index of the snapshot's leaf
    name/<name>                the index that has the name
    mark/<consumer>/<table>    a consumer's watermark, as a signed note
    meta/<kind>/<id>           note metadata, job state
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from catalog.core.errors import Invalid

HEAD = b"head"
KEYS = b"keys"
PRUNED = b"pruned"


def leaf(index: int) -> bytes:
    r"""
    >>> leaf(258)
    b'leaf/\x00\x00\x00\x00\x00\x00\x01\x02'
    """
    return b"leaf/" + _number(index)


def node(level: int, index: int) -> bytes:
    r"""
    >>> node(1, 2)
    b'node/\x01/\x00\x00\x00\x00\x00\x00\x00\x02'
    """
    return b"node/" + bytes((level,)) + b"/" + _number(index)


def checkpoint(size: int) -> bytes:
    r"""
    >>> checkpoint(1)
    b'checkpoint/\x00\x00\x00\x00\x00\x00\x00\x01'
    """
    return b"checkpoint/" + _number(size)


def table(uuid: UUID | str, sequence: int = 0) -> bytes:
    r"""
    >>> table("00000000-0000-0000-0000-0000000000ff", 3)[6:]
    b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff/\x00\x00\x00\x00\x00\x00\x00\x03'
    """
    return b"table/" + _uuid(uuid) + b"/" + _number(sequence)


def state(uuid: UUID | str) -> bytes:
    r"""
    >>> state("00000000-0000-0000-0000-0000000000ff")
    b'state/\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff'
    """
    return b"state/" + _uuid(uuid)


def table_entry(key: bytes) -> bytes:
    r"""
    >>> table_entry(bytes(32))[:6]
    b'map/\x00\x00'
    """
    return b"map/" + _hash(key)


def map_node(node_hash: bytes) -> bytes:
    r"""
    >>> map_node(bytes(32))[:10]
    b'mapnode/\x00\x00'
    """
    return b"mapnode/" + _hash(node_hash)


def rows(uuid: UUID | str) -> bytes:
    r"""
    >>> rows("00000000-0000-0000-0000-0000000000ff")
    b'rows/\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff'
    """
    return b"rows/" + _uuid(uuid)


def state_node(node_hash: bytes) -> bytes:
    r"""
    >>> state_node(bytes(32))[:12]
    b'statenode/\x00\x00'
    """
    return b"statenode/" + _hash(node_hash)


def uuids(table_name: str) -> bytes:
    """
    >>> uuids("sales.orders")
    b'uuid/sales.orders'
    """
    return b"uuid/" + _text(table_name)


def time(ms: int, index: int = 0) -> bytes:
    r"""
    >>> time(1, 2)
    b'time/\x00\x00\x00\x00\x00\x00\x00\x01/\x00\x00\x00\x00\x00\x00\x00\x02'
    """
    return b"time/" + _number(ms) + b"/" + _number(index)


def snapshot(snapshot_id: int, uuid: UUID | str | None = None) -> bytes:
    r"""A snapshot id is unique within its table only, so the table's uuid follows. Without it: the prefix of all.

    >>> snapshot(7)
    b'id/\x00\x00\x00\x00\x00\x00\x00\x07/'
    """
    # Iceberg ids are positive, but the format allows any signed long: modulo keeps negative ones distinct.
    return b"id/" + _number(snapshot_id % 2**64) + b"/" + (b"" if uuid is None else _uuid(uuid))


def name(named: str) -> bytes:
    """
    >>> name("end of 2026/Q1")
    b'name/end of 2026/Q1'
    """
    return b"name/" + _text(named)


def watermark(consumer: str, table_name: str) -> bytes:
    """
    >>> watermark("gold-builder", "sales.orders")
    b'mark/gold-builder/sales.orders'
    """
    return b"mark/" + _segment(consumer) + b"/" + _text(table_name)


def meta(kind: str, identity: str) -> bytes:
    """
    >>> meta("note", "inbox/2026-03-01.md")
    b'meta/note/inbox/2026-03-01.md'
    """
    return b"meta/" + _segment(kind) + b"/" + _text(identity)


def number_at_end(key: bytes) -> int:
    """The number a key ends with.

    >>> number_at_end(leaf(258)), number_at_end(time(1, 2))
    (258, 2)
    """
    return int.from_bytes(key[-8:], "big")


def after(prefix: bytes) -> bytes:
    """The first key after all keys that begin with the prefix.

    >>> after(b"leaf/")
    b'leaf0'
    """
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def pack(*numbers: int) -> bytes:
    """Numbers as a value: 8 bytes each."""
    return struct.pack(f">{len(numbers)}Q", *numbers)


def unpack(value: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(value) // 8}Q", value)


def pack_uuids(values: Sequence[str]) -> bytes:
    """Uuids as a value: 16 bytes each."""
    return b"".join(map(_uuid, values))


def unpack_uuids(value: bytes) -> list[str]:
    return [str(UUID(bytes=value[at : at + 16])) for at in range(0, len(value), 16)]


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _hash(value: bytes) -> bytes:
    if len(value) != 32:
        raise ValueError(f"a hash has 32 bytes, not {len(value)}")
    return value


def _uuid(value: UUID | str) -> bytes:
    return (value if isinstance(value, UUID) else UUID(value)).bytes


def _text(value: str) -> bytes:
    if not value:
        raise Invalid("a name or id in a key of the timeline's store must not be empty")
    return value.encode()


def _segment(value: str) -> bytes:
    if "/" in value:
        raise Invalid(f"{value!r} cannot be part of a key of the timeline's store: it contains a slash")
    return _text(value)
