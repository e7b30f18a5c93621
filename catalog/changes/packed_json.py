"""The packed form of a canonical JSON record in a row proof: its hashes as bytes, its names as one byte each.

A leaf of 1,000 bytes packs to about 450. Canonical JSON has no bytes below 0x20, so these stand for what is replaced:

    01 and 32 bytes   a text of 64 hex digits, with its quotes        1b and 16 bytes   a uuid, with its quotes
    02 to 1a          a name, with its quotes and colon: NAMES        1c                null
"""

from __future__ import annotations

import re
from uuid import UUID

NAMES = (
    "attested",
    "changes_count",
    "changes_root",
    "committed_ms",
    "content_count",
    "content_root",
    "format",
    "index",
    "main_index",
    "manifest_list_sha256",
    "map_root",
    "metadata_sha256",
    "operation",
    "parent_id",
    "ref",
    "rows_digest",
    "schema_sha256",
    "sequence",
    "sequenced_ms",
    "snapshot_id",
    "state_digest",
    "state_missing",
    "state_root",
    "table",
    "table_uuid",
)
_HASH, _FIRST_NAME, _UUID, _NULL = 0x01, 0x02, 0x1B, 0x1C
_CODES = {f'"{name}":'.encode(): bytes((_FIRST_NAME + at,)) for at, name in enumerate(NAMES)}
_TEXTS = {code[0]: text for text, code in _CODES.items()} | {_NULL: b"null"}
_HEX = rb"[0-9a-f]"
_PACKED = re.compile(
    rb'(?P<hash>"' + _HEX + rb'{64}")|(?P<name>"(?:' + "|".join(NAMES).encode() + rb')":)|(?P<uuid>"'
    + rb"-".join(_HEX + rb"{%d}" % size for size in (8, 4, 4, 4, 12))
    + rb'")|(?P<null>null)'
)  # fmt: skip


def pack(text: bytes) -> bytes:
    return _PACKED.sub(_packed, text)


def unpack(data: bytes, limit: int) -> bytes:
    """The text; ValueError unless `data` is what `pack` makes of it, and the text has at most `limit` bytes."""
    parts, at, size = list[bytes](), 0, 0
    while at < len(data):
        code, at = data[at], at + 1
        if code >= 0x20:
            part = bytes((code,))
        elif code in _TEXTS:
            part = _TEXTS[code]
        elif code in (_HASH, _UUID):
            width = 32 if code == _HASH else 16
            raw, at = data[at : at + width], at + width
            if len(raw) != width:
                raise ValueError("it ends in the middle of a hash")
            part = b'"' + (raw.hex() if code == _HASH else str(UUID(bytes=raw))).encode() + b'"'
        else:
            raise ValueError(f"it has the unknown code {code}")
        parts.append(part)
        size += len(part)
        if size > limit:
            raise ValueError(f"it has more than {limit} bytes")
    text = b"".join(parts)
    if pack(text) != data:
        raise ValueError("it is not in its packed form")
    return text


def _packed(match: re.Match[bytes]) -> bytes:
    text = match[0]
    match match.lastgroup:
        case "hash":
            return bytes((_HASH,)) + bytes.fromhex(text[1:-1].decode())
        case "uuid":
            return bytes((_UUID,)) + UUID(text[1:-1].decode()).bytes
        case "null":
            return bytes((_NULL,))
    return _CODES[text]
