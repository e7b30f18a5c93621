"""Mutated inputs from seeds: the same seed number gives the same input in every process."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

MAX_BYTES = 128 << 10
_NUMBER = re.compile(rb"-?[0-9]+")
_NUMBERS = (
    b"0", b"-1", b"1e999", b"9223372036854775807", b"9223372036854775808", b"4294967296", b"18446744073709551616",
    b"0x10", b"1" + b"0" * 400, b"-0.0", b"NaN", b"1:59:59",
)  # fmt: skip
_TOKENS = tuple(
    text.encode()
    for text in (
        "\x00", "\n", "\r\n", '"', "'", "\\", "\\ud800", "{", "}", "[", "]", "(", ")", ":", ",", "#", "---\n",
        "*a", "&a ", "!!int ", "<<: ", "null", "true", " AS OF ", "SELECT ", " FROM ", "::int", " UNION ",
        "\ufeff", "\u2028", "é", "/*", "--", ";", "$1", ".", "=",
    )
)  # fmt: skip


def mutate(seeds: Sequence[bytes], number: int) -> bytes:
    """The input of that number: a seed, changed one to eight times."""
    chosen = random.Random(number)
    data = bytearray(chosen.choice(seeds))
    for _ in range(chosen.randint(1, 8)):
        data = _change(data, seeds, chosen)
        if len(data) > MAX_BYTES:
            data = data[:MAX_BYTES]
    return bytes(data)


def _change(data: bytearray, seeds: Sequence[bytes], chosen: random.Random) -> bytearray:
    at = chosen.randrange(len(data) + 1)
    end = min(len(data), at + chosen.choice((1, 2, 4, 8, 64, 1024)))
    kind = chosen.randrange(9)
    if kind == 0 and data:
        data[min(at, len(data) - 1)] ^= 1 << chosen.randrange(8)
    elif kind == 1 and data:
        data[min(at, len(data) - 1)] = chosen.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
    elif kind == 2:
        del data[at:end]
    elif kind == 3:
        data[at:at] = data[at:end]
    elif kind == 4:
        data[at:at] = data[at:end] * chosen.choice((2, 10, 100, 2000))
    elif kind == 5:
        data[at:at] = chosen.choice(_TOKENS) * chosen.choice((1, 1, 1, 50, 5000))
    elif kind == 6:
        other = chosen.choice(seeds)
        start = chosen.randrange(len(other) + 1)
        data[at:end] = other[start : start + chosen.choice((4, 64, 4096))]
    elif kind == 7:
        numbers = list(_NUMBER.finditer(bytes(data[:65536])))
        if numbers:
            number = chosen.choice(numbers)
            data[number.start() : number.end()] = chosen.choice(_NUMBERS)
    else:
        data[at:end] = bytes(chosen.randrange(256) for _ in range(min(end - at, 16)))
    return data
