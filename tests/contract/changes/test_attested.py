"""Who computed a changes_root: the lake, from the objects, whatever a writer staged; or else the leaf says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog.changes import ChangeSet, changes_of, collapse, conform, verify, verify_feed
from catalog.changes.limits import Limit
from catalog.changes.multiset import RowsDigest
from catalog.core.errors import LakeError, Unverified
from catalog.core.point_in_time import SnapshotId
from catalog.iceberg.summary import ROWS_DIGEST
from catalog.merkle.tree import EMPTY_ROOT
from catalog.tables.compaction import plan_compaction
from catalog.tables.delta import Delta
from catalog.tables.planner import WritePlanner
from catalog.timeline import Attestation, ChangesDigest, Leaf
from catalog.timeline.sequencer.attestation import compute
from infra.local.server import ApiServer
from tests.contract.changes.test_expected_table import SCHEMA, feed_of, rows
from tests.worlds.changes import World, make_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def inserted(world: World, count: int = 5) -> str:
    """A table with one insert that is not sequenced yet."""
    name = world.name()
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.lake.tables.insert(name, rows(*range(count)))
    return name


def staged(world: World, name: str) -> Attestation:
    table = world.lake.tables.load(name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = world.lake.attestations.staged(str(table.metadata.table_uuid), snapshot.snapshot_id)
    assert found is not None
    return found


def stage(world: World, attestation: Attestation) -> None:
    """As whoever may write there does, in place of what the lake's own writer staged."""
    key = f"attest/{attestation.table_uuid}/{attestation.snapshot_id}"
    world.lake.s3.put_object(Bucket=world.settings.bucket, Key=key, Body=attestation.encode())


def last_leaf(world: World, name: str) -> Leaf:
    *_, (_, leaf) = world.caught_up().commits_since(name)
    return leaf


def only_small_commits(world: World) -> None:
    """A sequencer that computes the changes of at most two rows."""
    world.lake.sequencer._compute_changes = partial(changes_of, limit=Limit(rows=2, bytes=1 << 20))


def test_a_commit_that_says_it_changes_nothing_is_not_believed(world: World) -> None:
    name = inserted(world)
    right = staged(world, name)
    stage(world, right.with_changes(ChangesDigest(EMPTY_ROOT.hex(), 0)))
    leaf = last_leaf(world, name)
    assert (leaf.changes_root, leaf.changes_count, leaf.attested) == (right.changes_root, 5, "lake")
    assert staged(world, name).has_objects_of(right), "the changes that it states are the writer's word, and not used"
    feed = feed_of(world, name)
    assert verify_feed(feed, world.signer.verifier_key, table=name) == 1
    assert len(collapse(feed)) == 5
    assert world.verify().faults == ()


def compacted_falsely(world: World) -> str:
    """All rows become others. The snapshot says `replace` with the digest of the old rows, and 0 changes."""
    name = inserted(world)
    world.lake.tables.insert(name, rows(5))  # a second small file
    world.caught_up()
    old = conform(
        world.lake.tables.scan(name), schema_to_pyarrow(world.lake.tables.load(name).schema(), include_field_ids=True)
    )

    def plan(planner: WritePlanner) -> Delta:
        target = schema_to_pyarrow(planner.version.schema, include_field_ids=False)
        false = pa.Table.from_pylist(rows(*range(6), v="false"), schema=target)
        return replace(plan_compaction(planner), added=tuple(planner.files.write(false, planner.io)))

    world.lake.tables.committer.write(name, plan, properties={ROWS_DIGEST: RowsDigest.of(old).hex})
    table = world.lake.tables.load(name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    right = compute(str(table.metadata.table_uuid), snapshot, table.io)
    stage(world, right.with_changes(ChangesDigest(EMPTY_ROOT.hex(), 0)))
    return name


def test_a_compaction_that_changes_rows_is_not_believed(world: World) -> None:
    name = compacted_falsely(world)
    leaf = last_leaf(world, name)
    assert (leaf.operation, leaf.attested, leaf.changes_count) == ("replace", "lake", 6)
    feed = feed_of(world, name)
    assert verify_feed(feed, world.signer.verifier_key, table=name) == 3
    assert [row["v"] for row in collapse(feed).column("after").to_pylist()] == ["false"] * 6
    (fault,) = world.verify().faults
    assert "rows_digest is not that of the rows in the files it added" in fault.what


def test_a_large_compaction_that_changes_rows_is_named(world: World) -> None:
    only_small_commits(world)
    name = compacted_falsely(world)
    leaf = last_leaf(world, name)
    assert (leaf.operation, leaf.attested, leaf.changes_count) == ("replace", "writer", 0)
    with pytest.raises(Unverified):
        verify_feed(feed_of(world, name), world.signer.verifier_key, table=name)
    found = [fault.what for fault in world.verify().faults]
    assert any("changes_root is not that of its files" in what for what in found)
    assert any("rows_digest is not that of the rows in the files it added" in what for what in found)


def test_a_false_digest_of_a_data_file_is_not_believed(world: World) -> None:
    name = inserted(world)
    right = staged(world, name)
    false = [entry._replace(sha256="00" * 32) if entry.path.endswith(".parquet") else entry for entry in right.entries]
    stage(world, replace(right, entries=tuple(false)))
    assert last_leaf(world, name).content_root == right.content_root
    assert world.verify().faults == ()


def test_what_nobody_staged_is_computed_too(world: World) -> None:
    name = inserted(world)
    right = staged(world, name)
    world.lake.s3.delete_object(Bucket=world.settings.bucket, Key=f"attest/{right.table_uuid}/{right.snapshot_id}")
    leaf = last_leaf(world, name)
    assert (leaf.changes_root, leaf.attested) == (right.changes_root, "lake")


def test_the_data_is_read_once_for_digest_and_changes(world: World) -> None:
    name = inserted(world)
    mark = world.server.log.mark()
    last_leaf(world, name)
    read = [request for request in world.server.log.since(mark) if request.path.endswith(".parquet")]
    assert len(read) == 1


def test_a_commit_too_large_for_the_lake_is_its_writers_word_and_only_who_asks_believes_it(world: World) -> None:
    name = inserted(world)
    only_small_commits(world)
    leaf = last_leaf(world, name)
    assert (leaf.attested, leaf.changes_count) == ("writer", 5)
    (changes,) = feed = feed_of(world, name)
    key = world.signer.verifier_key
    assert verify_feed(feed, key, table=name, demand="writer") == 1
    verify(changes, key, demand="writer")
    for refused in (lambda: verify_feed(feed, key, table=name), lambda: verify(changes, key)):
        with pytest.raises(Unverified, match=r"the writer's own.*demand 'writer'"):
            refused()
    seen = list[ChangeSet]()
    with pytest.raises(Unverified, match="demand 'writer'"):
        world.another().process(name, "consumer", seen.append)
    with world.serving():
        assert world.another().process(name, "consumer", seen.append, demand="writer") == 1


def test_what_nobody_attests_does_not_verify(world: World) -> None:
    name = inserted(world)
    only_small_commits(world)
    stage(world, replace(staged(world, name), changes_root=None, changes_count=None))
    leaf = last_leaf(world, name)
    assert (leaf.attested, leaf.changes_root) == (None, None)
    for demand in ("lake", "writer"):
        with pytest.raises(Unverified, match="unattested"):
            verify_feed(feed_of(world, name), world.signer.verifier_key, table=name, demand=demand)  # type: ignore


def test_a_move_of_main_is_attested_by_the_lake(world: World) -> None:
    name = inserted(world)
    first = world.lake.tables.load(name).current_snapshot()
    assert first is not None
    world.lake.tables.insert(name, rows(50))
    world.lake.tables.rollback(name, SnapshotId(first.snapshot_id))
    leaf = last_leaf(world, name)
    assert (leaf.operation, leaf.attested, leaf.changes_count) == ("rollback", "lake", 1)


def rewrite_metadata(world: World, name: str, change: Any) -> None:
    """What anybody with access to Glue can do: point the table to metadata that he wrote."""
    s3, glue, bucket = world.lake.s3, world.lake.client("glue"), world.settings.bucket
    database, _, short = name.partition(".")
    entry = glue.get_table(DatabaseName=database, Name=short)["Table"]
    key = entry["Parameters"]["metadata_location"].removeprefix(f"s3://{bucket}/")
    metadata = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    change(metadata)
    other = f"{key.rpartition('/')[0]}/00099-{uuid4()}.metadata.json"
    s3.put_object(Bucket=bucket, Key=other, Body=json.dumps(metadata).encode())
    wanted = {name: entry[name] for name in ("Name", "TableType", "StorageDescriptor")}
    parameters = entry["Parameters"] | {"metadata_location": f"s3://{bucket}/{other}"}
    glue.update_table(DatabaseName=database, TableInput=wanted | {"Parameters": parameters})


def test_a_table_whose_main_is_removed_does_not_lose_its_rows_in_silence(world: World) -> None:
    """Then a commit without a parent would follow, and its feed would show inserts only."""
    name = inserted(world)
    world.caught_up()
    table = world.lake.tables.load(name)
    before = table.current_snapshot()
    assert before is not None

    def remove_main(metadata: dict[str, Any]) -> None:
        metadata["current-snapshot-id"] = -1
        metadata["refs"] = {}

    rewrite_metadata(world, name, remove_main)
    world.lake.sequencer.catch_up([name])
    *_, (_, leaf) = world.public().commits_since(name)
    assert (leaf.operation, leaf.ref, leaf.parent_id, leaf.snapshot_id) == ("reset", "main", before.snapshot_id, None)
    assert leaf.moves_rows
    world.another().tables.insert(name, rows(7))
    world.caught_up()
    assert world.verify().faults == ()
    with pytest.raises(LakeError):
        verify_feed(world.another().changes(name), world.signer.verifier_key, table=name)
