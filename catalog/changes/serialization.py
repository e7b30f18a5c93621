"""Change sets as bytes and back: an Arrow IPC stream, or JSON lines.

Reading checks only the form, and refuses anything else before it allocates: do not trust what was read until `verify`
has accepted it. For values in JSON see json_values.py.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from catalog.changes import type_tags
from catalog.changes.change_set import ChangeSet, CommitHeader, Evidence, KeyRange, KeyValue, Neighbour, PartialProof
from catalog.changes.commit_leaf import parse_snapshot_id
from catalog.changes.committed_schema import check_types
from catalog.changes.json_values import json_of, value_of
from catalog.changes.records import changes_schema
from catalog.core.errors import LakeError, Unverified
from catalog.core.strict_json import parse_strictly
from catalog.formats import FormatLimits, read_arrow_stream

FORMAT: Final = "strandline/changes@v2"
MAX_LINE_BYTES: Final = 64 << 20
"""For the head of a change set, and for one change in JSON."""
MAX_VALUES: Final = 1 << 21
_HEAD = b"strandline:changes"
_FIELDS = frozenset({"format", "commit", "key", "root", "count", "schema_json", "evidence", "part"})
_COMMIT = frozenset({"table", "table_uuid", "snapshot_id", "parent_id", "committed_ms", "index", "sequence"})
_EVIDENCE = frozenset({"leaf", "proof", "passed", "consistency"})
_PART = frozenset({"places", "proof", "keys", "left", "right"})
_LINE = frozenset({"op", "before", "after"})
_HEX = re.compile(r"([0-9a-f]{2})*")


def to_ipc(changes: ChangeSet) -> bytes:
    """One Arrow IPC stream, with the head in the schema's metadata, so that any Arrow reader can read the changes."""
    schema = changes.changes.schema.with_metadata({_HEAD: json.dumps(_head(changes)).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(changes.changes.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()


def from_ipc(data: bytes) -> ChangeSet:
    """Reads what `to_ipc` writes; Unverified for anything else. Memory: at most about 32 times the data."""
    with _refusing("Arrow IPC"):
        # `to_ipc` does not compress: rows take about as much memory as the stream has bytes.
        limits = FormatLimits(decompressed_bytes=min(FormatLimits().decompressed_bytes, 32 * len(data) + (1 << 20)))
        table = read_arrow_stream(data, limits, any_type=True)
        metadata = table.schema.metadata or {}
        if set(metadata) != {_HEAD}:
            raise ValueError("its schema has not the head of a change set as its only metadata")
        head = _parse(metadata[_HEAD], _FIELDS)
        schema = pa.schema(list(table.schema.field("after").type))
        check_types(schema, len(table), len(data))
        return _change_set(head, schema, table.replace_schema_metadata(None))


def to_json_lines(changes: ChangeSet) -> Iterator[str]:
    """A head, then one line per change, without line ends. Slower than Arrow IPC, since each value is Python."""
    schema = b64encode(changes.schema.serialize().to_pybytes()).decode()
    yield json.dumps({**_head(changes), "schema": schema})
    row = changes.changes.schema.field("after").type
    for line in changes.changes.cast(changes_schema(pa.schema(list(type_tags.plain(row))))).to_pylist():
        yield json.dumps(
            {name: json_of(line[name], kind) for name, kind in (("op", None), ("before", row), ("after", row))}
        )


def from_json_lines(lines: Sequence[str]) -> ChangeSet:
    """Reads what `to_json_lines` writes; Unverified for anything else."""
    with _refusing("JSON lines"):
        if not lines:
            raise ValueError("it is empty")
        head = _parse(lines[0], _FIELDS | {"schema"})
        schema = pa.ipc.read_schema(pa.py_buffer(b64decode(_text(head["schema"]), validate=True)))
        check_types(schema, len(lines), sum(map(len, lines)))
        changes = [_parse(line, _LINE) for line in lines[1:]]
        row = pa.struct(list(schema))
        columns = [
            pa.array([_text(line["op"]) for line in changes], pa.string()),
            *(pa.array([value_of(line[name], row) for line in changes], row) for name in ("before", "after")),
        ]
        return _change_set(head, schema, pa.Table.from_arrays(columns, schema=changes_schema(schema)))


@contextmanager
def _refusing(form: str) -> Iterator[None]:
    """Raises Unverified for whatever goes wrong in the block: bytes from a stranger can fail anywhere."""
    try:
        yield
    except Unverified:
        raise
    except LakeError as error:
        raise Unverified(f"not a change feed in {form}: {error.message}") from None
    except Exception as error:
        raise Unverified(f"not a change feed in {form}: {type(error).__name__}: {error!s:.200}") from None


def _parse(text: bytes | str, fields: frozenset[str]) -> dict[str, Any]:
    """A JSON object with exactly these fields: others might be read by somebody, and are not verified."""
    return _object(parse_strictly(text, max_bytes=MAX_LINE_BYTES, max_values=MAX_VALUES), fields)


def _object(value: Any, fields: frozenset[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != fields:
        raise ValueError(f"its fields are not {', '.join(sorted(fields))}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is not text")
    return value


def _list(value: Any) -> list[Any]:
    """A JSON array: text and objects can be iterated, too."""
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.80} is not a list")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.80} is not a number")
    return value


def _integer(value: Any) -> int:
    """A number that may be negative: a writer's clock may be anywhere."""
    if type(value) is not int:
        raise ValueError(f"{value!r:.80} is not a number")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError(f"{value!r:.80} is not bytes in hex")
    return bytes.fromhex(value)


def _head(changes: ChangeSet) -> dict[str, Any]:
    commit = asdict(changes.commit)
    for name in ("snapshot_id", "parent_id"):  # 63 bits: more than most JSON readers keep of a number
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
        raise ValueError(f"its format is {head['format']!r:.80}, not {FORMAT}")
    key = tuple(_text(name) for name in _list(head["key"]))
    evidence, part, schema_json = (head[name] for name in ("evidence", "part", "schema_json"))
    count = _number(head["count"])
    return ChangeSet(
        _commit_in(_object(head["commit"], _COMMIT)),
        schema,
        key,
        table,
        _bytes(head["root"]),
        count,
        None
        if part is None
        else _part_in(_object(part, _PART), [schema.field(name) for name in key], len(table), count),
        None if schema_json is None else _text(schema_json).encode(),
        None if evidence is None else _evidence_in(_object(evidence, _EVIDENCE)),
    )


def _fields(schema: pa.Schema, names: Sequence[str]) -> list[pa.Field[Any]]:
    return [schema.field(name) for name in names]


def _commit_in(commit: dict[str, Any]) -> CommitHeader:
    parent, index, sequence = commit["parent_id"], commit["index"], commit["sequence"]
    return CommitHeader(
        _text(commit["table"]),
        _text(commit["table_uuid"]),
        parse_snapshot_id(commit["snapshot_id"]),
        None if parent is None else parse_snapshot_id(parent),
        _integer(commit["committed_ms"]),
        None if index is None else _number(index),
        None if sequence is None else _number(sequence),
    )


def _evidence_out(evidence: Evidence) -> dict[str, Any]:
    passed = [[leaf.decode(), proof.decode()] for leaf, proof in evidence.passed]
    size, hashes = evidence.consistency or (None, ())
    consistency = None if size is None else [size, [value.hex() for value in hashes]]
    return {
        "leaf": evidence.leaf.decode(),
        "proof": evidence.proof.decode(),
        "passed": passed,
        "consistency": consistency,
    }


def _evidence_in(evidence: dict[str, Any]) -> Evidence:
    passed = tuple(
        (_text(leaf).encode(), _text(proof).encode()) for leaf, proof in map(_list, _list(evidence["passed"]))
    )
    consistency = evidence["consistency"]
    if consistency is not None:
        size, hashes = _list(consistency)
        consistency = _number(size), tuple(_bytes(value) for value in _list(hashes))
    return Evidence(_text(evidence["leaf"]).encode(), _text(evidence["proof"]).encode(), passed, consistency)


def _part_out(part: PartialProof) -> dict[str, Any]:
    def bound_out(values: KeyValue | None) -> Any:
        return None if values is None else [json_of(value, None) for value in values]

    def neighbour_out(neighbour: Neighbour | None) -> Any:
        return None if neighbour is None else {"record": neighbour.record.hex(), "key": _key_out(neighbour.key)}

    starts = [*part.indices[:1]] + [b for a, b in pairwise(part.indices) if b != a + 1]
    ends = [a + 1 for a, b in pairwise(part.indices) if b != a + 1] + [last + 1 for last in part.indices[-1:]]
    return {
        "places": [list(run) for run in zip(starts, ends, strict=True)],
        "proof": [value.hex() for value in part.proof],
        "keys": None if part.keys is None else {"low": bound_out(part.keys.low), "high": bound_out(part.keys.high)},
        "left": neighbour_out(part.left),
        "right": neighbour_out(part.right),
    }


def _part_in(part: dict[str, Any], key: Sequence[pa.Field[Any]], rows: int, count: int) -> PartialProof:
    def bound_in(values: Any) -> KeyValue | None:
        if values is None:
            return None
        fields = key[: len(_list(values))]
        return tuple(value_of(value, type_tags.plain(field.type)) for value, field in zip(values, fields, strict=True))

    def neighbour_in(value: Any) -> Neighbour | None:
        if value is None:
            return None
        fields = _object(value, frozenset({"record", "key"}))
        return Neighbour(_bytes(fields["record"]), _key_in(_list(fields["key"]), key))

    keys = None if part["keys"] is None else _object(part["keys"], frozenset({"low", "high"}))
    return PartialProof(
        _indices(part["places"], rows + 2, count),
        tuple(_bytes(value) for value in _list(part["proof"])),
        None if keys is None else KeyRange(bound_in(keys["low"]), bound_in(keys["high"])),
        neighbour_in(part["left"]),
        neighbour_in(part["right"]),
    )


def _indices(places: Any, limit: int, count: int) -> tuple[int, ...]:
    """The indices in runs of [start, end), at most `limit` in all: a few bytes can state a run of any length."""
    runs = [(_number(start), _number(end)) for start, end in map(_list, _list(places))]
    if sum(end - start for start, end in runs) > limit or any(not start < end <= count for start, end in runs):
        raise ValueError(f"its indices are not those of {limit} changes among {count}")
    if any(end >= start for (_, end), (start, _) in pairwise(runs)):
        raise ValueError("its indices do not ascend")
    return tuple(index for start, end in runs for index in range(start, end))


def _key_out(key: pa.Table) -> list[Any]:
    plain = key.cast(pa.schema(list(type_tags.plain(pa.struct(list(key.schema))))))
    return [json_of(column[0].as_py(), field.type) for column, field in zip(plain.columns, key.schema, strict=True)]


def _key_in(values: Any, fields: Sequence[pa.Field[Any]]) -> pa.Table:
    columns = [pa.array([value_of(value, field.type)], field.type) for value, field in zip(values, fields, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
