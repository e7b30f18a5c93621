"""A feed is computed while the timeline grows: all of it is proven against one checkpoint, the published one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catalog.changes.feed_verifier import verify_feed
from catalog.merkle.cosignature import WitnessSigner
from catalog.merkle.proof import read
from catalog.timeline.log.publisher import CHECKPOINT_PATH, Publisher
from infra.local.server import ApiServer
from tests.waiting import wait_until
from tests.worlds.changes import World, make_world

SCHEMA = {"id": "long", "v": "string"}


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_world(server, monkeypatch)
    yield made
    made.close()


def test_a_feed_that_is_read_while_the_timeline_grows_verifies(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    for number in range(3):
        tables.insert(name, [{"id": number, "v": "x"}])
        world.serve()
    lake = world.another()
    feed = lake.changes(name)
    sets = [next(feed)]
    tables.insert(name, [{"id": 9, "v": "x"}])
    world.serve()
    size = Publisher(lake.s3, lake.settings.bucket).published().size
    wait_until(lambda: lake.timeline.head().checkpoint.size >= size, "the reader to see the new leaf")
    sets += feed
    checkpoints = {read(changes.evidence.proof).checkpoint for changes in sets if changes.evidence is not None}
    assert len(sets) == 3 and len(checkpoints) == 1
    keys = [key for _, key in lake.timeline.source.keyring().keys]
    assert verify_feed(sets, keys, table=name) == 3
    assert verify_feed(lake.changes(name), keys, table=name) == size - 1


def test_proofs_and_feeds_carry_the_cosignatures_of_the_published_checkpoint(world: World) -> None:
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, [{"id": 1, "v": "x"}])
    world.serve()
    lake, witness = world.another(), WitnessSigner.generate("witness.example/w1")
    note = Publisher(lake.s3, lake.settings.bucket).published().note
    cosigned = note + witness.cosign(note.decode().partition("\n\n")[0] + "\n", 1_800_000_000).encode()
    lake.s3.put_object(Bucket=lake.settings.bucket, Key=CHECKPOINT_PATH, Body=cosigned)
    assert lake.timeline.head().note == note
    assert lake.timeline.public_head().note == cosigned
    assert read(lake.timeline.proof(0)).checkpoint == cosigned
    (changes,) = lake.changes(name)
    assert changes.evidence is not None and read(changes.evidence.proof).checkpoint == cosigned
