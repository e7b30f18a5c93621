"""Hostile files through ingestion: each is committed, quarantined or empty, no good file waits, no process is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

import functions.ingest as function
from catalog.formats.limits import FormatLimits
from catalog.ingest.attempts import MAX_DEATHS
from catalog.ingest.s3_events import LandedFile
from catalog.ingest.target_table import MUST_EXIST
from infra.local.server import ApiServer
from tests.worlds.hostile_files import hostile_files
from tests.worlds.ingest import IngestWorld

BATCH = 25
WITHOUT_ROWS = {"empty", "one byte", "nothing but breaks", "a header alone", "rows of nothing", "quotes", "no columns"}
"""Faults that leave a file without rows, in the formats where it then is a valid one."""
LIMITS = FormatLimits(decompressed_bytes=256 << 20, in_memory_bytes=64 << 20)


@pytest.fixture(scope="module")
def world(server: ApiServer) -> IngestWorld:
    return IngestWorld.create(server)


def test_every_file_is_committed_quarantined_or_empty_and_good_ones_beside_it_go_in(
    world: IngestWorld,
) -> None:
    cases = [case for number, case in enumerate(hostile_files().items()) if number % 5 < 3]  # the door has seen all
    assert len(cases) >= 200
    ingest, failed, good = world.ingest(limits=LIMITS), list[Any](), 0
    for start in range(0, len(cases), BATCH):
        landed = [
            world.put(f"{_table(label, start + number)}/{number}{name}", data)
            for number, (label, (name, data)) in enumerate(cases[start : start + BATCH])
        ]
        good += 1
        landed.append(world.put("good/g.jsonl", b'{"n":%d}\n' % good))
        outcomes = ingest.run(landed)
        assert outcomes.pop().status == "committed"
        failed += [
            (label, outcome.error)
            for (label, _), outcome in zip(cases[start : start + BATCH], outcomes, strict=True)
            if outcome.status not in ("committed", "quarantined")
            and not (outcome.status == "empty" and label.partition(": ")[2] in WITHOUT_ROWS)
        ]
    assert failed == [], "\n".join(map(str, failed))
    assert len(world.rows("good", "n")) == good


def _table(label: str, number: int) -> str:
    """A table for each format; for JSON one for each file, whose columns it then decides."""
    return f"t{number}" if label.startswith("json") else label.partition(":")[0].replace(".", "_")


class Died(BaseException):
    """The process ended: no handler of errors sees it."""


def messages(landed: list[LandedFile], receives: int) -> list[dict[str, Any]]:
    """The files as messages of S3 in one batch of the queue."""
    return [
        {
            "messageId": str(number),
            "attributes": {"ApproximateReceiveCount": str(receives)},
            "body": json.dumps(
                {
                    "Records": [
                        {
                            "eventName": "ObjectCreated:Put",
                            "s3": {
                                "bucket": {"name": file.bucket},
                                "object": {"key": file.key, "versionId": file.version_id},
                            },
                        }
                    ]
                }
            ),
        }
        for number, file in enumerate(landed)
    ]


def test_a_file_that_ends_the_process_takes_nobody_along(world: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The killer's message comes back with those beside it, until it is read alone and known as the cause."""
    names = ("a", "killer", "b", "c")
    landed = [world.put(f"beside/{name}.jsonl", b'{"name":"%s"}\n' % name.encode()) for name in names]
    read_rows = function.Ingest._rows

    def rows(ingest: Any, file: Any, *rest: Any) -> Any:
        if "killer" in file.source.landed.key:
            raise Died
        return read_rows(ingest, file, *rest)

    monkeypatch.setattr(function.Ingest, "_rows", rows)
    monkeypatch.setattr(function, "ingest", world.ingest)
    monkeypatch.setattr(function, "_measure", lambda *_: None)
    for delivery in range(1, 20):
        try:
            refused = function._serve(messages(landed, delivery))
            break
        except Died:
            continue
    assert refused == {} and delivery <= function.RECEIVES_TOGETHER + MAX_DEATHS + 1
    assert world.rows("beside", "name") == [("a",), ("b",), ("c",)]
    (report,) = world.reports("beside").values()
    assert "killer" in report["source"] and "processes ended while they read this file" in report["reason"]


def test_a_file_that_failed_for_other_reasons_is_read_as_often_as_it_comes(world: IngestWorld) -> None:
    landed = world.put("patient/a.jsonl", b'{"n":1}\n')
    for _ in range(MAX_DEATHS + 2):
        assert world.ingest().run_alone(landed).status in ("committed", "duplicate")


def test_a_file_of_somebody_who_may_not_create_the_table_does_not(world: IngestWorld) -> None:
    def put(name: str) -> LandedFile:
        key = f"landing/{world.namespace}/{name}"
        stored = world.client("s3").put_object(Bucket=world.bucket, Key=key, Body=b'{"n":1}\n', Metadata=MUST_EXIST)
        return LandedFile(world.bucket, key, stored.get("VersionId"))

    (outcome,) = world.ingest().run([put("forbidden/a.jsonl")])
    assert outcome.status == "quarantined" and "may not create it" in str(outcome.error)
    assert f"{world.namespace}.forbidden" not in world.tables().list(world.namespace)
    world.drop({"forbidden/b.jsonl": b'{"n":2}\n'})
    (outcome,) = world.ingest().run([put("forbidden/c.jsonl")])
    assert outcome.status == "committed"
