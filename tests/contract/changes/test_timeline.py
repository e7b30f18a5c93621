"""Change capture meets the timeline: every leaf's changes_root is what its files give, and a feed proves itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog.changes import ChangeSet, collapse, conform, diff, from_ipc, from_json_lines, to_ipc, to_json_lines, verify
from catalog.changes.feed_verifier import verify_feed
from catalog.changes.multiset import RowsDigest
from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.core.events import TableMoved
from catalog.core.point_in_time import SnapshotId, TableSequence
from catalog.iceberg.summary import ROWS_DIGEST
from catalog.merkle.tree import EMPTY_ROOT
from catalog.tables.compaction import plan_compaction
from catalog.timeline.sequencer.attestation import Attestation, attestation_key
from infra.local.server import ApiServer
from tests.worlds.changes import World, make_world

SCHEMA = {"id": "long", "v": "string"}


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def rows(*numbers: int, v: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "v": v} for number in numbers]


def busy(world: World, mode: str, key: list[str] | None = None) -> str:
    """A table with every kind of commit: append, upsert, delete, compaction, schema change, rollback, and a tag."""
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, mode=mode, key=["id"] if key is None else key)  # type: ignore[arg-type]
    tables.insert(name, rows(1, 2, 3, 4))
    if key is None:
        tables.upsert(name, rows(2, 9, v="y"))
    tables.delete(name, "id = 3")
    tables.compact(name)
    tables.snapshot(name, "kept")
    tables.alter(name, add={"w": "long"}, rename={"v": "word"})
    tables.insert(name, [{"id": 20, "word": "z", "w": 7}])
    tables.rollback(name, "kept")
    tables.insert(name, [{"id": 21, "word": "z", "w": 8}])
    return name


def model(world: World, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in world.lake.tables.scan(name).to_pylist())


def test_a_table_that_is_not_sequenced_yet_has_no_changes_yet(world: World) -> None:
    tables, known, new = world.lake.tables, world.name("known"), world.name("new")
    tables.create(known, SCHEMA, key=["id"])
    world.serve()
    tables.create(new, SCHEMA, key=["id"])
    tables.insert(new, rows(1))
    assert list(world.another().changes(new)) == []
    world.serve()
    (change_set,) = world.another().changes(new)
    assert change_set.count == 1


@pytest.mark.parametrize("mode", ["cow", "mor", "hybrid"])
def test_each_leaf_has_the_root_of_its_commits_changes(world: World, mode: str) -> None:
    name = busy(world, mode)
    leaves = [leaf for _, leaf in world.caught_up().commits_since(name)]
    table = world.lake.tables.load(name)
    commits = [leaf for leaf in leaves if leaf.is_snapshot]
    assert len(commits) >= 5
    for leaf in commits:
        change_set = diff(table, leaf.snapshot_id)
        assert (leaf.changes_root, leaf.changes_count) == (change_set.root.hex(), change_set.count), leaf.operation
    replaced = [leaf for leaf in commits if leaf.operation == "replace"]
    assert [(leaf.changes_root, leaf.changes_count) for leaf in replaced] == [(EMPTY_ROOT.hex(), 0)] * len(replaced)
    (back,) = [leaf for leaf in leaves if leaf.operation == "rollback"]
    assert back.changes_count == 1, "the row that the rollback took away"
    others = [leaf for leaf in leaves if not leaf.moves_rows]
    assert {leaf.operation for leaf in others} >= {"create", "tag", "schema"}
    assert {leaf.changes_root for leaf in others} == {None}
    report = world.verify().check()
    assert report.changes == len([leaf for leaf in leaves if leaf.moves_rows])


def test_a_lost_attestation_is_made_again_to_the_same_bytes_and_the_same_leaf(world: World) -> None:
    name = busy(world, "mor")
    s3, bucket = world.lake.s3, world.settings.bucket
    staged = {o["Key"] for o in s3.list_objects_v2(Bucket=bucket, Prefix="attest/")["Contents"]}
    before = {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in staged}
    assert all(Attestation.decode(data).changes_root is not None for data in before.values())
    for key in staged:
        s3.delete_object(Bucket=bucket, Key=key)
    leaves = [leaf for _, leaf in world.caught_up().commits_since(name)]
    assert {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in staged} == before
    roots = {Attestation.decode(data).changes_root for data in before.values()}
    assert {leaf.changes_root for leaf in leaves if leaf.is_snapshot} == roots


def test_a_wrong_root_that_the_lake_could_not_compute_is_named_by_the_deep_verification(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.changes import changes_root
    from catalog.changes.limits import Limit

    name = world.name()
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.lake.tables.insert(name, rows(1, 2))
    receipt = world.lake.tables.insert(name, rows(3))
    uuid = str(world.lake.tables.load(name).metadata.table_uuid)
    key = attestation_key(uuid, receipt.snapshot_id or 0)
    s3, bucket = world.lake.s3, world.settings.bucket
    right = Attestation.decode(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    s3.put_object(Bucket=bucket, Key=key, Body=replace(right, changes_root="ab" * 32).encode())
    monkeypatch.setitem(changes_root.changes_of.__kwdefaults__, "limit", Limit(rows=0, bytes=0))
    timeline = world.caught_up()
    (index,) = [i for i, leaf in timeline.commits_since(name) if leaf.snapshot_id == receipt.snapshot_id]
    (fault,) = world.verify().faults
    assert (fault.object, fault.index, fault.table) == (f"s3://{bucket}/{key}", index, name)
    assert fault.snapshot_id == receipt.snapshot_id and "1 changes" in fault.what


def test_what_is_too_much_or_has_no_exact_changes_goes_without_a_root(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.changes import changes_root
    from catalog.changes.limits import Limit

    monkeypatch.setitem(changes_root.changes_of.__kwdefaults__, "limit", Limit(rows=3, bytes=1 << 20))
    name = world.name()
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.lake.tables.insert(name, rows(1, 2, 3))
    world.lake.tables.insert(name, rows(4, 5, 6, 7))
    roots_of = [leaf.changes_count for _, leaf in world.caught_up().commits_since(name)]
    assert roots_of == [None, 3, None]
    *_, last = world.lake.changes(name)
    assert last.count == 4
    with pytest.raises(Unverified, match="never computed"):
        verify(last, world.signer.verifier_key)
    assert world.verify().faults == ()


def feed_of(world: World, name: str, **span: Any) -> list[ChangeSet]:
    world.caught_up()
    reader = world.another()  # one that opens now is not behind
    return list(reader.changes(name, **span))


@pytest.mark.parametrize("mode", ["cow", "mor"])
def test_a_feed_across_everything_proves_itself_offline(world: World, mode: str) -> None:
    name = busy(world, mode)
    feed = feed_of(world, name)
    key = world.signer.verifier_key
    for sent in ([from_ipc(to_ipc(one)) for one in feed], [from_json_lines(list(to_json_lines(one))) for one in feed]):
        for one in sent:
            verify(one, key, origin=world.signer.name)
        assert verify_feed(sent, key, table=name) == sent[-1].commit.sequence
    inserted = [row["after"] for row in collapse(feed).to_pylist()]
    assert sorted(tuple(row.values()) for row in inserted) == model(world, name)
    other = type(world.signer).generate("strandline.test/changes").verifier_key
    with pytest.raises(Unverified):
        verify_feed(feed, other, table=name)


def test_a_table_without_a_key_has_roots_and_feeds_too(world: World) -> None:
    name = busy(world, "cow", key=[])
    feed = feed_of(world, name)
    assert verify_feed(feed, world.signer.verifier_key, table=name) == feed[-1].commit.sequence
    # A key that comes later is not the one those changes were counted by.
    world.lake.tables.alter(name, key=["id"])
    assert world.verify().faults == ()
    again = feed_of(world, name)
    assert verify_feed(again, world.signer.verifier_key, table=name) == feed[-1].commit.sequence


def mutations(feed: list[ChangeSet], chance: random.Random) -> list[ChangeSet]:
    """The feed with one whole commit dropped, repeated, moved or hidden among the leaves that change nothing."""
    at, to = chance.sample(range(len(feed)), 2)
    kind = chance.choice(["drop", "repeat", "move", "hide", "strip"])
    out = list(feed)
    if kind == "drop":
        del out[at if at < len(feed) - 1 else 0]
    elif kind == "repeat":
        out.insert(to, feed[at])
    elif kind == "move":
        out[at], out[to] = out[to], out[at]
    elif kind == "hide":
        at = min(at, len(feed) - 2)
        gone, after = out[at].evidence, out[at + 1].evidence
        assert gone is not None and after is not None
        hidden = (*gone.passed, (gone.leaf, gone.proof), *after.passed)
        out[at : at + 2] = [replace(out[at + 1], evidence=replace(after, passed=hidden))]
    else:
        marked = [n for n, one in enumerate(feed) if one.evidence and one.evidence.passed]
        at = chance.choice(marked)
        evidence = out[at].evidence
        assert evidence is not None
        out[at] = replace(out[at], evidence=replace(evidence, passed=evidence.passed[1:]))
    return out


def test_a_whole_commit_left_out_repeated_or_moved_is_detected(world: World) -> None:
    name = busy(world, "cow")
    feed, key = feed_of(world, name), world.signer.verifier_key
    chance = random.Random(4)
    for _ in range(40):
        mutated = mutations(feed, chance)
        with pytest.raises(Unverified):
            verify_feed(mutated, key, table=name)
    last = feed[-1].commit.sequence
    assert last is not None
    with pytest.raises(Unverified, match="should reach"):
        verify_feed(feed[:-1], key, table=name, until=last)
    assert verify_feed([], key, table=name, since=3) == 3


def test_a_feed_begins_and_ends_at_a_snapshot_a_sequence_a_time_or_a_name(world: World) -> None:
    name = busy(world, "cow")
    timeline, reader = world.caught_up(), world.another()
    whole, key = list(reader.changes(name)), world.signer.verifier_key
    sequences = [one.commit.sequence for one in whole]

    def sequences_of(**span: Any) -> list[int | None]:
        return [one.commit.sequence for one in reader.changes(name, **span)]

    for at in (0, 3):
        commit = whole[at].commit
        first = next(i for i, other in enumerate(whole) if other.commit.snapshot_id == commit.snapshot_id)
        assert sequences_of(since=SnapshotId(commit.snapshot_id)) == sequences[first + 1 :]
        by_sequence = list(reader.changes(name, since=TableSequence(commit.sequence)))
        assert [one.commit.sequence for one in by_sequence] == sequences[at + 1 :]
        assert verify_feed(by_sequence, key, table=name, since=commit.sequence) == sequences[-1]
        assert sequences_of(until=f"sequence:{commit.sequence}") == sequences[: at + 1]
    kept = reader.tables.load(name).metadata.refs["kept"].snapshot_id
    assert sequences_of(since="kept") == sequences_of(since=f"snapshot:{kept}") != sequences
    ms = timeline.commit(whole[-1].commit.index or 0).sequenced_ms
    then = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert sequences_of(since=then) == []
    assert sequences_of(since=then - timedelta(days=11), until=TableSequence(sequences[0] or 0)) == sequences[:1]
    assert sequences_of(since=whole[0].commit.index) == sequences[1:]
    with pytest.raises(Invalid, match=f"write snapshot:{kept}"):
        sequences_of(since=kept)
    with pytest.raises(NotFound):
        sequences_of(since="no such name")


def test_a_branch_that_becomes_main_is_one_change_set_of_the_feed(world: World) -> None:
    name = world.name()
    world.lake.tables.create(name, SCHEMA)
    world.lake.tables.insert(name, rows(1, 2))
    table = world.lake.iceberg.load_table(name)
    arrow, base = table.schema().as_arrow(), table.current_snapshot()
    table.manage_snapshots().create_branch(base.snapshot_id, "try").commit()
    for number in (3, 4):
        table.append(pa.Table.from_pylist(rows(number), schema=arrow), branch="try")
    table.manage_snapshots().set_current_snapshot(ref_name="try").commit()
    world.lake.request(TableMoved(table=name))
    feed = feed_of(world, name)
    assert verify_feed(feed, world.signer.verifier_key, table=name) == feed[-1].commit.sequence
    assert [(one.count, one.commit.parent_id) for one in feed] == [(2, None), (2, base.snapshot_id)]
    assert world.verify().faults == ()


def rewrite(world: World, name: str, digest: str) -> None:
    """A compaction that says of its rows what it is told to."""
    world.lake.tables.committer.write(name, plan_compaction, properties={ROWS_DIGEST: digest})


def test_a_rewrites_digest_of_rows_is_in_its_leaf_and_is_counted_again(world: World) -> None:
    tables, name, long = world.lake.tables, world.name(), f"{'n' * 128}.{'t' * 128}"
    for table in (name, long):
        tables.create(table, SCHEMA, mode="mor", key=["id"])
        tables.insert(table, rows(1, 2, 3))
        tables.insert(table, rows(4, 5))
        tables.delete(table, "id = 2")
        schema = schema_to_pyarrow(tables.load(table).schema(), include_field_ids=True)
        rewrite(world, table, RowsDigest.of(conform(tables.scan(table), schema)).hex)
    leaves = {leaf.table: leaf for _, leaf in world.caught_up().commits_since(name) if leaf.operation == "replace"}
    proven = leaves[name].rows_digest
    assert proven is not None and len(proven) == 64
    (kept,) = [leaf for _, leaf in world.caught_up().commits_since(long) if leaf.operation == "replace"]
    assert kept.rows_digest is not None  # the longest names leave room for it
    assert world.verify().check().rewrites == 2

    tables.insert(name, rows(6))
    rewrite(world, name, proven)  # which is that of the rows before
    *_, (index, leaf) = world.caught_up().commits_since(name)
    assert leaf.rows_digest == proven
    report = world.verify()
    assert report.rewrites == 3
    assert [(fault.index, fault.what) for fault in report.faults] == [
        (index, f"its rows_digest is not that of the rows in the files {which}") for which in ("it removed", "it added")
    ]
