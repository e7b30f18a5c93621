"""A crash at any step of an erasure: run it again, and it is complete. Nothing is lost that was not erased."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.server import ApiServer
from tests.contract.erasure.test_erasure import names_as_of, small_table
from tests.worlds.changes import World
from tests.worlds.erasure import SECRET, erase, eraser, holders, make_erasure_world

STEPS = ["deleted", "written", "replaced", "sequenced", "verified", "purged", "done"]


class Crash(Exception):
    pass


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_erasure_world(server, monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("crashed_at", STEPS)
def test_an_erasure_that_crashed_is_finished_by_the_next_run(world: World, crashed_at: str) -> None:
    name = small_table(world)
    before = names_as_of(world, name)
    seen = list[str]()

    def step(at: str) -> None:
        seen.append(at)
        if at == crashed_at:
            raise Crash(at)

    with pytest.raises(Crash):
        eraser(world, step).erase(name, keys=[{"id": 7}], reason="asked to")
    assert seen == STEPS[: STEPS.index(crashed_at) + 1]
    assert world.caught_up() and world.verify().faults == ()
    erase(world, name, keys=[{"id": 7}])
    assert holders(world, SECRET.encode()) == []
    kept = [{id_: value for id_, value in rows.items() if id_ != 7} for rows in before]
    assert names_as_of(world, name)[: len(kept)] == kept
    report = world.verify()
    assert report.faults == () and len(report.erased) == 1
    assert not [key for key in world.object_keys("erasures/") if key.endswith(".keys")]


def test_what_does_not_verify_is_not_deleted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last check before the deletion: whatever went wrong before it, the old objects are still there."""
    name = small_table(world)
    careful = eraser(world)
    uuid = str(world.plain(name).metadata.table_uuid)

    def damage(at: str) -> None:
        world.caught_up()
        if at == "sequenced":
            s3, bucket = world.client("s3"), world.bucket
            records = [key for key in world.object_keys(f"erasures/{uuid}/") if "." not in key]
            record = s3.get_object(Bucket=bucket, Key=records[0])["Body"].read()
            new = next(part for part in record.decode().split('"') if part.endswith(".parquet") and part not in old)
            key = new.removeprefix(f"s3://{bucket}/")
            data = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            s3.put_object(Bucket=bucket, Key=key, Body=data + b"x")

    old = {f"s3://{world.bucket}/{key}" for key in world.object_keys()}
    careful.step = damage
    with pytest.raises(Exception, match="nothing was deleted"):
        careful.erase(name, keys=[{"id": 7}], reason="asked to")
    assert {path for path in old if path.endswith(".parquet")} <= {
        f"s3://{world.bucket}/{key}" for key in world.object_keys()
    }
