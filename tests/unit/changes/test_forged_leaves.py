"""Whoever holds the signing key can put any leaf into a tree: what contradicts the leaves before it is not believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from catalog.changes import FeedVerifier, verify_feed
from catalog.core.errors import Unverified
from catalog.merkle import Ed25519Signer
from tests.worlds.forged_log import NAME, SIGNER, UUID, ForgedLog, ForgedTable, encode, honest, rows

KEY = SIGNER.verifier_key


def table(**settings: Any) -> ForgedTable:
    """Created, and one commit of three rows."""
    made = ForgedTable(ForgedLog(), **settings)
    made.commit(rows(("DE", 1), ("DE", 2), ("FR", 1)))
    return made


def refuse(forged: Any, match: str, **expected: Any) -> None:
    with pytest.raises(Unverified, match=match):
        verify_feed(forged, KEY, **({"table_uuid": UUID} | expected))


def test_the_honest_feed_is_accepted() -> None:
    made = honest()
    assert verify_feed(made.feed(), KEY, table=NAME, table_uuid=UUID, until=5) == 5


@pytest.mark.parametrize("operation", ["metadata", "schema", "rename", "tag", "vectors", "unref"])
def test_a_leaf_without_changes_does_not_move_main(operation: str) -> None:
    """Main goes to another snapshot, and the feed has no change set of it."""
    made = table()
    for moved in ({"snapshot_id": 77}, {"snapshot_id": 77, "parent_id": 77}, {"snapshot_id": None}):
        forged = ForgedTable(made.log.fork(2), state=made.state, main=made.main, sequence=0)
        forged.sequence, forged.sets, forged.passed = made.sequence, list(made.sets), []
        forged.leaf(operation, **moved)
        forged.main = moved["snapshot_id"]
        forged.commit(rows(("DE", 9)))
        refuse(forged.feed(), "main|wrong position")


def test_a_commit_is_compared_with_where_main_was() -> None:
    made = table()
    made.commit(rows(("DE", 1)), parent_id=999)
    refuse(made.feed(), "compared with snapshot 999")


def test_a_commit_on_a_reference_that_reads_like_main_is_refused() -> None:
    for ref in ("MAIN", "Main", "ｍａｉｎ", " main"):
        made = table()
        made.leaf("append", ref=ref, snapshot_id=55)
        made.commit(rows(("DE", 1)))
        refuse(made.feed(), "main")
    made = table()
    made.leaf("append", ref="maintenance", snapshot_id=55)
    made.commit(rows(("DE", 1)))
    assert verify_feed(made.feed(), KEY, table_uuid=UUID) == 3


def test_of_two_leaves_with_one_number_a_feed_shows_one_and_goes_on_from_it() -> None:
    """Both are in the tree. Who has seen the first is not led on to the history that the second began."""
    made = table()
    first = made.feed()
    other = ForgedTable(made.log, sequence=made.sequence - 1)
    made.log.entries.pop()  # the leaf `create` of the second
    other.sequence, other.passed = 0, []
    other.commit(rows(("FR", 8)))  # leaf 1 of the table again, with other rows
    other.commit(rows(("FR", 8), ("FR", 9)))
    whole = made.feed()
    assert [json.loads(entry)["sequence"] for entry in made.log.entries] == [0, 1, 1, 2]
    refuse([*whole, *other.feed()], "left out, repeated or moved")
    refuse([*whole, other.feed()[1]], "compared with")
    # The first feed was verified earlier, and its state was kept.
    verifier = FeedVerifier([KEY], table_uuid=UUID)
    for one in first:
        verifier.add(one)
    later = other.feed()[1]
    with pytest.raises(Unverified, match="extends"):
        FeedVerifier([KEY], table_uuid=UUID, resume=verifier.state()).add(later)
    assert later.evidence is not None
    bridged = replace(later, evidence=replace(later.evidence, consistency=(2, made.log.consistency(2))))
    with pytest.raises(Unverified, match="compared with"):
        FeedVerifier([KEY], table_uuid=UUID, resume=verifier.state()).add(bridged)


def test_a_feed_does_not_come_from_two_trees() -> None:
    """The operator signs two trees, and takes each change set from the one that suits him."""
    made = table()
    made.leaf("tag", ref="v1", parent_id=None)
    fork = made.log.fork(2)  # without the tag
    other = ForgedTable(fork, state=made.state, main=made.main)
    fork.entries.pop()
    other.sequence, other.passed = made.sequence, []
    for forged in (made, other):
        forged.commit(rows(("DE", 1)))
        forged.log.append(b"{}")
        forged.commit(rows())
    assert verify_feed(made.feed(), KEY, table_uuid=UUID) == 4
    spliced = [made.shown(0), made.shown(1), other.shown(1)]
    refuse(spliced, "extends|follows")
    # The same leaves in both trees: only the checkpoints tell them apart.
    fork = made.log.fork(len(made.log.entries))
    for log in (made.log, fork):
        log.append(b"left" if log is made.log else b"right")
    spliced = [made.shown(0), made.shown(1, log=fork), made.shown(2)]
    refuse(spliced, "extends")
    refuse([made.shown(0), made.shown(1), made.shown(2, log=fork)], "extends")
    size = len(fork.entries)
    claimed = spliced[1].evidence
    assert claimed is not None
    for lie in (made.log.consistency(size), made.log.consistency(size - 1), ()):
        spliced[1] = replace(spliced[1], evidence=replace(claimed, consistency=(size, lie)))
        refuse(spliced, "extends")


def test_a_feed_grows_with_its_tree_if_each_step_is_proven() -> None:
    made = honest()
    sizes = [3, 6, 10]
    grown = [made.shown(number, size) for number, size in enumerate(sizes)]
    refuse(grown, "extends")
    for number in (1, 2):
        evidence = grown[number].evidence
        assert evidence is not None
        bridge = (sizes[number - 1], made.log.consistency(sizes[number - 1], sizes[number]))
        grown[number] = replace(grown[number], evidence=replace(evidence, consistency=bridge))
    assert verify_feed(grown, KEY, table_uuid=UUID) == 5
    refuse(grown[::-1], "follows|extends")
    # A leaf that changes nothing is proven in the same tree as its change set.
    evidence = grown[1].evidence
    assert evidence is not None and evidence.passed
    older = [(entry, made.log.proof(made.log.entries.index(entry), 5)) for entry, _ in evidence.passed]
    refuse([grown[0], replace(grown[1], evidence=replace(evidence, passed=tuple(older)))], "one checkpoint")


def test_the_feeds_tree_extends_the_checkpoint_that_the_caller_kept() -> None:
    made = honest()
    feed, newest = made.feed(), made.log.checkpoint()
    assert verify_feed(feed, KEY, table_uuid=UUID, kept=newest, checkpoint=newest) == 5
    refuse(feed, "extends", kept=made.log.checkpoint(4))
    evidence = feed[0].evidence
    assert evidence is not None
    bridged = [replace(feed[0], evidence=replace(evidence, consistency=(4, made.log.consistency(4)))), *feed[1:]]
    assert verify_feed(bridged, KEY, table_uuid=UUID, kept=made.log.checkpoint(4)) == 5
    other = made.log.fork(3)
    other.append(b"what the others were shown")
    refuse(bridged, "extends", kept=other.checkpoint(4))
    refuse(feed, "extends", kept=replace(newest, size=newest.size + 5))
    refuse(feed, "elsewhere", kept=replace(newest, origin="elsewhere.example"))
    refuse(feed, "checkpoint", checkpoint=other.checkpoint(4))


def test_a_table_made_anew_under_the_name_is_another_table() -> None:
    made = table()
    made.leaf("drop", snapshot_id=None)
    anew = ForgedTable(made.log, uuid="b-uuid")
    anew.commit(rows(("IT", 1)))
    both = [*made.feed(), *anew.feed()]
    for expected in ({"table": NAME, "table_uuid": None}, {"table_uuid": UUID}, {"table_uuid": "b-uuid"}):
        refuse(both, "uuid", **expected)
    # As if it went on: the new table's leaves are numbered after the old one's.
    on = ForgedTable(made.log, uuid="b-uuid")
    made.log.entries.pop()
    on.sequence, on.main, on.passed = made.sequence, made.main, list(made.passed)
    on.commit(rows(("IT", 1)))
    for expected in ({"table": NAME, "table_uuid": None}, {"table_uuid": UUID}):
        refuse([*made.feed(), *on.feed()], "uuid", **expected)
    assert verify_feed(anew.feed(), KEY, table=NAME) == 1


def test_nothing_is_committed_to_a_dropped_table() -> None:
    made = table()
    made.leaf("drop", snapshot_id=None)
    made.commit(rows(("IT", 1)))
    refuse(made.feed(), "dropped")
    made = table()
    made.leaf("drop", snapshot_id=None)
    made.leaf("rename")  # registered again, as it was
    made.commit(rows(("IT", 1)))
    assert verify_feed(made.feed(), KEY, table_uuid=UUID) == 4
    made = table()
    made.leaf("drop", snapshot_id=None)
    made.leaf("rename", snapshot_id=12, parent_id=12)
    made.main = 12
    made.commit(rows(("IT", 1)))
    refuse(made.feed(), "main")


def test_a_leaf_says_each_thing_once_in_its_one_spelling() -> None:
    made = table()
    record = json.loads(made.log.entries[1])
    text = made.log.entries[1].decode()
    root = f'"changes_root":"{record["changes_root"]}"'
    spellings = [
        text.replace(root, f'"changes_root":"{"00" * 32}",{root}'),  # the first counts for some readers
        text.replace(root, f'{root},"changes_root":"{"00" * 32}"'),
        text.replace(":", ": "),
        json.dumps(dict(reversed(record.items())), separators=(",", ":")),
        text.replace('"sequence":1', '"sequence":1.0'),
        text.replace('"sequence":1', '"sequence":true'),
        text.replace('"ref":"main"', '"ref":"m\\u0061in"'),
        text.replace('"parent_id":null', '"parent_id":"00"'),
        text.replace("strandline/commit@v2", "strandline/commit@v9"),
        text.replace('"snapshot_id":"1001"', '"snapshot_id":1001'),
        text + " ",
        "[" * 100_000,
        '{"format":"strandline/commit@v2","x":' + "[" * 200_000,
        '{"format":NaN}',
        '{"sequence":' + "9" * 5_000 + "}",
    ]
    for spelling in spellings:
        assert spelling != text
        log = ForgedLog(entries=[made.log.entries[0], spelling.encode()])
        refuse([made.shown(0, log=log)], "leaf")
    assert encode(record) == made.log.entries[1]
    assert verify_feed(made.feed(), KEY, table_uuid=UUID) == 1


def test_a_part_passes_only_for_a_caller_who_expects_one() -> None:
    made = honest()
    feed = made.feed()
    part = feed[1].select(range(3))
    refuse([feed[0], part, feed[2]], "only 3 of")
    assert verify_feed([feed[0], part, feed[2]], KEY, table_uuid=UUID, partial=True) == 5
    of_range = [one.between(("DE",), ("DE",)) for one in feed]
    expected = of_range[0].part
    assert expected is not None and expected.keys is not None
    assert verify_feed(of_range, KEY, table_uuid=UUID, key_range=expected.keys) == 5
    refuse(of_range, "only")
    other = feed[0].between(("FR",), ("FR",)).part
    assert other is not None and other.keys is not None
    refuse(of_range, "key range", key_range=other.keys)
    refuse([feed[0], part, feed[2]], "key range", key_range=expected.keys)


def test_a_log_of_another_key_does_not_pass() -> None:
    made = honest()
    other = Ed25519Signer(SIGNER.name, bytes(32)).verifier_key
    with pytest.raises(Unverified, match="not signed by a known key"):
        verify_feed(made.feed(), other, table_uuid=UUID)
