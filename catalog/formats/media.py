"""Binary media: the media type by a file's first bytes, and a picture's size by its header. Never decodes a picture."""

from __future__ import annotations

import codecs
import struct
from typing import Any

import pyarrow as pa

from catalog.formats.limits import FileRejected

HEAD_BYTES = 64 << 10
"""How much of a file is examined: enough for a camera's JPEG, whose size comes after its thumbnail."""

_COLUMNS: dict[str, Any] = {
    "key": pa.string(),
    "version": pa.string(),
    "size": pa.int64(),
    "sha256": pa.string(),
    "media_type": pa.string(),
    "width": pa.int64(),
    "height": pa.int64(),
    "landed_at": pa.timestamp("us", "UTC"),
    "path": pa.string(),
}
MEDIA = pa.schema(_COLUMNS)
UNKNOWN = "application/octet-stream"
_SUFFIXES = ("png", "jpg", "jpeg", "gif", "webp", "pdf", "mp3", "mp4", "wav")
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS = {
    b"qt  ": "video/quicktime", b"M4A ": "audio/mp4", b"heic": "image/heic", b"mif1": "image/heif",
    b"avif": "image/avif",
}  # fmt: skip


def media_type(name: str, head: bytes) -> str | None:
    """The media type by the first bytes; None for text, which is not media.

    A known signature wins over the name. Raises FileRejected if the content contradicts the name, and for Parquet under
    another name: it would become a row of metadata instead of its own rows.
    """
    if not head:
        raise FileRejected("the file is empty")
    signed = _by_signature(head)
    if signed is not None:
        return signed
    if head.startswith(b"PAR1"):
        raise FileRejected("the first bytes are those of a Parquet file: name it .parquet")
    suffix = name.rpartition(".")[2].lower()
    if suffix in _SUFFIXES:
        raise FileRejected(
            f"the name ends in .{suffix}, but the content is of another type: correct the name or the file"
        )
    return None if _is_text(head) else UNKNOWN


def dimensions(kind: str, head: bytes) -> tuple[int | None, int | None]:
    """Width and height by the header; (None, None) if it does not have them, or lies beyond the head."""
    try:
        if kind == "image/png":
            return struct.unpack(">II", head[16:24])
        if kind == "image/gif":
            return struct.unpack("<HH", head[6:10])
        if kind == "image/jpeg":
            return _jpeg(head)
        if kind == "image/webp":
            return _webp(head)
    except (struct.error, IndexError):
        pass
    return None, None


def _by_signature(head: bytes) -> str | None:
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[8:12])
    return _BRANDS.get(head[8:12], "video/mp4") if head[4:8] == b"ftyp" else None


def _is_text(head: bytes) -> bool:
    try:
        # Incremental: the head may end within a character.
        return "\x00" not in codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False


def _jpeg(head: bytes) -> tuple[int | None, int | None]:
    """The size in the first frame header (ITU T.81 B.2.2); the segments before it are skipped by their length."""
    at = 2
    while head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        at += 1 if marker == 0xFF else 2 + int(struct.unpack(">H", head[at + 2 : at + 4])[0])
    return None, None


def _webp(head: bytes) -> tuple[int | None, int | None]:
    if head[12:16] == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if head[12:16] == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if head[12:16] == b"VP8L":
        (bits,) = struct.unpack("<I", head[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None, None
