"""What is ingested is an object's version: each once, in whatever order their events come, and the newest one stays."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from uuid import uuid4

import pytest

from catalog.ingest import ingest
from catalog.ingest.rules import Rule
from catalog.ingest.s3_events import LandedFile
from infra.local.server import ApiServer
from tests.worlds.ingest import IngestWorld

V1 = b'{"id": 1, "v": "a"}\n{"id": 2, "v": "a"}\n'
V2 = b'{"id": 2, "v": "b"}\n{"id": 3, "v": "b"}\n'
V3 = b'{"id": 3, "v": "c"}\n'
FOLDED = [(1, "a"), (2, "b"), (3, "c")]
"""The three versions one after another, by key."""


@pytest.fixture(params=["held", "large"])
def world(server: ApiServer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> IngestWorld:
    if request.param == "large":
        monkeypatch.setattr(ingest, "HOLD_BYTES", 1)
    return IngestWorld.create(server)


def keyed(world: IngestWorld, *key: str) -> IngestWorld:
    world.rules.set(world.name("t"), Rule(key=key))
    return world


def statuses(world: IngestWorld, *files: LandedFile) -> list[str]:
    return [outcome.status for outcome in world.ingest().run(list(files))]


def test_notes_of_one_name_in_two_folders_are_two_rows(world: IngestWorld) -> None:
    keyed(world, "path")
    world.drop({"t/c1/x.md": b"# Same\n", "t/c2/x.md": b"# Same\n", "t/x.md": b"# Same\n"})
    assert world.rows("t", "path") == [("c1/x.md",), ("c2/x.md",), ("x.md",)]


def test_what_was_replaced_and_comes_back_counts(world: IngestWorld) -> None:
    keyed(world, "path")
    for body in (b"# A\n", b"# B\n", b"# A\n"):
        assert [outcome.status for outcome in world.drop({"t/x.md": body})] == ["committed"]
    assert world.rows("t", "path", "title") == [("x.md", "A")]


def test_without_a_key_each_version_adds_its_rows(world: IngestWorld) -> None:
    for body in (b'{"v": "A"}\n', b'{"v": "B"}\n', b'{"v": "A"}\n'):
        world.drop({"t/x.jsonl": body})
    assert world.rows("t", "v") == [("A",), ("A",), ("B",)]


def test_an_object_that_is_put_again_as_it_was_adds_nothing(world: IngestWorld) -> None:
    """As by a client that never got the answer to its first PUT."""
    first, second = world.put("t/x.jsonl", b'{"v": "A"}\n'), world.put("t/x.jsonl", b'{"v": "A"}\n')
    assert statuses(world, second, first).count("committed") == 1
    assert statuses(world, second, first) == ["duplicate"] * 2
    third = world.put("t/x.jsonl", b'{"v": "A"}\n')
    assert statuses(world, third, second, first) == ["duplicate"] * 3
    assert world.rows("t", "v") == [("A",)]


def test_a_version_delivered_twice_makes_rows_once(world: IngestWorld) -> None:
    landed = world.put("t/x.jsonl", b'{"v": "A"}\n')
    assert sorted(statuses(world, landed, landed)) == ["committed", "duplicate"]
    assert statuses(world, landed) == ["duplicate"]
    assert world.rows("t", "v") == [("A",)]


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_events_in_any_order_end_in_the_newest_version(world: IngestWorld, order: tuple[int, ...]) -> None:
    keyed(world, "id")
    files = [world.put("t/x.jsonl", body) for body in (V1, V2, V3)]
    for number in (*order, *order):
        statuses(world, files[number])
    assert world.rows("t", "id", "v") == FOLDED
    assert statuses(world, *(files[number] for number in order)) == ["duplicate"] * 3


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_events_of_one_batch_in_any_order_end_in_the_newest_version(world: IngestWorld, order: tuple[int, ...]) -> None:
    keyed(world, "id")
    files = [world.put("t/x.jsonl", body) for body in (V1, V2, V3)]
    assert statuses(world, *(files[number] for number in order)) == ["committed"] * 3
    assert world.rows("t", "id", "v") == FOLDED


def test_versions_that_race_end_in_the_newest(world: IngestWorld) -> None:
    keyed(world, "id")
    with ThreadPoolExecutor(2) as pool:
        for number in range(3):
            bodies = [b'{"id": %d, "v": "%s"}\n' % (number, text) for text in (b"old", b"new")]
            files, start = [world.put(f"t/{number}.jsonl", body) for body in bodies], threading.Barrier(2)

            def deliver(landed: LandedFile, start: threading.Barrier = start) -> list[str]:
                start.wait(30)
                return statuses(world, landed)

            assert [*pool.map(deliver, files)] == [["committed"], ["committed"]]
    assert world.rows("t", "id", "v") == [(number, "new") for number in range(3)]


def test_a_crash_before_the_ledger_heard_changes_nothing(world: IngestWorld) -> None:
    keyed(world, "id")
    old, new = world.put("t/x.jsonl", V1), world.put("t/x.jsonl", V2)
    for landed in (new, old):
        (outcome,) = world.ingest().run([landed])
        world.client("s3").delete_object(Bucket=world.bucket, Key=f"ingested/{outcome.digest}/{outcome.source}.json")
    assert statuses(world, old, new) == ["duplicate", "duplicate"]
    assert world.rows("t", "id", "v") == [(1, "a"), (2, "b"), (3, "b")]


def test_a_late_version_is_known_as_such_when_the_snapshots_have_expired(world: IngestWorld) -> None:
    keyed(world, "id")
    old, new = world.put("t/x.jsonl", V1), world.put("t/x.jsonl", V2)
    statuses(world, new)
    world.drop({"t/y.jsonl": b'{"id": 9, "v": "y"}\n'})
    world.tables().expire(world.name("t"), older_than=2**62)
    assert statuses(world, old) == ["committed"]
    assert world.rows("t", "id", "v") == [(1, "a"), (2, "b"), (3, "b"), (9, "y")]


def test_a_late_version_is_kept_aside_if_the_newer_one_is_gone(world: IngestWorld) -> None:
    keyed(world, "id")
    old, new = world.put("t/x.jsonl", V1), world.put("t/x.jsonl", V2)
    statuses(world, new)
    world.client("s3").delete_object(Bucket=world.bucket, Key=new.key, VersionId=new.version_id)
    (outcome,) = world.ingest().run([old])
    assert outcome.status == "quarantined" and "a newer version of the file is in the table" in str(outcome.error)
    assert world.rows("t", "id", "v") == [(2, "b"), (3, "b")]


def test_in_a_bucket_without_versions_an_event_stands_for_its_bytes(world: IngestWorld) -> None:
    s3, bucket, key = world.client("s3"), f"plain-{uuid4().hex[:12]}", f"landing/{world.namespace}/t/x.jsonl"
    s3.create_bucket(Bucket=bucket)

    def put(body: bytes, sequencer: str) -> LandedFile:
        etag = s3.put_object(Bucket=bucket, Key=key, Body=body)["ETag"].strip('"')
        return LandedFile(bucket, key, sequencer=sequencer, etag=etag)

    first, second = put(b'{"v": "A"}\n', "01"), put(b'{"v": "B"}\n', "02")
    assert statuses(world, first, second) == ["gone", "committed"]
    assert statuses(world, second, first) == ["duplicate", "gone"]
    third = put(b'{"v": "A"}\n', "03")
    assert statuses(world, third) == ["committed"]
    assert world.rows("t", "v") == [("A",), ("B",)]
