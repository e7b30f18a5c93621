"""What an erasure must not touch: other tables' files, files that are not ingested yet, tables it is refused for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetLocationUpdate

from catalog.core.errors import Conflict, Invalid, Unverified
from catalog.erasure.replacement import SnapshotReplacer
from catalog.timeline import Erasure, Replaced
from infra.local.server import ApiServer
from tests.contract.erasure.test_erasure import SCHEMA, people, small_table
from tests.worlds.changes import World
from tests.worlds.erasure import SECRET, age_orphans, erase, eraser, holders, make_erasure_world


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_erasure_world(server, monkeypatch)
    yield made
    made.close()


def ids(world: World, name: str) -> list[int]:
    return sorted(row["id"] for row in world.another().tables.scan(name).to_pylist())


def test_a_refused_erasure_changes_nothing(world: World) -> None:
    """Rows without a salt: refused before the rows are deleted from main, not after."""
    name = world.name()
    world.lake.tables.create(name, {"id": "long", "name": "string"}, key=["id"])
    world.lake.tables.insert(name, [{"id": 7, "name": SECRET}, *people(1)])
    location = world.plain(name).metadata_location
    with pytest.raises(Invalid, match="salt"):
        erase(world, name, keys=[{"id": 7}])
    assert world.plain(name).metadata_location == location and ids(world, name) == [1, 7]


def test_a_table_at_the_same_location_keeps_its_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed table keeps its folder, and a new one of the old name gets the same."""
    old = small_table(world)
    new = world.name("renamed")
    world.catalog().rename_table(old, new)
    world.lake.tables.create(old, SCHEMA, key=["id"])
    world.lake.tables.insert(old, [{"id": 7, "name": SECRET}])
    age_orphans(monkeypatch)
    with pytest.raises(Conflict, match=new):
        erase(world, old, keys=[{"id": 7}])
    assert ids(world, new) == [1, 5, 7] and ids(world, old) == [7]


def test_a_clone_of_an_earlier_table_of_the_name_keeps_its_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name, copy = small_table(world), world.name("copy")
    world.lake.tables.clone(name, copy)
    world.lake.tables.drop(name)
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.lake.tables.insert(name, [{"id": 7, "name": SECRET}])
    age_orphans(monkeypatch)
    with pytest.raises(Conflict, match=copy):
        erase(world, name, keys=[{"id": 7}])
    assert ids(world, copy) == [1, 5, 7]


def test_a_table_whose_location_is_not_its_own_is_refused(world: World) -> None:
    """A writer with Spark sets the location to the folder of all tables."""
    name = small_table(world)
    other = small_table(world, "other")
    table = world.plain(name)
    parent = world.plain(other).metadata.location.rsplit("/", 1)[0]
    with table.transaction() as transaction:
        transaction._apply((SetLocationUpdate(location=parent),))
    world.caught_up()
    with pytest.raises(Conflict, match="location"):
        erase(world, name, keys=[{"id": 7}])
    assert ids(world, other) == [1, 5, 7]


def test_a_file_that_is_not_ingested_yet_is_named_and_stays(world: World) -> None:
    name = small_table(world)
    folder, s3 = name.replace(".", "/"), world.client("s3")
    lines = f'{{"id": 7, "name": "{SECRET}"}}\n{{"id": 8, "name": "person 8"}}\n'.encode()
    key = f"landing/{folder}/both.jsonl"
    version = s3.put_object(Bucket=world.bucket, Key=key, Body=lines)["VersionId"]
    result = erase(world, name, keys=[{"id": 7}])
    assert holders(world, b"person 8") == [key]
    assert any(key in place and "ingested" in place for place in result.remains)
    record = {"digest": sha256(lines).hexdigest(), "source": "a", "key": key, "version": version, "state": "committed"}
    s3.put_object(Bucket=world.bucket, Key=f"ingested/{record['digest']}/a.json", Body=json.dumps(record).encode())
    assert not [place for place in erase(world, name, keys=[{"id": 7}]).remains if key in place]
    assert holders(world, b"person 8") == []


def test_statistics_that_the_table_refers_to_stay_when_nothing_is_erased(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = small_table(world)
    table = world.plain(name)
    path = f"{table.metadata.location}/metadata/one.stats.puffin"
    world.client("s3").put_object(Bucket=world.bucket, Key=path.removeprefix(f"s3://{world.bucket}/"), Body=b"PFA1")
    snapshot_id = table.metadata.current_snapshot_id
    assert snapshot_id is not None
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=snapshot_id, statistics_path=path, file_size_in_bytes=4, file_footer_size_in_bytes=4,
                blob_metadata=[],
            )
        )  # fmt: skip
    world.lake.sequencer.handle([])
    world.lake.tables.committer.announce(world.lake.tables.table_store.load(name), None, ())
    age_orphans(monkeypatch)
    erase(world, name, keys=[{"id": 99}])
    assert path.removeprefix(f"s3://{world.bucket}/") in world.object_keys()


@pytest.mark.parametrize("victim", ["other", "t"])
def test_a_record_deletes_no_object_of_another_table_or_of_a_kept_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    """Whoever can write records lists such files as replaced by nothing, and a leaf covers it: they are not deleted."""
    name = small_table(world)
    small_table(world, "other")
    world.lake.tables.insert(name, people(8))
    folder = f"tables/{world.namespace}.db/{victim}/data/"
    tasks = world.plain(world.name(victim)).scan(row_filter="id != 7").plan_files()
    wanted = [task.file.file_path for task in tasks if victim == "other" or task.file.record_count == 1]
    assert wanted and all(folder in path for path in wanted)
    record = SnapshotReplacer._record

    def greedy(*arguments: Any) -> Erasure:
        honest = record(*arguments)
        more = tuple(Replaced(path, 1, "ab" * 32, None, None, None) for path in wanted)
        return replace(honest, objects=(*honest.objects, *more))

    monkeypatch.setattr(SnapshotReplacer, "_record", greedy)
    with pytest.raises(Unverified, match="not below" if victim == "other" else "refers to"):
        erase(world, name, keys=[{"id": 7}])
    kept = {f"s3://{world.bucket}/{key}" for key in world.object_keys(folder)}
    assert set(wanted) <= kept and holders(world, SECRET.encode())


def test_a_record_that_is_changed_before_its_leaf_deletes_nothing(world: World) -> None:
    name = small_table(world)

    def change(at: str) -> None:
        if at == "written":
            s3, uuid = world.client("s3"), str(world.plain(name).metadata.table_uuid)
            (key,) = [key for key in world.object_keys(f"erasures/{uuid}/") if "." not in key]
            record = Erasure.decode(s3.get_object(Bucket=world.bucket, Key=key)["Body"].read())
            s3.put_object(Bucket=world.bucket, Key=key, Body=replace(record, reason="another").encode())
        world.caught_up()

    made = eraser(world)
    made.step = change
    with pytest.raises(Unverified, match="no leaf for the erasure"):
        made.erase(name, keys=[{"id": 7}], reason="asked to")
    assert holders(world, SECRET.encode())


def test_a_clones_erasure_leaves_the_manifests_of_its_source(world: World) -> None:
    """The source's manifests name files of the past, with their bounds; the clone refers to these manifests."""
    source, clone = small_table(world), world.name("clone")
    tables = world.lake.tables
    tables.compact(source)
    tables.expire(source, older_than=datetime.now(UTC) + timedelta(days=1))
    tables.clone(source, clone)
    tables.insert(clone, [{"id": 9, "name": "person 9"}])
    world.caught_up()
    erase(world, clone, keys=[{"id": 9}])
    assert ids(world, source) == [1, 5, 7] and ids(world, clone) == [1, 5, 7]
    assert world.verify().faults == ()


def test_a_row_that_comes_back_while_it_is_erased_is_deleted_again(world: World) -> None:
    name = small_table(world)
    written = list[str]()

    def step(at: str) -> None:
        if at == "deleted" and not written:
            written.append(at)
            world.lake.tables.upsert(name, [{"id": 7, "name": SECRET + " again"}])
        world.caught_up()

    made = eraser(world)
    made.step = step
    made.erase(name, keys=[{"id": 7}], reason="asked to")
    assert holders(world, SECRET.encode()) == [] and world.verify().faults == ()


def test_two_erasures_at_once_are_both_completed(world: World) -> None:
    """The second replaces snapshots before the first deleted its old objects: nobody may forget those."""
    name = small_table(world)
    started = list[str]()

    def step(at: str) -> None:
        world.caught_up()
        if at == "deleted" and not started:
            started.append(at)
            first = eraser(world, lambda at: _stop(at, "replaced"))
            with pytest.raises(_Stopped):
                first.erase(name, keys=[{"id": 5}], reason="first")
            world.caught_up()

    second = eraser(world)
    second.step = step
    second.erase(name, keys=[{"id": 7}], reason="second")
    assert holders(world, SECRET.encode(), b"person 5") == []
    report = world.verify()
    assert report.faults == () and len(report.erased) == 2


class _Stopped(Exception):
    pass


def _stop(at: str, where: str) -> Any:
    if at == where:
        raise _Stopped(at)
