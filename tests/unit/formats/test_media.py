"""What a file is by its first bytes, and how large the picture is."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.formats.limits import FileRejected
from catalog.formats.media import dimensions, media_type

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 640, 480) + b"\x08\x02\x00\x00\x00"
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\x00" + bytes(9)
    + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 480, 640) + bytes(10)
)  # fmt: skip
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"
MP3 = b"ID3\x04\x00" + bytes(20)


def riff(kind: bytes, rest: bytes = b"") -> bytes:
    return b"RIFF" + struct.pack("<I", 4 + len(rest)) + kind + rest


VP8X = b"VP8X" + struct.pack("<I", 10) + bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")
VP8 = b"VP8 " + struct.pack("<I", 10) + b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 640, 480 | 0x4000)
VP8L = b"VP8L" + struct.pack("<I", 5) + b"\x2f" + struct.pack("<I", 639 | 479 << 14)


@pytest.mark.parametrize(
    ("name", "head", "kind", "size"),
    [
        ("a.png", PNG, "image/png", (640, 480)),
        ("a.jpg", JPEG, "image/jpeg", (640, 480)),
        ("a.gif", b"GIF89a" + struct.pack("<HH", 640, 480), "image/gif", (640, 480)),
        ("a.webp", riff(b"WEBP", VP8X), "image/webp", (640, 480)),
        ("a.webp", riff(b"WEBP", VP8), "image/webp", (640, 480)),
        ("a.webp", riff(b"WEBP", VP8L), "image/webp", (640, 480)),
        ("a.pdf", PDF, "application/pdf", (None, None)),
        ("a.mp3", MP3, "audio/mpeg", (None, None)),
        ("a.mp3", b"\xff\xfb\x90\x00", "audio/mpeg", (None, None)),
        ("a.mp4", bytes(4) + b"ftypisom", "video/mp4", (None, None)),
        ("a.mov", bytes(4) + b"ftypqt  ", "video/quicktime", (None, None)),
        ("a.wav", riff(b"WAVE"), "audio/wav", (None, None)),
        ("a.tar.gz", b"\x1f\x8b\x08\x00", "application/gzip", (None, None)),
        ("a.bin", b"\x00\x01", "application/octet-stream", (None, None)),
        ("a", b"\xff\x00", "application/octet-stream", (None, None)),
        ("really.jpg", PNG, "image/png", (640, 480)),
        ("cut.png", PNG[:18], "image/png", (None, None)),
        ("cut.jpg", JPEG[:24], "image/jpeg", (None, None)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_bytes_say_what_it_is(name: str, head: bytes, kind: str, size: tuple[int | None, int | None]) -> None:
    assert media_type(name, head) == kind
    assert dimensions(kind, head) == size


@pytest.mark.parametrize("text", [b"hello", "é".encode(), "日本".encode()[:4]])
def test_text_is_no_media(text: bytes) -> None:
    assert media_type("a.jsnol", text) is None


@pytest.mark.parametrize(
    ("name", "head", "reason"),
    [
        ("a.png", b"", "empty"),
        ("a.png", b"<svg/>", "content is of another type"),
        ("a.mp4", b"\x00\x01", "content is of another type"),
        ("a.parq", b"PAR1\x15", "name it .parquet"),
    ],
)
def test_what_is_not_as_it_is_called_is_refused(name: str, head: bytes, reason: str) -> None:
    with pytest.raises(FileRejected, match=reason):
        media_type(name, head)


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_have_an_answer(data: bytes) -> None:
    for start in (b"", b"\xff\xd8\xff", b"RIFF1234WEBP", b"\x89PNG\r\n\x1a\n", b"GIF89a"):
        head = start + data
        try:
            kind = media_type("a.bin", head)
        except FileRejected:
            continue
        if kind is not None:
            dimensions(kind, head)
