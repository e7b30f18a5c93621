"""Where is my file now: every file's fate is found by its digest, and no version of it makes rows twice."""

from __future__ import annotations

from hashlib import sha256

import pytest

from catalog.ingest.ledger import LedgerRecord
from infra.local.faults import refuse
from infra.local.server import ApiServer
from tests.worlds.ingest import FUNCTION, IngestWorld


@pytest.fixture
def world(server: ApiServer) -> IngestWorld:
    return IngestWorld.create(server)


def told(record: LedgerRecord) -> tuple[str, str, int | None, str | None]:
    return record.state, record.key.rpartition("/")[2], record.snapshot_id, record.duplicate_of


def test_a_committed_file_is_found_with_its_table_and_snapshot(world: IngestWorld) -> None:
    body = b'{"id": 1}\n{"id": 2}\n'
    world.drop({"t/a.jsonl": body})
    (record,) = world.ledger.find(sha256(body).hexdigest())
    assert (record.state, record.table, record.rows, record.size) == ("committed", world.name("t"), 2, len(body))
    assert record.snapshot_id == world.tables().history(world.name("t"))[0].snapshot_id
    assert world.ledger.find("0" * 64) == []


def test_every_file_with_the_same_bytes_is_found_by_them(world: IngestWorld) -> None:
    body = b'{"id": 1}\n'
    world.drop({"t/a.jsonl": body, "t/b.jsonl": body})
    world.drop({"t/c.jsonl": body, "u/d.jsonl": body})
    second, first = (entry.snapshot_id for entry in world.tables().history(world.name("t")))
    other = world.tables().history(world.name("u"))[0].snapshot_id
    records = world.ledger.find(sha256(body).hexdigest())
    assert sorted(map(told, records)) == sorted(
        [
            ("committed", "a.jsonl", first, None),
            ("committed", "b.jsonl", first, None),
            ("committed", "c.jsonl", second, None),
            ("committed", "d.jsonl", other, None),
        ]
    )


def test_a_second_delivery_does_not_make_a_file_its_own_duplicate(world: IngestWorld) -> None:
    landed = world.put("t/a.jsonl", b'{"id": 1}\n')
    (first,), (second,) = world.ingest().run([landed]), world.ingest().run([landed])
    assert (first.status, second.status) == ("committed", "duplicate")
    (record,) = world.ledger.find(str(first.digest))
    assert (record.state, record.snapshot_id) == ("committed", first.snapshot_id)


def test_whose_rows_are_there_is_known_though_the_ledger_never_heard(world: IngestWorld) -> None:
    """As after a crash between the commit and the record: the snapshot itself says whose rows they are."""
    landed = world.put("t/a.jsonl", b'{"id": 1}\n')
    (first,) = world.ingest().run([landed])
    world.client("s3").delete_object(Bucket=world.bucket, Key=f"ingested/{first.digest}/{first.source}.json")
    (again,) = world.ingest().run([landed])
    assert (again.status, again.snapshot_id) == ("duplicate", first.snapshot_id)
    (record,) = world.ledger.find(str(first.digest))
    assert (record.state, record.key, record.snapshot_id) == ("committed", landed.key, first.snapshot_id)
    assert world.rows("t", "id") == [(1,)]


def test_a_quarantined_file_is_found_with_its_report(world: IngestWorld) -> None:
    (outcome,) = world.drop({"t/a.jsonl": b'{"id": 1}\n{"id":'})
    (record,) = world.ledger.find(str(outcome.digest))
    assert (record.state, record.position, record.report) == ("quarantined", {"line": 2}, outcome.report)
    assert record.report in world.objects("quarantine/")


def test_a_file_is_not_ingested_again_when_its_snapshot_has_expired(world: IngestWorld) -> None:
    name, landed = world.name("t"), world.put("t/a.jsonl", b'{"id": 1}\n')
    world.ingest().run([landed])
    world.drop({"t/b.jsonl": b'{"id": 2}\n'})
    gone = world.tables().history(name)[-1].snapshot_id
    world.tables().expire(name, older_than=2**62)
    assert len(world.tables().history(name)) == 1
    (again,) = world.ingest().run([landed])
    assert (again.status, again.snapshot_id) == ("duplicate", gone)
    assert world.rows("t", "id") == [(1,), (2,)]
    (new,) = world.drop({"t/d.jsonl": b'{"id": 3}\n'})
    assert new.status == "committed"


def test_a_table_of_the_same_name_made_later_takes_the_file(world: IngestWorld) -> None:
    for _ in range(2):
        (outcome,) = world.drop({"t/a.jsonl": b'{"id": 1}\n'})
        world.drop({"t/b.jsonl": b'{"id": 2}\n'})
        world.tables().expire(world.name("t"), older_than=2**62)
        assert outcome.status == "committed"
        world.tables().drop(world.name("t"))


def test_a_file_costs_one_small_put_more_than_its_commit(world: IngestWorld) -> None:
    world.drop({"t/a.jsonl": b'{"id": 0}\n'})
    ingest = world.ingest()
    for count in (1, 5):
        files = [world.put(f"t/{count}-{n}.jsonl", b'{"id": %d}\n' % (10 * count + n)) for n in range(count)]
        mark = world.server.log.mark()
        ingest.run(files)
        made = world.server.log.since(mark, lambda request: request.principal == FUNCTION)
        notes = [request for request in made if request.method == "PUT" and request.touches("ingested/")]
        rules = [request for request in made if request.touches("rules/")]
        assert (len(notes), len(rules)) == (count, 1)
        assert not [request for request in made if request.method == "GET" and request.touches("ingested/")]
    assert len(world.tables().history(world.name("t"))) == 3, "however many files: one commit a run"


def test_why_the_lake_could_not_is_found_by_key(world: IngestWorld) -> None:
    landed = world.put("t/a.jsonl", b'{"id": 1}\n')
    assert world.ledger.failure(landed.key, landed.version_id) is None
    with world.server.faults.fault(lambda request: request.service == "glue", refuse):
        (outcome,) = world.ingest().run([landed])
    assert outcome.status == "failed"
    failure = world.ledger.failure(landed.key, landed.version_id)
    assert failure is not None and failure.state == "failed" and failure.reason
