"""The offline verifier of proof files, checkpoints and change feeds. It does not trust the lake that made them.

The expected key, table, uuid and range come from the caller, never from the data under verification. Sends no request.
Data that fails a check raises `Unverified`; a caller's mistake raises `Invalid`.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from catalog.merkle.checkpoint import Checkpoint as LogCheckpoint
from catalog.merkle.proof import read as read_proof
from catalog.merkle.proof import verify as verify_proof
from catalog.merkle.verify import ProofError, verify_consistency
from strandline.as_of import VerifiedTable, as_of
from strandline.errors import Invalid, MissingDependency, Unverified
from strandline.row_proofs import VerifiedAnswer, VerifiedRow, answer, row
from strandline.trust import Checkpoint, ProofData, checkpoint, parse_commit, read_source, trust_in

if TYPE_CHECKING:
    from catalog.changes import ChangeSet as CheckedSet
    from catalog.changes import ParsedLeaf
    from strandline.changes import ChangeSet

__all__ = [
    "Checkpoint",
    "VerifiedAnswer",
    "VerifiedCommit",
    "VerifiedFeed",
    "VerifiedRow",
    "VerifiedTable",
    "answer",
    "as_of",
    "checkpoint",
    "consistency",
    "feed",
    "proof",
    "row",
]


@dataclass(frozen=True, slots=True)
class VerifiedCommit:
    """What a proof shows: this commit of this table is leaf `index` of the log at this checkpoint.

    >>> proof = lake.prove(tides.history().rows()[-1])
    >>> commit = strandline.verify.proof(proof, key=key, table="silver.tides", uuid=tides.uuid)
    >>> commit.operation, commit.sequence
    ('append', 1)
    """

    index: int
    checkpoint: Checkpoint
    table: str
    table_uuid: str
    snapshot_id: int | None
    sequence: int
    operation: str
    committed_ms: int
    sequenced_ms: int
    entry: bytes


@dataclass(frozen=True, slots=True)
class VerifiedFeed:
    """What a feed shows: every change of the table after its commit `since` up to its commit `reached`.

    >>> feed = strandline.verify.feed(tides.changes(), key=key, table="silver.tides", uuid=tides.uuid)
    >>> feed.commits, feed.changes, feed.reached
    (1, 2, 1)
    """

    table_uuid: str
    since: int
    reached: int
    commits: int
    changes: int


def proof(
    file: bytes | str | os.PathLike[str] | ProofData,
    *,
    key: str | Iterable[str] | None = None,
    table: str | Iterable[str],
    uuid: str,
    entry: bytes | None = None,
    origin: str | None = None,
    policy: bytes | str | os.PathLike[str] | None = None,
) -> VerifiedCommit:
    """Checks a c2sp.org/tlog-proof@v1 file: that a commit of this table is in the log of this key.

    `file`: its path, its bytes, or the result of `lake.prove`. `key`: the log's verifier key `name+id+base64`, or
    several. `table`: its name, or the names it has had. `uuid`: the table uuid, since a name can be reused. `entry`:
    the leaf, if the file does not include it. `origin`: the log's name; by default the name in the key. `policy`: the
    path or bytes of a c2sp.org/tlog-policy file in place of the key: it says which witnesses must have cosigned.

    >>> proof = lake.prove(tides.history().rows()[0])
    >>> strandline.verify.proof(proof, key=key, table="silver.tides", uuid=tides.uuid).operation
    'create'
    >>> strandline.verify.proof(proof, key=key, table="silver.ebbs", uuid=tides.uuid)
    Traceback (most recent call last):
    ...
    strandline.errors.Unverified: the commit is of the table silver.tides, not of silver.ebbs
    """
    data, names = read_source(file), _names(table)
    keys, trusted = trust_in(key, policy)
    try:
        leaf = entry if entry is not None else read_proof(data).extra
        if not leaf:
            raise Invalid("the proof file does not include the leaf: pass it as entry=")
        verified = verify_proof(data, leaf, keys, origin=origin, policy=trusted)
    except ProofError as error:
        raise Unverified(str(error)) from None
    head, commit = verified.checkpoint, parse_commit(leaf)
    _check_table(commit, names, uuid)
    return VerifiedCommit(
        index=verified.index,
        checkpoint=Checkpoint(head.origin, head.size, head.root),
        table=commit.table,
        table_uuid=commit.table_uuid,
        snapshot_id=commit.snapshot_id,
        sequence=commit.sequence,
        operation=commit.operation,
        committed_ms=commit.committed_ms,
        sequenced_ms=commit.sequenced_ms,
        entry=leaf,
    )


def consistency(
    old: bytes,
    new: bytes | str,
    hashes: Sequence[bytes | str],
    *,
    key: str | Iterable[str] | None = None,
    origin: str | None = None,
    policy: bytes | str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """Checks that the new checkpoint's tree extends the old one's: history only grew.

    `old`: the checkpoint that you kept. `new` and `hashes` (bytes, or base64): from `lake.consistency`. With a policy,
    both checkpoints must meet it.

    >>> old = lake.checkpoint()
    >>> proof = lake.consistency(strandline.verify.checkpoint(old, key=key).size)
    >>> new = strandline.verify.consistency(old, proof["new_checkpoint"], proof["hashes"], key=key)
    >>> new.size >= strandline.verify.checkpoint(old, key=key).size
    True
    """
    first = checkpoint(old, key=key, origin=origin, policy=policy)
    second = checkpoint(new.encode() if isinstance(new, str) else new, key=key, origin=origin, policy=policy)
    if first.origin != second.origin:
        raise Unverified(f"the checkpoints are of two different logs, {first.origin} and {second.origin}")
    try:
        path = [b64decode(hash_, validate=True) if isinstance(hash_, str) else hash_ for hash_ in hashes]
        verify_consistency(first.size, second.size, path, first.root, second.root)
    except (ProofError, ValueError) as error:
        raise Unverified(str(error)) from None
    return second


def feed(
    source: str | os.PathLike[str] | Iterable[ChangeSet],
    *,
    key: str | Iterable[str] | None = None,
    table: str | Iterable[str],
    uuid: str,
    since: int = -1,
    until: int | None = None,
    partial: bool = False,
    origin: str | None = None,
    policy: bytes | str | os.PathLike[str] | None = None,
    kept: bytes | str | os.PathLike[str] | None = None,
    demand: Literal["lake", "writer"] = "lake",
) -> VerifiedFeed:
    """Checks a change feed: no change and no commit of the table is missing, altered, repeated or reordered.

    `source`: a feed file (`strandline changes --out`), or the result of `table.changes()`. `since`: the sequence number
    of the commit after which the feed must begin; -1 means that it begins with the table's first commit. `until`: the
    commit that it must reach. A feed proves nothing about commits after `reached`. `partial`: allow commits of which
    only some changes are included. `policy`: as in `proof`; every checkpoint in the feed must meet it. `kept`: a
    checkpoint that you kept (`lake.checkpoint()`); the feed must be in a log that extends it, so request it with
    `table.changes(kept=…)`. `demand`: who must have computed the root of each commit's changes. The lake computes it
    from the files, except for very large commits: with "writer", their writers are believed. Needs numpy:
    `pip install 'strandline[verify]'`.

    >>> strandline.verify.feed(tides.changes(), key=key, table="silver.tides", uuid=tides.uuid, until=1).changes
    2
    """
    names = _names(table)
    keys, trusted = trust_in(key, policy)
    try:
        from catalog import LakeError
        from catalog.changes import verify_feed
    except ImportError as error:
        message = f"verifying a change feed needs {error.name}: pip install 'strandline[verify]'"
        raise MissingDependency(message) from None
    old = None if kept is None else checkpoint(kept, key=key, origin=origin, policy=policy)
    sizes: list[int] = []
    try:
        reached = verify_feed(
            _checked_sets(source, names, uuid, partial, sizes),
            keys,
            table_uuid=uuid,
            since=since,
            until=until,
            origin=origin,
            partial=partial,
            policy=trusted,
            kept=None if old is None else LogCheckpoint(old.origin, old.size, old.root),
            demand=demand,
        )
    except LakeError as error:
        raise (Invalid if error.kind.name == "invalid" else Unverified)(error.message) from None
    if not sizes:
        raise Unverified("the feed has no change set, so it proves nothing")
    assert reached is not None
    return VerifiedFeed(uuid, since, reached, len(sizes), sum(sizes))


def _checked_sets(
    source: Any, names: tuple[str, ...], uuid: str, partial: bool, sizes: list[int]
) -> Iterator[CheckedSet]:
    """The feed's change sets, each of the expected table. Adds the number of changes of each to `sizes`."""
    for changes in _change_sets(source):
        _check_set(changes, names, uuid, partial)
        sizes.append(len(changes))
        yield changes


def _change_sets(source: Any) -> Iterator[CheckedSet]:
    from catalog.changes import from_ipc
    from strandline.feed_files import read_sets

    if isinstance(source, (str, os.PathLike)):
        yield from read_sets(os.fspath(source))
        return
    for changes in source:
        yield from_ipc(changes.to_bytes())


def _check_set(changes: CheckedSet, names: tuple[str, ...], uuid: str, partial: bool) -> None:
    """Checks that the leaves are of the expected table. The feed verifier then checks that they are in the log."""
    if changes.part is not None and not partial:
        message = f"commit {changes.commit.index} has {changes.count} changes, the feed includes only {len(changes)}"
        raise Unverified(f"{message}: pass partial=True if that is intended")
    if changes.evidence is not None:
        for leaf in (changes.evidence.leaf, *(passed for passed, _ in changes.evidence.passed)):
            _check_table(parse_commit(leaf), names, uuid)


def _check_table(commit: ParsedLeaf, names: tuple[str, ...], uuid: str) -> None:
    if commit.table_uuid != uuid:
        raise Unverified(f"the commit is of the table with the uuid {commit.table_uuid}, not {uuid}")
    if commit.table not in names:
        raise Unverified(f"the commit is of the table {commit.table}, not of {' or '.join(names)}")


def _names(table: str | Iterable[str]) -> tuple[str, ...]:
    names = (table,) if isinstance(table, str) else tuple(table)
    if not names:
        raise Invalid("there is no table to expect: pass its name as table=")
    return names
