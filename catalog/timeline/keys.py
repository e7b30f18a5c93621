"""The SlateDB key layout, all of it. Nothing else in the lake spells a key.

Numbers are big-endian and of fixed width (levels 1 byte, all others 8), so byte order is number order and a
scan is a walk through time. Text stands last in its key, or before a slash that it may not contain itself.

    leaf/<index>               the leaf's bytes
    node/<level>/<index>       a hash tile of 256 hashes; the last of each level grows
    head                       size, root, time, the signed checkpoint
    checkpoint/<size>          every signed checkpoint there ever was
    keys                       the verifier keys, and from which size each signs
    pruned                     the size up to which superseded partial tiles are removed
    table/<uuid>/<sequence>    the index of the table's leaf number <sequence>
    state/<uuid>               what the timeline holds of the table: name, references, schema, last metadata
    uuid/<table name>          the uuids of the tables that bore the name, the newest last
    time/<ms>/<index>          one per batch: <index> is the last one sequenced at <ms>
    id/<snapshot>/<uuid>       the index of the snapshot's leaf
    name/<named snapshot>      the index that bears the name
    mark/<consumer>/<table>    how far a consumer has come: a watermark, as a signed note
    meta/<kind>/<id>           note metadata, job state
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from catalog.errors import Invalid

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
    r"""An id is unique within a table only, so the table's uuid follows; without it, the prefix of all.

    >>> snapshot(7)
    b'id/\x00\x00\x00\x00\x00\x00\x00\x07/'
    """
    # Iceberg ids are positive, but the format allows any signed long: modulo keeps those apart too.
    return b"id/" + _number(snapshot_id % 2**64) + b"/" + (b"" if uuid is None else _uuid(uuid))


def name(named: str) -> bytes:
    """
    >>> name("end of 2026/Q1")
    b'name/end of 2026/Q1'
    """
    return b"name/" + _text(named)


def mark(consumer: str, table_name: str) -> bytes:
    """
    >>> mark("gold-builder", "sales.orders")
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
    """The first key behind all that begin with the prefix.

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


def _uuid(value: UUID | str) -> bytes:
    return (value if isinstance(value, UUID) else UUID(value)).bytes


def _text(value: str) -> bytes:
    if not value:
        raise Invalid("an empty text cannot be part of a key of the timeline's store")
    return value.encode()


def _segment(value: str) -> bytes:
    if "/" in value:
        raise Invalid(f"{value!r} cannot stand within a key of the timeline's store: it has a slash")
    return _text(value)
