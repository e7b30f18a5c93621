"""Forgeries of what is sent, rather than of what it means: the bytes of a stream, the characters of JSON lines."""

from __future__ import annotations

import json
import random
from typing import Any

from catalog.changes import to_ipc, to_json_lines
from tests.property.changes.forgeries import Forged, flip_bit


def mutate_bytes(feed: Forged, chance: random.Random) -> tuple[int, bytes]:
    """The number of a change set, and its Arrow stream with a few bytes changed, cut, repeated or spliced."""
    at = chance.randrange(len(feed))
    data, other = to_ipc(feed[at]), to_ipc(chance.choice(feed))
    start, end = sorted(chance.randrange(len(data)) for _ in range(2))
    match chance.randrange(5):
        case 0:
            return at, flip_bit(data, chance)
        case 1:
            return at, data[:start] + data[end:]
        case 2:
            return at, data[:end] + data[start:]
        case 3:
            return at, data[:start] + other[start:]
    return at, data[:start] + chance.randbytes(end - start) + data[end:]


def keys_of(text: str) -> Any:
    """The keys of a JSON text, as often as they are there, and nothing of its values."""

    def keys(value: Any) -> Any:
        return [keys(item) for item in value] if isinstance(value, list) else value if isinstance(value, tuple) else 0

    return json.loads(text, object_pairs_hook=lambda pairs: tuple(sorted((key, keys(item)) for key, item in pairs)))


def mutate_lines(feed: Forged, chance: random.Random) -> tuple[int, list[str]]:
    """The number of a change set, and its JSON lines with another value, key or character somewhere."""
    number = chance.randrange(len(feed))
    lines = list(to_json_lines(feed[number]))
    at = chance.randrange(len(lines))
    if chance.random() < 0.3:
        line = lines[at]
        where = chance.randrange(len(line))
        lines[at] = line[:where] + chance.choice('0129"[]{},:ae\\ ') + line[where + chance.randrange(2) :]
        return number, lines
    if chance.random() < 0.1:
        key = chance.choice(["count", "table", "leaf", "root", "op", "id", "after", "region"])
        lines[at] = lines[at].replace(f'"{key}":', f'"{key}": {json.dumps(chance.choice(VALUES))}, "{key}":', 1)
        return number, lines
    value = json.loads(lines[at])
    _mutate_value(value, chance)
    lines[at] = json.dumps(value)
    if chance.random() < 0.1:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return number, lines


VALUES: list[Any] = [
    None,
    0,
    1,
    -1,
    2**53,
    1.5,
    True,
    "",
    "0",
    "x",
    "00" * 32,
    [],
    [[0, 1]],
    [[0, 10**12]],
    {},
    {"a": 1},
]


def _mutate_value(value: Any, chance: random.Random) -> None:
    """Changes one thing somewhere inside a JSON object or array."""
    while True:
        places: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = chance.choice(places)
        inner = value[place]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.7:
            value = inner
            continue
        match chance.randrange(4):
            case 0:
                del value[place]
            case 1 if isinstance(inner, str) and inner:
                where = chance.randrange(len(inner))
                value[place] = inner[:where] + chance.choice("0123456789abcdefZ/+ \n") + inner[where + 1 :]
            case 2 if isinstance(value, dict):
                value[chance.choice(["note", "region", "format", "count"])] = chance.choice(VALUES)
            case _:
                value[place] = chance.choice(VALUES)
        return
