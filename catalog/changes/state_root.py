"""What a state root covers: the columns and key of the table, and the root of its state map. Specified in docs/spec.

Needs the standard library alone: verifiers of row proofs import it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

FORMAT = "strandline/state@v1"


@dataclass(frozen=True, slots=True)
class StateDescription:
    """The table's columns, as (field id, name), and its key, as (field id, Iceberg type); both by ascending id.

    A row digest identifies columns by id and has no types, so a key is looked up by what stands here, and the state
    root covers it: with another id for its column, every key would seem absent.
    """

    columns: tuple[tuple[int, str], ...]
    key: tuple[tuple[int, str], ...]

    def encode(self) -> bytes:
        record = {"columns": [list(each) for each in self.columns], "format": FORMAT}
        record["key"] = [list(each) for each in self.key]
        return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> StateDescription:
        """Parses strictly: ValueError unless the bytes are exactly what `encode` would write."""
        try:
            record: Any = json.loads(data)
            description = cls(_pairs(record["columns"]), _pairs(record["key"]))
            if description.encode() != data:
                raise ValueError("it is not in its canonical form")
            names = dict(description.columns)
            if not description.key or any(field_id not in names for field_id, _ in description.key):
                raise ValueError("its key is not among its columns")
            if len(set(names.values())) != len(description.columns):
                raise ValueError("two columns have one name")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"not the description of a state map: {data[:80]!r} ({error})") from None
        return description

    @property
    def key_names(self) -> tuple[str, ...]:
        names = dict(self.columns)
        return tuple(names[field_id] for field_id, _ in self.key)

    def state_root(self, map_root: bytes) -> bytes:
        """SHA-256(04 || SHA-256(description) || root of the map)."""
        return sha256(b"\x04" + sha256(self.encode()).digest() + map_root).digest()


def _pairs(values: Sequence[Any]) -> tuple[tuple[int, str], ...]:
    pairs = tuple((number, text) for number, text in values)
    if any(type(number) is not int or type(text) is not str or not 0 < number < 2**31 for number, text in pairs):
        raise ValueError("a column is not an id and a text")
    if [number for number, _ in pairs] != sorted({number for number, _ in pairs}):
        raise ValueError("ids do not ascend")
    return pairs
