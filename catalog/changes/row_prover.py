"""Makes row proofs, from the timeline's database: see row_proof.py for what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, In, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from catalog.changes.comparison import find_snapshot, schema_of
from catalog.changes.digest import conform, row_digests
from catalog.changes.encoding import encode
from catalog.changes.key_digest import key_digest
from catalog.changes.key_sets import MAX_KEYS
from catalog.changes.projection import project
from catalog.changes.proof_records import LEFT_OUT, shorten_leaf
from catalog.changes.row_proof import ExpectedRows, RowProof, check_ranged, next_path
from catalog.changes.row_state import StoredState, describe
from catalog.changes.state_map import RECORD_SIZE, StateMap, StateMaps, root_address
from catalog.changes.state_proof import Place, joined
from catalog.changes.state_root import StateDescription
from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.core.point_in_time import SnapshotId
from catalog.merkle.proof import MAX_BYTES
from catalog.merkle.proof import read as read_file
from catalog.tables import Tables
from catalog.timeline import Leaf, SignedHead, StoredSource, TableEntry, Timeline, table_key

MAX_ROW = 0xFFFF
"""A longer row is not shown: the proof has its digest."""


def prove_row(
    timeline: Timeline,
    table: str,
    key: Mapping[str, Any],
    *,
    index: int | None = None,
    time_ms: int | None = None,
) -> RowProof:
    """Proves that the table had a row of this key at an index or a time, or had none: `prove_rows` of one key."""
    return prove_rows(timeline, table, [key], index=index, time_ms=time_ms)


def prove_rows(
    timeline: Timeline,
    table: str,
    keys: Sequence[Mapping[str, Any]],
    *,
    index: int | None = None,
    time_ms: int | None = None,
    ranged: frozenset[str] = frozenset(),
) -> RowProof:
    """Proves which of these keys had a row in the table at an index or a time, and which had none; by default, now.

    A key is key column -> value; `ranged`: the columns of which the keys are a range (KeySet). NotFound if there was no
    such table; Invalid for an index in the middle of a batch, a
    key that is not the table's, more than MAX_KEYS keys, or a table whose leaf has no state root. Costs the reads of an
    as-of proof and, of the state map, a record and for each key two to four pages.
    """
    source = timeline.source
    if not isinstance(source, StoredSource):
        raise Invalid("the published timeline has no state maps: prove a row from its database")
    if not 0 < len(keys) <= MAX_KEYS:
        raise Invalid(f"a proof is of 1 to {MAX_KEYS} keys, not of {len(keys)}: ask for fewer at a time", subject=table)
    head = _head(timeline, index)
    cut = _cut(source, head.checkpoint.size, index, time_ms)
    leaf, entry, siblings = _table_at(source, table, cut, head.checkpoint.size)
    state, description = _state_at(source, table, entry, cut)
    try:
        check_ranged(description, ranged)
    except ValueError as error:
        raise Invalid(f"the answer of {table}: {error}", subject=table) from None
    own = read_file(timeline.proof(cut, head))
    proof = RowProof(
        cut,
        own.hashes,
        own.checkpoint,
        shorten_leaf(leaf, table, entry),
        replace(entry, state_root=LEFT_OUT),
        siblings,
        description,
        _rows(source, table, entry, state, {_digest(table, description, key) for key in keys}),
    )
    if time_ms is not None and cut + 1 < head.checkpoint.size:
        after = read_file(timeline.proof(cut + 1, head)).hashes
        below = len(after) - len(next_path(b"", cut, own.hashes, ()))
        following = Leaf.decode(source.entry(cut + 1, head.checkpoint.size))
        proof = replace(proof, next_leaf=following, next_path=after[:below])
    # A wrong page in the database must not leave it as a proof that others reject.
    asked = ExpectedRows(table, keys, cut if time_ms is None else None, time_ms, checkpoint=head.checkpoint)
    proof.verify_all(timeline.keys(), None, asked)
    return proof


def _rows(source: StoredSource, table: str, entry: TableEntry, state: StateMap, digests: set[bytes]) -> Place:
    stored = source.row_state(entry.table_uuid)
    if stored is None:
        raise Unverified(f"the timeline's database has lost the state of {table}", subject=table)
    maps = StateMaps(StoredState.decode(stored).secret, source.state_nodes)
    return joined([(digest, *maps.prove(state, digest)) for digest in digests])


def with_rows(proof: RowProof, tables: Tables, table: str, keys: Sequence[Mapping[str, Any]]) -> RowProof:
    """The proof with the rows themselves, read from the table; without those whose files are gone.

    Reads the files that may have the keys. A row is shown only if it has the digest that the proof shows.
    """
    entry = proof.entry
    if entry.snapshot_id is None:
        return proof
    try:
        loaded = tables.load(table)
        if str(loaded.metadata.table_uuid) != entry.table_uuid:
            return proof
        rows = _rows_of_keys(tables, loaded, table, entry.snapshot_id, proof.description, keys)
    except (NotFound, Invalid, FileNotFoundError):
        return proof
    encodings = dict[bytes, bytes]()
    for at, digest in enumerate(row_digests(rows)):
        encoding = bytes(next(iter(encode(rows.slice(at, 1))))[0].as_py())
        encodings[digest.tobytes()] = encoding if len(encoding) <= MAX_ROW else b""
    shown = replace(proof, rows=proof.rows.with_rows(lambda digest: encodings.get(digest, b"")))
    if (size := len(shown.write())) > MAX_BYTES:
        message = f"the proof has {size} bytes, over the limit of {MAX_BYTES}: ask for fewer keys, or without values"
        raise Invalid(message, subject=table)
    return shown


def with_row(proof: RowProof, tables: Tables, table: str, key: Mapping[str, Any]) -> RowProof:
    """The proof with the row of its one key: see `with_rows`."""
    return with_rows(proof, tables, table, [key])


def _rows_of_keys(
    tables: Tables,
    loaded: Table,
    name: str,
    snapshot_id: int,
    description: StateDescription,
    keys: Sequence[Mapping[str, Any]],
) -> pa.Table:
    """The rows of the keys in a snapshot, under the schema that has the description."""
    written = schema_of(loaded, find_snapshot(loaded, snapshot_id))
    shown = next((each for each in loaded.schemas().values() if describe(each) == description), written)
    columns = list[tuple[str, str, str]]()
    for (field_id, kind), column in zip(description.key, description.key_names, strict=True):
        if (found := written.find_column_name(field_id)) is None:
            raise NotFound(f"{name} had no column {column} in snapshot {snapshot_id}", subject=name)
        columns.append((column, kind, found))
    rows = tables.scan(name, where=_where(columns, keys), as_of=SnapshotId(snapshot_id))
    conformed = conform(rows, schema_to_pyarrow(written, include_field_ids=True))
    return project(conformed, schema_to_pyarrow(shown, include_field_ids=True))


def _where(columns: Sequence[tuple[str, str, str]], keys: Sequence[Mapping[str, Any]]) -> BooleanExpression:
    """The filter for the keys. Of a key of several columns it lets more through: rows are chosen by their digests."""
    where: BooleanExpression = AlwaysTrue()
    for column, kind, found in columns:
        values = {literal(_typed(kind, key[column])) for key in keys}
        where = And(where, In(term=Reference(found), literals=values))
    return where


def _typed(kind: str, value: Any) -> Any:
    return int(value) if kind in ("int", "long") else value if isinstance(value, bytes) else str(value)


def _head(timeline: Timeline, index: int | None) -> SignedHead:
    """The published checkpoint, which witnesses have cosigned; the newest for an index that is not published yet."""
    head = timeline.published_head()
    return head if index is None or index < head.checkpoint.size else timeline.head()


def _cut(source: StoredSource, size: int, index: int | None, time_ms: int | None) -> int:
    """The index to prove the row at, which ends a batch."""
    if index is not None and time_ms is not None:
        raise Invalid("give an index or a time to prove the row at, and not both")
    if time_ms is not None:
        cut = source.last_at(time_ms, size)
        if cut < 0:
            raise NotFound("nothing was in the timeline at that time")
        return cut
    cut = size - 1 if index is None else index
    if not 0 <= cut < size:
        raise NotFound(f"the timeline has {size} leaves: there is no index {cut}")
    if (end := source.last_batch_end(cut, size)) != cut:
        last = source.last_at(Leaf.decode(source.entry(cut, size)).sequenced_ms, size)
        ends = f"index {end} or {last}" if end >= 0 else f"index {last}"
        raise Invalid(f"index {cut} is in the middle of a batch, which was sequenced at one time: ask for {ends}")
    return cut


def _table_at(source: StoredSource, table: str, cut: int, size: int) -> tuple[Leaf, TableEntry, tuple[bytes, ...]]:
    leaf = Leaf.decode(source.entry(cut, size))
    if leaf.map_root is None:
        raise Unverified(f"leaf {cut} of the timeline ends a batch, but has no map of tables")
    value, proof = source.map_proof(leaf.map_root, table_key(table), cut, size)
    if value is None:
        raise NotFound(f"there was no table {table} at that point of the timeline", subject=table)
    return leaf, TableEntry.decode(value), proof.siblings


def _state_at(source: StoredSource, table: str, entry: TableEntry, cut: int) -> tuple[StateMap, StateDescription]:
    """The state map of the table at the cut; Invalid, with the reason, if its leaf has none."""
    if entry.state_root is None:
        missing = None
        if entry.main_index is not None:
            missing = Leaf.decode(source.entry(entry.main_index, cut + 1)).state_missing
        reason = _REASONS.get(missing or "", "the table has no key: set one with its identifier fields")
        raise Invalid(f"rows of {table} cannot be proven at index {cut}: {reason}", subject=table)
    (record,) = source.state_nodes([root_address(bytes.fromhex(entry.state_root))])
    if not record:
        raise Unverified(f"the timeline's database has lost a state of {table}", subject=table)
    return StateMap.decode(record), StateDescription.decode(record[RECORD_SIZE:])


_REASONS = {
    "size": "the table was too large for a state map; set its property strandline.state-map to a number of rows",
    "unreadable": "its rows could not be read then: equality deletes, or files that were gone",
    "duplicate-key": "two rows had one key: delete one of them",
    "off": "its state map is off (strandline.state-map)",
}


def _digest(table: str, description: StateDescription, key: Mapping[str, Any]) -> bytes:
    names = description.key_names
    if set(key) != set(names):
        raise Invalid(f"the key of {table} is ({', '.join(names)}), not ({', '.join(key)})", subject=table)
    try:
        return key_digest(description.key, [key[name] for name in names])
    except ValueError as error:
        raise Invalid(str(error), subject=table) from None
