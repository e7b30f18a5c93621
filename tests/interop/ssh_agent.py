"""An SSH agent with one Ed25519 key: litewitness asks an agent for its signatures, and has no key itself."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_IDENTITIES, _IDENTITIES_ANSWER, _SIGN, _SIGN_RESPONSE, _FAILURE = 11, 12, 13, 14, 5
_KIND = b"ssh-ed25519"


def _text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _take(data: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack_from(">I", data)
    return data[4 : 4 + length], data[4 + length :]


def _respond(key: Ed25519PrivateKey, request: bytes) -> bytes:
    public = _text(_KIND) + _text(key.public_key().public_bytes_raw())
    if request[0] == _IDENTITIES:
        return bytes([_IDENTITIES_ANSWER]) + struct.pack(">I", 1) + _text(public) + _text(b"witness")
    if request[0] == _SIGN:
        asked, rest = _take(request[1:])
        message, _ = _take(rest)
        if asked == public:
            return bytes([_SIGN_RESPONSE]) + _text(_text(_KIND) + _text(key.sign(message)))
    return bytes([_FAILURE])


@contextmanager
def ssh_agent(path: Path, seed: bytes) -> Iterator[None]:
    """Listens on a Unix socket at the path."""
    key = Ed25519PrivateKey.from_private_bytes(seed)

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                request = stream.read(struct.unpack(">I", head)[0])
                connection.sendall(_text(_respond(key, request)))

    def listen() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=listen, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
