"""Bounds what sparse JSON costs: pyarrow allocates a value for every object and every key that any object has.

Ten thousand rows of one key each, all different, are 100 kB of text and a gigabyte of Arrow. So a block is parsed in
parts, in which no more than CELLS values can be allocated; a single row beyond that is rejected. A block whose columns
are known needs no parts: there are no more values than objects times columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from catalog.formats.byte_positions import count_byte
from catalog.formats.limits import FileRejected, FormatLimits

CELLS = 16 << 20
"""Of eight bytes each for numbers."""
_BRACE, _COLON = b"{:"


def block_parts(block: bytes) -> Iterator[tuple[int, bytes]]:
    """Parts of whole lines, each with the number of lines before it. One part if the block is small or dense enough."""
    cells = _most_cells(block)
    count = min(math.isqrt(max(cells - 1, 0) // CELLS) + 1, len(block))
    if count == 1 or b"\n" not in block[:-1]:
        yield 0, block
        return
    start = lines = 0
    size = len(block) // count + 1
    while start < len(block):
        end = block.find(b"\n", min(start + size, len(block)) - 1) + 1 or len(block)
        part = block[start:end]
        if end - start < len(block):
            yield from ((lines + before, inner) for before, inner in block_parts(part))
        else:
            yield lines, part
        start, lines = end, lines + part.count(b"\n")


def row_parts(rows: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """The same for rows that were cut already."""
    part, first, objects, keys = list[bytes](), 0, 0, 0
    for number, row in enumerate(rows):
        more_objects, more_keys = row.count(_BRACE), row.count(_COLON)
        if part and (objects + more_objects) * (keys + more_keys) > CELLS:
            yield first, part
            part, first, objects, keys = [], number, 0, 0
        part.append(row)
        objects, keys = objects + more_objects, keys + more_keys
    if part:
        yield first, part


def check_width(text: bytes, limits: FormatLimits, **position: Any) -> None:
    """Raises FileRejected if the row alone has too many keys. Its depth must have been checked."""
    if count_keys(text) <= limits.columns and _most_cells(text) <= CELLS:
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return  # pyarrow says what is wrong with it, and allocates nothing
    if isinstance(value, dict) and len(value) > limits.columns:
        reason = f"it has {len(value)} columns, over the limit of {limits.columns}: split the table"
        raise FileRejected(reason, **position)
    objects, paths = _shape(value)
    if objects * paths > CELLS:
        reason = f"its {objects} objects have {paths} different keys: write them as a list of names and values"
        raise FileRejected(reason, **position)


def count_fields(schema: Any) -> int:
    """How many values pyarrow allocates for an object of this schema or type, nested ones included."""
    return sum(1 + count_fields(field.type) for field in _fields(schema))


def _fields(schema: Any) -> list[Any]:
    if isinstance(schema, pa.Schema):
        return list(schema)
    return [schema.field(number) for number in range(schema.num_fields)]


def _most_cells(text: bytes) -> int:
    return count_objects(text) * count_keys(text)


def count_objects(text: bytes) -> int:
    """At least as many as it has: a brace in a string counts, too."""
    return count_byte(text, _BRACE)


def count_keys(text: bytes) -> int:
    """At least as many as it has, repeated ones included: a colon in a string counts, too."""
    return count_byte(text, _COLON)


def _shape(value: Any) -> tuple[int, int]:
    """How many objects the value has, and how many different paths of keys lead into it."""
    objects, paths, pending = 0, set[tuple[int, str]](), [(0, value)]
    numbers: dict[tuple[int, str], int] = {}
    while pending:
        at, item = pending.pop()
        if isinstance(item, list):
            pending += [(at, inner) for inner in item if isinstance(inner, (dict, list))]
        elif isinstance(item, dict):
            objects += 1
            for key, inner in item.items():
                path = (at, key)
                paths.add(path)
                if isinstance(inner, (dict, list)):
                    pending.append((numbers.setdefault(path, len(numbers) + 1), inner))
    return objects, len(paths)
