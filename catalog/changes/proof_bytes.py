"""The bytes of a row proof: numbers, texts and paths, as docs/spec/timeline.md writes them. Standard library only.

number   unsigned LEB128, at most 64 bits        text   its length as a number, then its bytes
path     how many hashes; a bit for each, first bit first: 0, it is the empty hash; then those that are not
"""

from __future__ import annotations

from collections.abc import Sequence

HASH = 32
_EMPTY = bytes(HASH)
MAX_PATH = 256


def number(value: int) -> bytes:
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is not a number of 64 bits")
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*octets, value))


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def path(hashes: Sequence[bytes]) -> bytes:
    bits = 0
    for value in hashes:
        bits = bits << 1 | (value != _EMPTY)
    size = -(-len(hashes) // 8)
    bitmap = (bits << (8 * size - len(hashes))).to_bytes(size, "big")
    return number(len(hashes)) + bitmap + b"".join(value for value in hashes if value != _EMPTY)


class ProofBytes:
    """Takes one part after the other. ValueError if the data ends too soon.

    A number may have a longer spelling than `number` writes: who reads a file writes it again, and compares.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError("it ends too soon")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            octet = self.take(1)[0]
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                break
        if octet >= 0x80 or value >= 1 << 64:
            raise ValueError("a number has more than 64 bits")
        return value

    def text(self) -> bytes:
        return self.take(self.number())

    def hash(self) -> bytes:
        return self.take(HASH)

    def path(self) -> tuple[bytes, ...]:
        count = self.number()
        if count > MAX_PATH:
            raise ValueError(f"a path has more than {MAX_PATH} hashes")
        size = -(-count // 8)
        bits = int.from_bytes(self.take(size), "big") >> (8 * size - count)
        return tuple(self.hash() if bits >> (count - 1 - at) & 1 else _EMPTY for at in range(count))
