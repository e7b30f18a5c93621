"""Writes the files of this directory, from docs/spec/timeline.md alone: no line of the lake's code has a part in it.

Run it with `python tests/golden/as_of/make.py`. It needs `cryptography` for the signature.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HERE = Path(__file__).parent
ORIGIN = "lake.example/golden"
ORDERS, NOTES = "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d", "0a4b5c6d-6a4f-4d5e-9c1b-0d2f3a4b5c6d"


def h(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def canonical(record: Any) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def leaf(
    table: str, uuid: str, sequence: int, operation: str, snapshot: str | None, ms: int, map_root: str | None
) -> str:
    digest = sha256(f"{table} {sequence}".encode()).hexdigest()
    added = snapshot is not None
    return canonical(
        {
            "attested": "lake" if added else None,
            "changes_count": 2 if added else None,
            "changes_root": digest if added else None,
            "committed_ms": ms - 7,
            "content_count": 2 if added else 0,
            "content_root": digest if added else None,
            "format": "strandline/commit@v2",
            "manifest_list_sha256": digest if added else None,
            "map_root": map_root,
            "metadata_sha256": digest,
            "operation": operation,
            "parent_id": None,
            "ref": "main",
            "rows_digest": None,
            "schema_sha256": digest,
            "sequence": sequence,
            "sequenced_ms": ms,
            "snapshot_id": snapshot,
            "state_digest": digest,
            "state_missing": None,
            "state_root": digest if added else None,
            "table": table,
            "table_uuid": uuid,
        }
    )


def key(table: str) -> bytes:
    return h(b"strandline/table\n", table.encode())


def entry(uuid: str, sequence: int, index: int, snapshot: str | None, table: str | None = None) -> bytes:
    facts = {"index": index, "main_index": index, "sequence": sequence, "snapshot_id": snapshot, "table_uuid": uuid}
    state_root = None if table is None else sha256(f"{table} {sequence}".encode()).hexdigest()
    return canonical(facts | {"state_root": state_root}).encode()


def map_hash(items: dict[bytes, bytes], depth: int = 0) -> bytes:
    if not items:
        return bytes(32)
    if len(items) == 1:
        [(only, value)] = items.items()
        return h(b"\x02", only, h(value))
    return h(b"\x03", *(map_hash(side(items, bit, depth), depth + 1) for bit in (0, 1)))


def side(items: dict[bytes, bytes], bit: int, depth: int) -> dict[bytes, bytes]:
    return {at: value for at, value in items.items() if at[depth // 8] >> (7 - depth % 8) & 1 == bit}


def path(items: dict[bytes, bytes], wanted: bytes) -> dict[str, Any]:
    siblings, depth = [], 0
    while len(items) > 1:
        bit = wanted[depth // 8] >> (7 - depth % 8) & 1
        siblings.append(b64encode(map_hash(side(items, 1 - bit, depth), depth + 1)).decode())
        items, depth = side(items, bit, depth), depth + 1
    others = [(at, value) for at, value in items.items() if at != wanted]
    return {
        "siblings": siblings,
        "other": [b64encode(part).decode() for part in (others[0][0], h(others[0][1]))] if others else None,
        "value": items[wanted].decode() if wanted in items else None,
    }


def main() -> None:
    secret = Ed25519PrivateKey.from_private_bytes(h(b"the golden key of strandline/as-of@v1: public and worthless"))
    public = secret.public_key().public_bytes_raw()
    key_id = h(ORIGIN.encode(), b"\n", b"\x01", public)[:4]

    first = {key("sales.orders"): entry(ORDERS, 1, 1, "5551234567890123456", "sales.orders")}
    tables = first | {key("silver.notes"): entry(NOTES, 0, 2, None), key("gold.tides"): entry(NOTES[::-1], 4, 2, "7")}
    leaves = [
        leaf("sales.orders", ORDERS, 0, "create", None, 1_800_000_000_000, None),
        leaf("sales.orders", ORDERS, 1, "append", "5551234567890123456", 1_800_000_000_000, map_hash(first).hex()),
        leaf("silver.notes", NOTES, 0, "create", None, 1_800_000_000_500, map_hash(tables).hex()),
    ]
    hashes = [h(b"\x00", text.encode()) for text in leaves]
    root = h(b"\x01", h(b"\x01", hashes[0], hashes[1]), hashes[2])
    text = f"{ORIGIN}\n3\n{b64encode(root).decode()}\n"
    signature = b64encode(key_id + secret.sign(text.encode())).decode()
    common = {"checkpoint": f"{text}\n\N{EM DASH} {ORIGIN} {signature}\n", "format": "strandline/as-of@v1"}
    tail = {"hashes": [b64encode(hashes[0]).decode()], "leaves": [[1, leaves[1]], [2, leaves[2]]]}

    orders = {"snapshot_id": "5551234567890123456", "stated_at": 1, "table": "sales.orders", "table_uuid": ORDERS}
    nothing = {"snapshot_id": None, "stated_at": None, "table": "sales.returns", "table_uuid": None}
    last = {"hashes": [b64encode(h(b"\x01", hashes[0], hashes[1])).decode()], "leaves": [[2, leaves[2]]]}
    write("index.json", common | tail | orders | at(2, None, 2, path(tables, key("sales.orders"))))
    write("time.json", common | tail | orders | at(1, 1_800_000_000_499, 1, path(first, key("sales.orders"))))
    write("absent.json", common | last | nothing | at(2, None, 2, path(tables, key("sales.returns"))))
    encoded = b64encode(b"\x01" + public).decode()
    (HERE / "key").write_text(f"{ORIGIN}+{key_id.hex()}+{encoded}\n")
    (HERE / "leaf.json").write_text(leaves[1])


def at(index: int, time_ms: int | None, map_index: int, shown: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "time_ms": time_ms, "map": {"index": map_index, **shown}}


def write(name: str, record: dict[str, Any]) -> None:
    (HERE / name).write_text(canonical(record))


if __name__ == "__main__":
    main()
