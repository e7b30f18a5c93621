"""Writes the files of this directory, from docs/spec/timeline.md and docs/row-digest.md alone.

Run it with `python -m tests.golden.rows.make`. It needs `cryptography` for the signature.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.golden.as_of.make import NOTES, ORDERS, ORIGIN, canonical, h, key, leaf, map_hash, side

HERE = Path(__file__).parent
TABLE, SNAPSHOT, MS = "sales.orders", "5551234567890123456", 1_800_000_000_000
SECRET = h(b"the golden secret of a state map: public and worthless")
COLUMNS, KEY = [(1, "region"), (2, "id"), (3, "note")], [(1, "string"), (2, "long")]
FIELDS = {
    "attested": "text", "changes_count": "number", "changes_root": "hash", "committed_ms": "signed",
    "content_count": "number", "content_root": "hash", "manifest_list_sha256": "hash", "map_root": "hash",
    "metadata_sha256": "hash", "operation": "text", "parent_id": "id", "ref": "text", "rows_digest": "hash",
    "schema_sha256": "hash", "sequence": "number", "sequenced_ms": "number", "snapshot_id": "id",
    "state_digest": "hash", "state_missing": "text", "state_root": "hash", "table": "text", "table_uuid": "uuid",
}  # fmt: skip


def number(value: int) -> bytes:
    return bytes([value & 127 | 128]) + number(value >> 7) if value > 127 else bytes([value])


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def hash_path(hashes: list[bytes]) -> bytes:
    bits = "".join("1" if any(one) else "0" for one in hashes)
    bits += "0" * (-len(bits) % 8)
    bitmap = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
    return number(len(hashes)) + bitmap + b"".join(one for one in hashes if any(one))


def packed(entry: str, of_table: bool, with_map_root: bool) -> bytes:
    record, bits, parts = json.loads(entry), "", b""
    for name, kind in FIELDS.items():
        value = record[name]
        is_left_out = (of_table and name in ("table", "table_uuid")) or (name == "map_root" and not with_map_root)
        given = value is not None and not is_left_out
        bits += "1" if given else "0"
        if not given or (of_table and name == "state_root"):
            continue
        match kind:
            case "text":
                parts += text(value.encode())
            case "number":
                parts += number(value)
            case "signed":
                parts += number(2 * value if value >= 0 else -2 * value - 1)
            case "id":
                parts += int(value).to_bytes(8, "big", signed=True)
            case "hash":
                parts += bytes.fromhex(value)
            case "uuid":
                parts += b"\0" + UUID(value).bytes
    return int(bits + ("1" if of_table else "0") + "0", 2).to_bytes(3, "big") + parts


def encoded(values: list[tuple[int, str | int]]) -> bytes:
    """A row's encoding, of texts and whole numbers."""
    head = bytes(4) + b"\x0f" + len(values).to_bytes(8, "big")
    slots, payloads = b"", b""
    for field, value in values:
        tag, slot = (11, len(value.encode())) if isinstance(value, str) else (2, value)
        slots += field.to_bytes(4, "big") + bytes([tag]) + slot.to_bytes(8, "big", signed=True)
        payloads += value.encode() if isinstance(value, str) else b""
    return head + slots + payloads


def digest(region: str, number_: int) -> bytes:
    return h(encoded([(1, region), (2, number_)]))


def rows_of(count: int) -> dict[bytes, bytes]:
    """Key digest -> the row's encoding."""
    return {digest("DE", at): encoded([(1, "DE"), (2, at), (3, f"note {at}")]) for at in range(count)}


def value_of(at: bytes, row: bytes) -> bytes:
    return h(SECRET, at, h(row)) + h(row)


def place(rows: dict[bytes, bytes], wanted: list[bytes], shown: bool, depth: int = 0) -> bytes:
    """Where the wanted keys lead, below `depth`, in the map of these rows."""
    siblings, commitments = [], {at: value_of(at, row) for at, row in rows.items()}
    while len(rows) > 1 and len({at[depth // 8] >> (7 - depth % 8) & 1 for at in wanted}) == 1:
        bit = wanted[0][depth // 8] >> (7 - depth % 8) & 1
        beside = side(commitments, 1 - bit, depth)
        siblings.append(map_hash(beside, depth + 1))
        rows, commitments, depth = side(rows, bit, depth), side(commitments, bit, depth), depth + 1
    head = hash_path(siblings)
    if len(rows) > 1:
        halves = [
            (side(rows, bit, depth), [at for at in wanted if at[depth // 8] >> (7 - depth % 8) & 1 == bit])
            for bit in (0, 1)
        ]
        return head + b"\4" + b"".join(place(half, below, shown, depth + 1) for half, below in halves)
    if not rows:
        return head + b"\0"
    [(at, row)] = rows.items()
    if at not in wanted:
        return head + b"\1" + at + h(value_of(at, row))
    start = number(sorted(wanted).index(at)) + value_of(at, row)[:32]
    return head + (b"\3" + start + text(row) if shown else b"\2" + start + h(row))


def description() -> tuple[bytes, bytes]:
    record = {
        "columns": [list(one) for one in COLUMNS],
        "format": "strandline/state@v1",
        "key": [list(one) for one in KEY],
    }
    parts = b""
    for pairs in (COLUMNS, KEY):
        parts += number(len(pairs)) + b"".join(number(id_) + text(name.encode()) for id_, name in pairs)
    return canonical(record).encode(), parts


def state_root(rows: dict[bytes, bytes]) -> bytes:
    return h(b"\x04", h(description()[0]), map_hash({at: value_of(at, row) for at, row in rows.items()}))


def entry(uuid: str, sequence: int, index: int, snapshot: str | None, state: bytes | None) -> bytes:
    facts = {"index": index, "main_index": index, "sequence": sequence, "snapshot_id": snapshot, "table_uuid": uuid}
    return canonical(facts | {"state_root": None if state is None else state.hex()}).encode()


def packed_entry(data: bytes) -> bytes:
    record = json.loads(data)
    numbers = b"".join(number(record[name]) for name in ("index", "main_index", "sequence"))
    return (
        numbers
        + b"\1"
        + int(record["snapshot_id"]).to_bytes(8, "big", signed=True)
        + b"\0"
        + UUID(record["table_uuid"]).bytes
    )


def with_state(data: str, state: bytes) -> str:
    return canonical(json.loads(data) | {"state_root": state.hex()})


def path_in(items: dict[bytes, bytes], wanted: bytes) -> bytes:
    siblings, depth = [], 0
    while len(items) > 1:
        bit = wanted[depth // 8] >> (7 - depth % 8) & 1
        siblings.append(map_hash(side(items, 1 - bit, depth), depth + 1))
        items, depth = side(items, bit, depth), depth + 1
    return hash_path(siblings)


def main() -> None:
    secret = Ed25519PrivateKey.from_private_bytes(h(b"the golden key of strandline/as-of@v1: public and worthless"))
    public = secret.public_key().public_bytes_raw()
    key_id = h(ORIGIN.encode(), b"\n", b"\x01", public)[:4]

    few, rows = rows_of(5), rows_of(40)
    first = {key(TABLE): entry(ORDERS, 1, 1, SNAPSHOT, state_root(few))}
    second = first | {key(TABLE): entry(ORDERS, 2, 2, "7", state_root(rows))}
    tables = second | {key("silver.notes"): entry(NOTES, 0, 3, None, None)}
    leaves = [
        leaf(TABLE, ORDERS, 0, "create", None, MS, None),
        with_state(leaf(TABLE, ORDERS, 1, "append", SNAPSHOT, MS, map_hash(first).hex()), state_root(few)),
        with_state(leaf(TABLE, ORDERS, 2, "append", "7", MS + 500, map_hash(second).hex()), state_root(rows)),
        leaf("silver.notes", NOTES, 0, "create", None, MS + 900, map_hash(tables).hex()),
    ]
    hashes = [h(b"\x00", one.encode()) for one in leaves]
    left, right = h(b"\x01", hashes[0], hashes[1]), h(b"\x01", hashes[2], hashes[3])
    note = f"{ORIGIN}\n4\n{b64encode(h(bytes([1]), left, right)).decode()}\n"
    signature = b64encode(key_id + secret.sign(note.encode())).decode()
    paths = {1: [hashes[0], right], 2: [hashes[3], left], 3: [hashes[2], left]}

    def write(name: str, index: int, items: dict[bytes, bytes], place_: bytes, after: bytes = b"") -> None:
        extra = b"strandline/rows@v1\n" + packed(leaves[index], index < 3, False) + packed_entry(items[key(TABLE)])
        extra += path_in(items, key(TABLE)) + description()[1] + place_ + after
        lines = ["c2sp.org/tlog-proof@v1", f"extra {b64encode(extra).decode()}", f"index {index}"]
        lines += [b64encode(one).decode() for one in paths[index]]
        (HERE / name).write_text("\n".join(lines) + f"\n\n{note}\n\N{EM DASH} {ORIGIN} {signature}\n")

    asked = [digest("DE", at) for at in (0, 7, 11, 39, 40, 4711)]
    write("row.tlog-proof", 2, second, place(rows, [digest("DE", 7)], True))
    write("digest.tlog-proof", 3, tables, place(rows, [digest("DE", 7)], False))
    write("absent.tlog-proof", 3, tables, place(rows, [digest("FR", 7)], True))
    write("answer.tlog-proof", 3, tables, place(rows, asked, True))
    # The leaf after index 1 is at index 2: below where their paths meet, it has hash 3 beside it.
    after = packed(leaves[2], False, True) + hash_path([hashes[3]])
    write("time.tlog-proof", 1, first, place(few, [digest("DE", 3)], True), after)
    (HERE / "key").write_text(f"{ORIGIN}+{key_id.hex()}+{b64encode(bytes([1]) + public).decode()}\n")


if __name__ == "__main__":
    main()
