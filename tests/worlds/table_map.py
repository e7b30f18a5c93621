"""The map of tables by its definition (docs/spec/timeline.md), with none of the lake's code."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any


def key_of(table: str) -> bytes:
    return sha256(b"strandline/table\n" + table.encode()).digest()


def value_of(
    table_uuid: str,
    sequence: int,
    index: int,
    main_index: int | None,
    snapshot_id: int | None,
    state_root: str | None = None,
) -> bytes:
    record = {
        "index": index,
        "main_index": main_index,
        "sequence": sequence,
        "snapshot_id": None if snapshot_id is None else str(snapshot_id),
        "state_root": state_root,
        "table_uuid": table_uuid,
    }
    return json.dumps(record, separators=(",", ":")).encode()


def map_of(leaves: Iterable[tuple[int, dict[str, Any]]]) -> dict[bytes, bytes]:
    """The map after all of these leaves, given as JSON records with their indexes."""
    tables = dict[str, dict[str, Any]]()  # by uuid
    for index, leaf in leaves:
        uuid = leaf["table_uuid"]
        if leaf["operation"] == "drop":
            tables.pop(uuid, None)
            continue
        entry = tables.setdefault(uuid, {"main_index": None, "snapshot_id": None, "state_root": None})
        entry |= {"table": leaf["table"], "sequence": leaf["sequence"], "index": index}
        if leaf["ref"] == "main":
            snapshot = leaf["snapshot_id"]
            entry |= {"main_index": index, "snapshot_id": None if snapshot is None else int(snapshot)}
            entry["state_root"] = leaf["state_root"]
    return {key_of(entry.pop("table")): value_of(table_uuid=uuid, **entry) for uuid, entry in tables.items()}


def root_of(items: dict[bytes, bytes], depth: int = 0) -> bytes:
    if not items:
        return bytes(32)
    if len(items) == 1:
        [(key, value)] = items.items()
        return sha256(b"\x02" + key + sha256(value).digest()).digest()
    sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
    for key, value in items.items():
        sides[int.from_bytes(key, "big") >> (255 - depth) & 1][key] = value
    left, right = (root_of(side, depth + 1) for side in sides)
    return sha256(b"\x03" + left + right).digest()
