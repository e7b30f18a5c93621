"""Forgeries of an honest feed: mutations of its leaves, change sets, proofs, heads and bytes.

A forger without the signing key changes what is sent. A forger with the key also signs other leaves in a log of his
own. Each mutation either leaves what a reader learns from the feed as it was, or must be refused.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from catalog.changes import ChangeSet, to_json_lines
from catalog.changes.change_set import Evidence, PartialProof
from catalog.merkle import proof as proof_file
from tests.worlds.forged_log import ForgedLog, ForgedTable, rows


@dataclass
class Material:
    """An honest feed, and what a forger has at hand: other tables' feeds, other trees, older checkpoints."""

    chance: random.Random
    log: ForgedLog = field(default_factory=ForgedLog)
    table: ForgedTable = field(init=False)
    other: ForgedTable = field(init=False)
    feed: list[ChangeSet] = field(init=False)
    foreign: list[ChangeSet] = field(init=False)
    elsewhere: ForgedLog = field(init=False)
    lessons: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.table = ForgedTable(self.log)
        self.other = ForgedTable(self.log, name="sales.refunds", uuid="b-uuid")
        states: list[dict[Any, Any]] = [rows(("DE", 1), ("FR", 1))]
        for number in range(1, 5):
            keys = [(self.chance.choice(["DE", "FR", "IT"]), self.chance.randrange(6)) for _ in range(5)]
            states.append(rows(*dict.fromkeys(keys), cents=number))
        for number, state in enumerate(states):
            self.table.commit(state)
            self.other.commit(states[-number - 1])
            if number % 2:
                self.table.leaf("tag", ref=f"v{number}", parent_id=None)
        self.feed, self.foreign = self.table.feed(), self.other.feed()
        self.elsewhere = self.log.fork(len(self.log.entries) - 1)
        self.elsewhere.append(b'{"instead":"of the last"}')
        self.lessons = learned(self.feed)


Forged = list[ChangeSet]
Mutation = Callable[[Material, Forged, random.Random], None]


def learned(feed: Forged) -> list[Any]:
    """All that a reader takes from a feed: each change with its commit, and the order of the commits."""
    lessons: list[Any] = []
    for one in feed:
        commit = one.commit
        header = (commit.table, commit.table_uuid, commit.snapshot_id, commit.parent_id, commit.committed_ms)
        shown = one.part.keys if one.part is not None else None
        lessons.append((*header, commit.index, commit.sequence, one.key, shown, len(one) == one.count))
        lessons.append(list(to_json_lines(replace(one, evidence=None, part=None)))[1:])
    return lessons


# Commits: dropped, repeated, swapped, taken from elsewhere.


def drop_commit(material: Material, feed: Forged, chance: random.Random) -> None:
    del feed[chance.randrange(len(feed) - 1)]


def repeat_commit(material: Material, feed: Forged, chance: random.Random) -> None:
    feed.insert(chance.randrange(len(feed) + 1), chance.choice(feed))


def swap_commits(material: Material, feed: Forged, chance: random.Random) -> None:
    a, b = chance.sample(range(len(feed)), 2)
    feed[a], feed[b] = feed[b], feed[a]


def splice_commit(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    feed[at] = chance.choice(material.foreign)


def splice_rest(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(1, len(feed))
    feed[at:] = material.foreign[at:]


def relabel(material: Material, feed: Forged, chance: random.Random) -> None:
    name, uuid = feed[0].commit.table, feed[0].commit.table_uuid
    feed[:] = [replace(one, commit=replace(one.commit, table=name, table_uuid=uuid)) for one in material.foreign]


def cut_tail(material: Material, feed: Forged, chance: random.Random) -> None:
    """The caller expects the last commit (`until`)."""
    del feed[chance.randrange(1, len(feed)) :]


OF_COMMITS: list[Mutation] = [drop_commit, repeat_commit, swap_commits, splice_commit, splice_rest, relabel, cut_tail]


# One change set: its header, its rows, its key, its completeness.


def _change(feed: Forged, at: int, **fields: Any) -> None:
    feed[at] = replace(feed[at], **fields)


def renumber(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    name = chance.choice(["index", "sequence", "snapshot_id", "parent_id", "committed_ms"])
    value = (getattr(feed[at].commit, name) or 0) + chance.choice([-1, 1, 2**40])
    _change(feed, at, commit=replace(feed[at].commit, **{name: value}))


def swap_headers(material: Material, feed: Forged, chance: random.Random) -> None:
    a, b = chance.sample(range(len(feed)), 2)
    feed[a], feed[b] = replace(feed[a], commit=feed[b].commit), replace(feed[b], commit=feed[a].commit)


def swap_changes(material: Material, feed: Forged, chance: random.Random) -> None:
    a, b = chance.sample(range(len(feed)), 2)
    names = ("changes", "root", "count")[: chance.choice([1, 3])]
    taken = {name: getattr(feed[b], name) for name in names}
    _change(feed, a, **taken)


def alter_row(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    lines = feed[at].changes.to_pylist()
    if not lines:
        return
    line = chance.choice(lines)
    side = chance.choice([name for name in ("before", "after") if line[name]])
    match chance.randrange(6):
        case 0:
            line[side]["region"] = chance.choice(["DE", "FR", "XX", None])
        case 1:
            line[side]["id"] = chance.randrange(10)
        case 2:
            line[side]["ratio"] = chance.choice([0.0, -0.0, float("nan"), 1.5])
        case 3:
            line["op"] = chance.choice(["INSERT", "UPDATE", "DELETE"])
        case 4:
            line["before"], line["after"] = line["after"], line["before"]
        case 5:
            lines.remove(line)
    _change(feed, at, changes=pa.Table.from_pylist(lines, schema=feed[at].changes.schema))


def reorder_rows(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    order = chance.sample(range(len(feed[at])), len(feed[at]))
    _change(feed, at, changes=feed[at].changes.take(pa.array(order, pa.int64())))


def other_key(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    _change(feed, at, key=chance.choice([("id", "region"), ("id",), ("region",), (), ("region", "id", "at")]))


def pass_part_for_whole(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    kept = sorted(chance.sample(range(len(feed[at])), chance.randrange(len(feed[at]))))
    part = feed[at].select(kept)
    feed[at] = part if chance.random() < 0.5 else replace(part, part=None)


def false_range(material: Material, feed: Forged, chance: random.Random) -> None:
    """A key range, of which the forger removes, moves or widens something."""
    at = chance.randrange(len(feed))
    low, high = sorted((chance.choice(["DE", "FR", "IT"]), chance.randrange(6)) for _ in range(2))
    shown = feed[at].between(low, high)
    part = shown.part
    assert part is not None
    match chance.randrange(5):
        case 0 if len(shown):
            shown = replace(shown, changes=shown.changes.slice(1))
        case 1 if part.indices:
            moved = tuple(index + chance.choice([-1, 1]) for index in part.indices)
            shown = replace(shown, part=replace(part, indices=moved))
        case 2:
            shown = replace(shown, part=replace(part, left=part.right, right=part.left))
        case 3 if part.proof:
            shown = replace(shown, part=replace(part, proof=part.proof[1:]))
        case _:
            shown = replace(shown, part=PartialProof((), (), part.keys), changes=shown.changes.slice(0, 0))
    feed[at] = shown


OF_SETS: list[Mutation] = [
    renumber,
    swap_headers,
    swap_changes,
    alter_row,
    reorder_rows,
    other_key,
    pass_part_for_whole,
    false_range,
]


# Evidence: leaves, proofs, checkpoints.


def _evidence(feed: Forged, at: int, **fields: Any) -> None:
    evidence = feed[at].evidence
    assert evidence is not None
    _change(feed, at, evidence=replace(evidence, **fields))


def flip_bit(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return b"\x01"
    changed = bytearray(data)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def flip_evidence(material: Material, feed: Forged, chance: random.Random) -> None:
    at, name = chance.randrange(len(feed)), chance.choice(["leaf", "proof"])
    _evidence(feed, at, **{name: flip_bit(getattr(feed[at].evidence, name), chance)})


def swap_evidence(material: Material, feed: Forged, chance: random.Random) -> None:
    a, b = chance.sample(range(len(feed)), 2)
    name = chance.choice(["leaf", "proof", "passed"])
    _evidence(feed, a, **{name: getattr(feed[b].evidence, name)})


def drop_evidence(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    match chance.randrange(3):
        case 0:
            _change(feed, at, evidence=None)
        case 1:
            _evidence(feed, at, passed=())
        case 2:
            _change(feed, at, schema_json=None)


def hide_commit(material: Material, feed: Forged, chance: random.Random) -> None:
    """A commit's leaf among those that change nothing, without its changes."""
    at = chance.randrange(len(feed) - 1)
    gone, after = feed[at].evidence, feed[at + 1].evidence
    assert isinstance(gone, Evidence) and isinstance(after, Evidence)
    passed = (*gone.passed, (gone.leaf, gone.proof), *after.passed)
    feed[at : at + 2] = [replace(feed[at + 1], evidence=replace(after, passed=passed))]


def from_another_tree(material: Material, feed: Forged, chance: random.Random) -> None:
    """The same leaves, proven against another checkpoint that the same key signed."""
    at = chance.randrange(len(feed) - 1)  # the last leaf is not in the other tree
    forged = material.table.shown(at, log=material.elsewhere)
    evidence = forged.evidence
    assert evidence is not None
    if chance.random() < 0.5:
        size = len(material.log.entries)
        evidence = replace(evidence, consistency=(size, material.log.consistency(chance.randrange(1, size))))
    feed[at] = replace(forged, evidence=evidence)


def from_an_older_tree(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(1, len(feed) - 1)
    index = feed[at].commit.index
    assert index is not None
    feed[at] = material.table.shown(at, chance.randrange(index + 1, len(material.log.entries)))


def move_proof(material: Material, feed: Forged, chance: random.Random) -> None:
    at = chance.randrange(len(feed))
    evidence = feed[at].evidence
    assert evidence is not None
    parsed = proof_file.read(evidence.proof)
    match chance.randrange(3):
        case 0:
            parsed = replace(parsed, index=chance.randrange(len(material.log.entries)))
        case 1:
            parsed = replace(parsed, hashes=parsed.hashes[::-1])
        case 2:
            parsed = replace(parsed, hashes=parsed.hashes[1:])
    _evidence(feed, at, proof=proof_file.write(parsed))


OF_EVIDENCE: list[Mutation] = [
    flip_evidence,
    swap_evidence,
    drop_evidence,
    hide_commit,
    from_another_tree,
    from_an_older_tree,
    move_proof,
]


# Signed leaves: the forger has the key, and fills a log of his own. The feed is that of the forged log.


def forge_leaf(material: Material, feed: Forged, chance: random.Random) -> None:
    """One leaf says something else, and the log is signed over it."""
    log = ForgedLog(material.log.signer, list(material.log.entries))
    changes = [index for _, index, _ in material.table.sets]
    passed = [index for _, _, between in material.table.sets for index in between]
    at = chance.choice([*changes, *passed])
    record = json.loads(log.entries[at])
    match chance.randrange(9):
        case 0:
            record["parent_id"] = chance.choice([None, "7", str(chance.randrange(1000, 1020))])
        case 1:
            if at != changes[-1]:  # of the last commit, the snapshot is whatever the signer says
                record["snapshot_id"] = chance.choice(["7", str(chance.randrange(1000, 1020))])
        case 2:
            record["sequence"] += chance.choice([-1, 1])
        case 3:
            record["ref"] = chance.choice(["MAIN", "Main", None, "other", "main", "mainline"])
        case 4:
            record["operation"] = chance.choice(["metadata", "schema", "drop", "rename", "append", "tag", "create"])
        case 5:
            record["table_uuid"] = "b-uuid"
        case 6:
            record["table"] = "sales.refunds"
        case 7:
            record["changes_root"], record["changes_count"] = chance.choice([(None, None), ("00" * 32, 2)])
        case 8:
            record["schema_sha256"] = chance.choice([None, "00" * 32])
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if chance.random() < 0.1:
        text = text.replace('"ref":', '"ref":"main","ref":')
    log.entries[at] = text.encode()
    forged = [material.table.shown(number, log=log) for number in range(len(material.table.sets))]
    feed[:] = [_as_leaf_says(one) if chance.random() < 0.8 else one for one in forged]


def _as_leaf_says(one: ChangeSet) -> ChangeSet:
    """The change set with the header of its leaf: a forger makes the two agree."""
    assert one.evidence is not None
    try:
        record = json.loads(one.evidence.leaf)
        header = replace(
            one.commit,
            table=record["table"],
            table_uuid=record["table_uuid"],
            snapshot_id=int(record["snapshot_id"]),
            parent_id=None if record["parent_id"] is None else int(record["parent_id"]),
            sequence=record["sequence"],
        )
    except (ValueError, TypeError):
        return one
    return replace(one, commit=header)


def forge_changes(material: Material, feed: Forged, chance: random.Random) -> None:
    """The last commit's changes are not in canonical form, and the log is signed over the root that they have."""
    honest, at, _ = material.table.sets[-1]
    lines = honest.changes.to_pylist()
    match chance.randrange(3):
        case 0:
            a, b = chance.sample(range(len(lines)), 2)
            lines[a], lines[b] = lines[b], lines[a]
        case 1:
            line = chance.choice(lines)
            row = line["after"] or line["before"]
            line |= {"op": "UPDATE", "before": row | {"id": row["id"] + 1}, "after": row}
        case 2:
            line = chance.choice(lines)
            row = line["after"] or line["before"]
            line |= {"op": "UPDATE", "before": row, "after": row}
    forged = ChangeSet.of(honest.commit, honest.schema, honest.key, pa.Table.from_pylist(lines, honest.changes.schema))
    log = ForgedLog(material.log.signer, list(material.log.entries))
    record = json.loads(log.entries[at]) | {"changes_root": forged.root.hex(), "changes_count": forged.count}
    log.entries[at] = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    feed[:] = [material.table.shown(number, log=log) for number in range(len(material.table.sets))]
    evidence = feed[-1].evidence
    feed[-1] = replace(forged, schema_json=honest.schema_json, commit=feed[-1].commit, evidence=evidence)


MUTATIONS = [*OF_COMMITS, *OF_SETS, *OF_EVIDENCE]


def differs(forged: Forged, material: Material) -> bool:
    """Whether it says, or rests on, anything else than the honest feed."""
    shown = [one.evidence for one in forged] != [one.evidence for one in material.feed]
    return shown or learned(forged) != material.lessons
