"""Checks a change set offline: with the timeline's public key, or with a commit's leaf that is already
trusted.

Needs pyarrow, catalog.merkle and this package; asks nobody. Raises Unverified, which names what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from catalog.changes import hashing, tags
from catalog.changes.digest import check_key, key_digests
from catalog.changes.encoding import field_id
from catalog.changes.feed import ChangeSet, KeyRange, Neighbour, Part, key_values, rank
from catalog.changes.records import RECORD_SIZE, changes_schema, key_columns, leaf_hashes, records
from catalog.errors import LakeError, Unverified
from catalog.merkle import proof as proof_file
from catalog.merkle.note import VerifierKey
from catalog.merkle.tree import leaf_hash
from catalog.merkle.verify import ProofError, verify_batch

LEAF_FORMAT = "strandline/commit@v1"


class CommitLeaf(Protocol):
    """What a leaf of the timeline says of a commit, as far as a change set is concerned."""

    @property
    def table_uuid(self) -> str: ...
    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def parent_id(self) -> int | None: ...
    @property
    def committed_ms(self) -> int: ...
    @property
    def schema_sha256(self) -> str | None: ...
    @property
    def changes_root(self) -> str | None: ...
    @property
    def changes_count(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf as read from its bytes, without the timeline's own code."""

    table_uuid: str
    snapshot_id: int | None
    parent_id: int | None
    committed_ms: int
    schema_sha256: str | None
    changes_root: str | None
    changes_count: int | None
    sequence: int
    operation: str
    ref: str | None

    @property
    def moves_rows(self) -> bool:
        return self.ref == "main" and self.operation not in _KEEPS_ROWS


_KEEPS_ROWS = frozenset({"create", "rename", "drop", "tag", "unref", "schema", "metadata"})
"""Operations after which main shows the rows it showed before. Of any other, a feed must say what it changed."""


def verify(changes: ChangeSet, keys: VerifierKey | Iterable[VerifierKey], *, origin: str | None = None) -> None:
    """The changes are exactly what a commit in the signed timeline says, none left out, added, altered or
    moved.

    Of a part: each change is one of the commit's, at its place, and for a key range there is no other. The
    set carries its evidence (leaf and proof file). Costs the digests of its rows; no requests.
    """
    if changes.evidence is None:
        raise Unverified(f"the changes of {_name(changes)} carry no evidence: ask for the feed with proofs")
    known = [keys] if isinstance(keys, VerifierKey) else list(keys)
    try:
        shown = proof_file.verify(changes.evidence.proof, changes.evidence.leaf, known, origin=origin)
    except ProofError as error:
        raise Unverified(f"the leaf of {_name(changes)} is not in the signed timeline: {error}") from None
    if changes.commit.index != shown.index:
        raise Unverified(f"{_name(changes)} is leaf {shown.index} of the timeline, not {changes.commit.index}")
    leaf = _parse_leaf(changes.evidence.leaf)
    if changes.commit.sequence not in (None, leaf.sequence):
        raise Unverified(f"{_name(changes)} is leaf {leaf.sequence} of its table, not {changes.commit.sequence}")
    verify_leaf(changes, leaf)


def verify_feed(
    feed: Iterable[ChangeSet],
    keys: VerifierKey | Iterable[VerifierKey],
    *,
    since: int | None = None,
    until: int | None = None,
    origin: str | None = None,
) -> int | None:
    """Each change set holds, and no commit of the table is left out, repeated or out of its order.

    `since` is the table's sequence number after which the feed begins (None: with the table's first leaf), `until`
    one that it must reach. Gives the number it reached, `since` if it is empty. What came after that is not the
    feed's to say: compare with a newer one, or with the event that announced the commit. Holds one change set.
    """
    known = [keys] if isinstance(keys, VerifierKey) else list(keys)
    reached, last_index, uuid = -1 if since is None else since, -1, None
    for changes in feed:
        verify(changes, known, origin=origin)
        assert changes.evidence is not None
        own = (changes.evidence.leaf, changes.evidence.proof)
        for data, proof in (*changes.evidence.passed, own):
            try:
                index = proof_file.verify(proof, data, known, origin=origin).index
            except ProofError as error:
                raise Unverified(f"a leaf before {_name(changes)} is not in the signed timeline: {error}") from None
            leaf = _parse_leaf(data)
            if leaf.table_uuid != (uuid or leaf.table_uuid):
                raise Unverified(f"{_name(changes)} is of another table than the change sets before it")
            if leaf.sequence != reached + 1 or index <= last_index:
                raise Unverified(
                    f"{_name(changes)}: the feed goes on with leaf {leaf.sequence} of its table after leaf {reached}: "
                    "a commit was left out, repeated or moved"
                )
            if leaf.moves_rows != (data is own[0]):
                what = "it is passed over, though it may change rows" if leaf.moves_rows else "it changes no rows"
                raise Unverified(f"{_name(changes)}: leaf {leaf.sequence} of its table is out of place: {what}")
            uuid, reached, last_index = leaf.table_uuid, leaf.sequence, index
    if until is not None and reached < until:
        raise Unverified(f"the feed ends with leaf {reached} of its table, and should reach {until}")
    return since if reached < 0 else reached


def verify_leaf(changes: ChangeSet, leaf: CommitLeaf) -> None:
    """The changes are those of the commit that this leaf, which the caller trusts, stands for."""
    commit, subject = changes.commit, _name(changes)
    if leaf.changes_root is None or leaf.changes_count is None:
        raise Unverified(f"the leaf of {subject} has no changes_root: its changes were never computed")
    claims: list[tuple[str, Any, Any]] = [
        ("table", commit.table_uuid, leaf.table_uuid),
        ("snapshot", commit.snapshot_id, leaf.snapshot_id),
        ("parent", commit.parent_id, leaf.parent_id),
        ("time", commit.committed_ms, leaf.committed_ms),
        ("changes_root", changes.root.hex(), leaf.changes_root),
        ("changes_count", changes.count, leaf.changes_count),
    ]
    for what, said, true in claims:
        if said != true:
            raise Unverified(f"{subject}: its {what} is {true} in the timeline, and {said} in the feed")
    if leaf.schema_sha256 is not None:
        _verify_schema(changes, leaf.schema_sha256)
    verify_root(changes)


def verify_root(changes: ChangeSet) -> None:
    """The changes lead to the change set's own root and count. Says nothing of where those come from."""
    subject = _name(changes)
    if not changes.changes.schema.equals(changes_schema(changes.schema), check_metadata=True):
        raise Unverified(f"{subject}: the feed's columns are not op, before and after of its schema")
    try:
        check_key(changes.schema, changes.key)
        block = records(changes.changes, changes.key)
        if changes.part is not None:
            _verify_part(changes, changes.part, block)
            return
    except ProofError as error:
        raise Unverified(f"{subject}: {error}") from None
    except LakeError as error:
        raise Unverified(f"{subject}: {error.message}") from None
    computed = hashing.root(leaf_hashes(block))
    if len(block) != changes.count or computed != changes.root:
        raise Unverified(
            f"{subject}: its {len(block)} changes have the root {computed.hex()}; the commit has {changes.count} "
            f"with the root {changes.root.hex()}. A change was dropped, altered, repeated or moved"
        )


def _verify_part(changes: ChangeSet, part: Part, block: hashing.Hashes) -> None:
    """Rows, with the neighbours around them, are the leaves that the part says they are."""
    shown = [value.tobytes() for value in leaf_hashes(block)]
    if part.keys is not None:
        try:
            _verify_range(changes, part, part.keys)
        except TypeError:
            raise Unverified("the bounds of the key range are no values of the key's columns") from None
        left, right = (_neighbour_hashes(changes, neighbour) for neighbour in (part.left, part.right))
        shown = [*left, *shown, *right]
    elif part.left is not None or part.right is not None:
        raise Unverified("the feed has neighbours, but no key range that they stand next to")
    if len(part.indices) != len(shown):
        raise Unverified(f"{len(shown)} changes are shown, at {len(part.indices)} places")
    if shown:
        verify_batch(shown, part.indices, changes.count, part.proof, changes.root)
    elif part.proof:
        raise Unverified("the proof has hashes, but is about no change")


def _verify_range(changes: ChangeSet, part: Part, keys: KeyRange) -> None:
    """The rows are in the range and in order, the neighbours outside of it, and all stand side by side."""
    found = key_values(key_columns(changes.changes, changes.key))
    if any(key not in keys for key in found):
        raise Unverified("a change is outside of the key range that the feed claims to show")
    if any(rank(a) > rank(b) for a, b in pairwise(found)):
        raise Unverified("the changes of the key range are not in the order of their keys")
    if part.left is not None and not keys.is_before(key_values(part.left.key)[0]):
        raise Unverified("the left neighbour is not before the key range: a change may have been left out")
    if part.right is not None and not keys.is_after(key_values(part.right.key)[0]):
        raise Unverified("the right neighbour is not after the key range: a change may have been left out")
    first, behind = (part.indices[0], part.indices[-1] + 1) if part.indices else (0, 0)
    if list(part.indices) != list(range(first, behind)):
        raise Unverified("the changes of a key range stand side by side, and these do not")
    if part.left is None and first != 0:
        raise Unverified("the feed has no left neighbour: changes of the range may have been left out before it")
    if part.right is None and behind != changes.count:
        raise Unverified("the feed has no right neighbour: changes of the range may have been left out behind it")


def _neighbour_hashes(changes: ChangeSet, neighbour: Neighbour | None) -> list[bytes]:
    """The neighbour's leaf hash, having checked that the key it shows is the one in its record."""
    if neighbour is None:
        return []
    wanted = pa.schema([changes.schema.field(name) for name in changes.key])
    if len(neighbour.record) != RECORD_SIZE or len(neighbour.key) != 1:
        raise Unverified("a neighbour of the key range is not one record with its key")
    if not neighbour.key.schema.equals(wanted, check_metadata=True):
        raise Unverified("a neighbour of the key range has other key columns than the feed")
    if key_digests(neighbour.key, changes.key)[0].tobytes() != neighbour.record[1:33]:
        raise Unverified("a neighbour of the key range shows another key than its record has")
    return [leaf_hash(neighbour.record)]


def _verify_schema(changes: ChangeSet, schema_sha256: str) -> None:
    """The feed's columns have the names and ids of the commit's schema."""
    if changes.schema_json is None:
        raise Unverified(f"{_name(changes)}: the feed lacks the table's schema, so nothing vouches for its names")
    if sha256(changes.schema_json).hexdigest() != schema_sha256:
        raise Unverified(f"{_name(changes)}: the schema in the feed is not the one that was committed")
    if _shape_of_json(json.loads(changes.schema_json)) != _shape(changes.schema):
        raise Unverified(f"{_name(changes)}: the feed's columns are not those of the schema that was committed")


def _shape(fields: Any) -> dict[int, tuple[str, Any]]:
    """Names and nesting by field id, of an Arrow schema or struct type."""
    return {field_id(field): (field.name, _inner(field.type)) for field in fields}


def _inner(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return _shape(kind)
    if pa.types.is_map(kind):
        return _inner(kind.key_type), _inner(kind.item_type)
    return [_inner(kind.value_type)] if tags.is_list(kind) else None


def _shape_of_json(struct: Any) -> dict[int, tuple[str, Any]]:
    """The same, of an Iceberg schema."""
    return {field["id"]: (field["name"], _inner_of_json(field["type"])) for field in struct["fields"]}


def _inner_of_json(kind: Any) -> Any:
    match kind:
        case {"type": "struct"}:
            return _shape_of_json(kind)
        case {"type": "map"}:
            return _inner_of_json(kind["key"]), _inner_of_json(kind["value"])
        case {"type": "list"}:
            return [_inner_of_json(kind["element"])]
    return None


def _parse_leaf(data: bytes) -> _Leaf:
    """A leaf's bytes, which the proof has shown to be in the timeline, so their form is the sequencer's."""
    try:
        found = json.loads(data)
        if found["format"] != LEAF_FORMAT:
            raise ValueError(f"its format is {found['format']!r}")
        values = {field.name: found[field.name] for field in fields(_Leaf)}
        for name in ("snapshot_id", "parent_id"):
            values[name] = None if values[name] is None else int(values[name])
        return _Leaf(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise Unverified(f"the evidence is not the leaf of a commit: {data[:80]!r} ({error})") from None


def _name(changes: ChangeSet) -> str:
    return f"snapshot {changes.commit.snapshot_id} of {changes.commit.table}"
