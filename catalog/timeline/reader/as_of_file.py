"""A table as of a point in time as a file: `strandline/as-of@v1`, canonical JSON (docs/spec/timeline.md).

Reading one proves nothing: `AsOf.verify` does, against what its caller expects.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

from catalog.core.errors import Unverified
from catalog.core.strict_json import parse_strictly
from catalog.merkle.prefix_map import MapProof
from catalog.timeline.reader.evidence import AsOf, Evidence, MapEvidence

FORMAT = "strandline/as-of@v1"
MEDIA_TYPE = "application/json"
FILE_SUFFIX = ".as-of.json"
MAX_BYTES = 1 << 20
_FIELDS = frozenset(
    {
        "checkpoint",
        "format",
        "hashes",
        "index",
        "leaves",
        "map",
        "snapshot_id",
        "stated_at",
        "table",
        "table_uuid",
        "time_ms",
    }
)


def write_as_of(as_of: AsOf) -> bytes:
    """The file: about 2.5 KB, and 1 KB more for each leaf between the map and an index in the middle of a batch."""
    map_, proof = as_of.map, as_of.map.proof
    record = {
        "checkpoint": as_of.evidence.note.decode(),
        "format": FORMAT,
        "hashes": [_text(value) for value in as_of.evidence.hashes],
        "index": as_of.index,
        "leaves": [[index, entry.decode()] for index, entry in as_of.evidence.leaves],
        "map": {
            "index": map_.index,
            "other": None if proof.other is None else [_text(value) for value in proof.other],
            "siblings": [_text(value) for value in proof.siblings],
            "value": None if map_.value is None else map_.value.decode(),
        },
        "snapshot_id": None if as_of.snapshot_id is None else str(as_of.snapshot_id),
        "stated_at": as_of.stated_at,
        "table": as_of.table,
        "table_uuid": as_of.table_uuid,
        "time_ms": as_of.time_ms,
    }
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def read_as_of(data: bytes) -> AsOf:
    """Parses a file strictly: Unverified unless the bytes are exactly what `write_as_of` would write."""
    try:
        record = parse_strictly(data, max_bytes=MAX_BYTES, max_values=10_000, max_depth=8)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        if record.keys() != _FIELDS:
            raise ValueError("it has other fields than the format")
        as_of = _parse(record)
        if write_as_of(as_of) != data:
            raise ValueError("it is not in its canonical form")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unverified(f"not the proof of a table as of a point in time: {error!s:.200}") from None
    return as_of


def _parse(record: dict[str, Any]) -> AsOf:
    map_ = record["map"]
    other = None if map_["other"] is None else tuple(_bytes(value) for value in map_["other"])
    if other is not None and len(other) != 2:
        raise ValueError("the other key of the map is not a pair")
    snapshot_id = record["snapshot_id"]
    return AsOf(
        _typed(record["table"], str),
        None if record["table_uuid"] is None else _typed(record["table_uuid"], str),
        None if snapshot_id is None else int(_typed(snapshot_id, str)),
        _typed(record["index"], int),
        None if record["stated_at"] is None else _typed(record["stated_at"], int),
        None if record["time_ms"] is None else _typed(record["time_ms"], int),
        MapEvidence(
            _typed(map_["index"], int),
            None if map_["value"] is None else _typed(map_["value"], str).encode(),
            MapProof(tuple(_bytes(value) for value in map_["siblings"]), other),
        ),
        Evidence(
            tuple((_typed(index, int), _typed(entry, str).encode()) for index, entry in record["leaves"]),
            tuple(_bytes(value) for value in record["hashes"]),
            _typed(record["checkpoint"], str).encode(),
        ),
    )


def _text(value: bytes) -> str:
    return b64encode(value).decode()


def _bytes(value: Any) -> bytes:
    return b64decode(_typed(value, str), validate=True)


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.80} is not of type {kind.__name__}")
    return value
