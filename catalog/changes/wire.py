"""Change sets as bytes and back: an Arrow IPC stream, or JSON lines for everyone else.

Nothing is checked here but the form; what is read is as trustworthy as a stranger's word until `verify` has
passed it. JSON holds times and dates as the numbers that their digests hold (docs/row-digest.md), bytes as
base64, decimals and integers from 2**53 on as text, a map as a list of pairs.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import Any

import pyarrow as pa

from catalog.changes import tags
from catalog.changes.feed import ChangeSet, Commit, Evidence, KeyRange, KeyValue, Neighbour, Part
from catalog.changes.records import changes_schema
from catalog.errors import Invalid

FORMAT = "strandline/changes@v1"
_HEAD = b"strandline:changes"


def to_ipc(changes: ChangeSet) -> bytes:
    """One Arrow IPC stream; the head is in the schema's metadata, so any Arrow reader can read the changes."""
    schema = changes.changes.schema.with_metadata({_HEAD: json.dumps(_head(changes)).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(changes.changes.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()


def from_ipc(data: bytes) -> ChangeSet:
    """Reads what `to_ipc` writes; Invalid for anything else."""
    try:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
        head = json.loads((table.schema.metadata or {})[_HEAD])
        schema = pa.schema(list(table.schema.field("after").type))
        return _change_set(head, schema, table.replace_schema_metadata(None))
    except (pa.ArrowException, ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise Invalid(f"not a change feed in Arrow IPC: {error}") from None


def to_json_lines(changes: ChangeSet) -> Iterator[str]:
    """A head, then one line per change, without line ends. Python speed: for people and for other languages."""
    schema = b64encode(changes.schema.serialize().to_pybytes()).decode()
    yield json.dumps({**_head(changes), "schema": schema})
    row = changes.changes.schema.field("after").type
    for line in changes.changes.cast(changes_schema(pa.schema(list(tags.plain(row))))).to_pylist():
        yield json.dumps(
            {name: _json(line[name], kind) for name, kind in (("op", None), ("before", row), ("after", row))}
        )


def from_json_lines(lines: Sequence[str]) -> ChangeSet:
    """Reads what `to_json_lines` writes; Invalid for anything else."""
    try:
        head, *rest = (json.loads(line) for line in lines)
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(head["schema"], validate=True)))
        row = pa.struct(list(schema))
        columns = [
            pa.array([line["op"] for line in rest], pa.string()),
            *(pa.array([_native(line[name], row) for line in rest], row) for name in ("before", "after")),
        ]
        return _change_set(head, schema, pa.Table.from_arrays(columns, schema=changes_schema(schema)))
    except (pa.ArrowException, ValueError, KeyError, TypeError, ArithmeticError, OSError) as error:
        raise Invalid(f"not a change feed in JSON lines: {error}") from None


def _head(changes: ChangeSet) -> dict[str, Any]:
    commit = asdict(changes.commit)
    for name in ("snapshot_id", "parent_id"):  # 63 bits: more than a JSON number holds elsewhere
        commit[name] = None if commit[name] is None else str(commit[name])
    evidence, part = changes.evidence, changes.part
    return {
        "format": FORMAT,
        "commit": commit,
        "key": list(changes.key),
        "root": changes.root.hex(),
        "count": changes.count,
        "schema_json": None if changes.schema_json is None else changes.schema_json.decode(),
        "evidence": None if evidence is None else _evidence_out(evidence),
        "part": None if part is None else _part_out(part),
    }


def _change_set(head: dict[str, Any], schema: pa.Schema, table: pa.Table) -> ChangeSet:
    if head["format"] != FORMAT:
        raise ValueError(f"its format is {head['format']!r}, not {FORMAT}")
    commit = dict(head["commit"])
    for name in ("snapshot_id", "parent_id"):
        commit[name] = None if commit[name] is None else int(commit[name])
    key, evidence, part, schema_json = (head[name] for name in ("key", "evidence", "part", "schema_json"))
    return ChangeSet(
        Commit(**commit),
        schema,
        tuple(key),
        table,
        bytes.fromhex(head["root"]),
        int(head["count"]),
        None if part is None else _part_in(part, pa.schema([schema.field(name) for name in key])),
        None if schema_json is None else schema_json.encode(),
        None if evidence is None else _evidence_in(evidence),
    )


def _evidence_out(evidence: Evidence) -> dict[str, Any]:
    passed = [[leaf.decode(), proof.decode()] for leaf, proof in evidence.passed]
    return {"leaf": evidence.leaf.decode(), "proof": evidence.proof.decode(), "passed": passed}


def _evidence_in(evidence: dict[str, Any]) -> Evidence:
    passed = tuple((leaf.encode(), proof.encode()) for leaf, proof in evidence.get("passed", ()))
    return Evidence(evidence["leaf"].encode(), evidence["proof"].encode(), passed)


def _part_out(part: Part) -> dict[str, Any]:
    def bound(values: KeyValue | None) -> Any:
        return None if values is None else [_json(value, None) for value in values]

    def neighbour(found: Neighbour | None) -> Any:
        return None if found is None else {"record": found.record.hex(), "key": _key_out(found.key)}

    starts = [*part.indices[:1]] + [b for a, b in pairwise(part.indices) if b != a + 1]
    ends = [a + 1 for a, b in pairwise(part.indices) if b != a + 1] + [at + 1 for at in part.indices[-1:]]
    return {
        "places": [list(run) for run in zip(starts, ends, strict=True)],
        "proof": [value.hex() for value in part.proof],
        "keys": None if part.keys is None else {"low": bound(part.keys.low), "high": bound(part.keys.high)},
        "left": neighbour(part.left),
        "right": neighbour(part.right),
    }


def _part_in(part: dict[str, Any], schema: pa.Schema) -> Part:
    def bound(values: Any) -> KeyValue | None:
        if values is None:
            return None
        fields = list(schema)[: len(values)]
        return tuple(_native(value, tags.plain(field.type)) for value, field in zip(values, fields, strict=True))

    def neighbour(found: Any) -> Neighbour | None:
        return None if found is None else Neighbour(bytes.fromhex(found["record"]), _key_in(found["key"], schema))

    keys = part["keys"]
    return Part(
        tuple(at for start, end in part["places"] for at in range(start, end)),
        tuple(bytes.fromhex(value) for value in part["proof"]),
        None if keys is None else KeyRange(bound(keys["low"]), bound(keys["high"])),
        neighbour(part["left"]),
        neighbour(part["right"]),
    )


def _key_out(key: pa.Table) -> list[Any]:
    plain = key.cast(pa.schema(list(tags.plain(pa.struct(list(key.schema))))))
    return [_json(column[0].as_py(), field.type) for column, field in zip(plain.columns, key.schema, strict=True)]


def _key_in(values: Sequence[Any], schema: pa.Schema) -> pa.Table:
    fields = list(schema)[: len(values)]
    columns = [pa.array([_native(value, field.type)], field.type) for value, field in zip(values, fields, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _json(value: Any, kind: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if pa.types.is_struct(kind):
        return {field.name: _json(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [[_json(key, kind.key_type), _json(item, kind.item_type)] for key, item in value]
    return [_json(item, kind.value_type) for item in value]


def _native(value: Any, kind: Any) -> Any:
    """What pa.array takes for a value of the type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _native(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_native(key, kind.key_type), _native(item, kind.item_type)) for key, item in value]
    if tags.is_list(kind):
        return [_native(item, kind.value_type) for item in value]
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return int(value)
    if isinstance(kind, pa.BaseExtensionType) or tags.is_bytes(kind):
        return b64decode(value, validate=True)
    return value
