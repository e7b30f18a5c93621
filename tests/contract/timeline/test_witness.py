"""A witness over HTTP (c2sp.org/tlog-witness), with its records in S3: what it cosigns it never takes back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest

from catalog.core.errors import Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.cosignature import WitnessSigner, read_cosignatures
from catalog.merkle.note import Ed25519Signer, open_note
from catalog.merkle.tiles import Tile, hash_reader
from catalog.merkle.tree import consistency_proof
from catalog.merkle.witness import AddCheckpoint, WitnessRecord, origin_hash
from catalog.timeline.witness.records import StoredRecord, WitnessRecords
from catalog.timeline.witness.server import MAX_BODY_BYTES
from infra.local.server import ApiServer
from tests.worlds.witness import PREFIX, PublishedLog, service, witness

LOG = Ed25519Signer.generate("lake.example/log")
WITNESS = WitnessSigner.generate("witness.example/w1")
EMPTY_ROOT = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


@pytest.fixture
def s3(server: ApiServer) -> Any:
    return server.endpoint.client("s3", "person")


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"witness-{uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def log(s3: Any, bucket: str) -> PublishedLog:
    """Ten leaves; nothing of it is published."""
    made = PublishedLog(s3, bucket, LOG)
    made.grow(10)
    return made


@pytest.fixture
def url(s3: Any, bucket: str) -> Iterator[str]:
    with witness(WITNESS, [LOG.verifier_key], s3, bucket) as url:
        yield url


def request(log: PublishedLog, old: int, size: int) -> bytes:
    """The request of an honest log: its checkpoint of `size`, with the proof from `old`."""
    read = hash_reader(log.frontier.size, lambda paths: [log.tiles[Tile.parse(path)] for path in paths])
    whole = PublishedLog(log.s3, log.bucket, LOG)
    note = whole.grow(size)
    proof = consistency_proof(old, size, read) if 0 < old < size else ()
    return AddCheckpoint(old, tuple(proof), note).encode()


def signed(size: int, root: bytes) -> bytes:
    return Checkpoint(LOG.name, size, root).sign([LOG])


def post(url: str, body: bytes) -> httpx.Response:
    return httpx.post(f"{url}/add-checkpoint", content=body)


def record(s3: Any, bucket: str) -> bytes:
    path = f"{PREFIX}{WITNESS.witness_key.key_id.hex()}/{origin_hash(LOG.name)}"
    return bytes(s3.get_object(Bucket=bucket, Key=path)["Body"].read())


def size_of(note: bytes) -> int:
    return Checkpoint.parse(open_note(note, [LOG.verifier_key]).text).size


def test_a_checkpoint_is_cosigned_kept_and_served(url: str, log: PublishedLog, s3: Any, bucket: str) -> None:
    latest = f"{url}/{origin_hash(LOG.name)}/checkpoint"
    assert httpx.get(latest).status_code == 404
    for old, size in ((0, 3), (3, 3), (3, 10)):
        body = request(log, old, size)
        response = post(url, body)
        assert response.status_code == 200
        note = AddCheckpoint.decode(body).note
        (cosignature,) = read_cosignatures(note + response.content, [WITNESS.witness_key])
        assert cosignature.timestamp > 1_700_000_000
        served = httpx.get(latest)
        assert (served.status_code, served.content) == (200, note + response.content)
        assert record(s3, bucket) == served.content


def test_the_wrong_old_size_is_a_conflict_that_tells_the_right_one(url: str, log: PublishedLog) -> None:
    assert post(url, request(log, 0, 4)).status_code == 200
    for old, size in ((0, 10), (3, 10), (5, 10), (0, 4)):
        response = post(url, request(log, old, size))
        assert (response.status_code, response.content) == (409, b"4\n")
        assert response.headers["content-type"] == "text/x.tlog.size"


def _fork(log: PublishedLog) -> dict[str, tuple[int, bytes]]:
    """Requests that a witness at size 4 refuses: status and body."""
    honest = AddCheckpoint.decode(request(log, 4, 10))
    stranger = Checkpoint(LOG.name, 10, b"r" * 32).sign([Ed25519Signer.generate(LOG.name)])
    other = Checkpoint("other.example/log", 10, b"r" * 32).sign([Ed25519Signer.generate("other.example/log")])
    false = honest.note.replace(b"\n10\n", b"\n11\n")
    return {
        "another tree": (422, AddCheckpoint(4, honest.proof, signed(10, b"r" * 32)).encode()),
        "another tree of the same size": (422, AddCheckpoint(4, (), signed(4, b"r" * 32)).encode()),
        "no proof": (422, AddCheckpoint(4, (), honest.note).encode()),
        "a hash too many": (422, AddCheckpoint(4, (*honest.proof, b"h" * 32), honest.note).encode()),
        "a smaller tree": (400, AddCheckpoint(4, (), signed(3, b"r" * 32)).encode()),
        "a stranger's key": (403, AddCheckpoint(4, honest.proof, stranger).encode()),
        "a signature on another text": (403, AddCheckpoint(4, honest.proof, false).encode()),
        "another log": (404, AddCheckpoint(4, honest.proof, other).encode()),
        "64 hashes": (400, AddCheckpoint(4, (b"h" * 32,) * 64, honest.note).encode()),
        "no old size": (400, honest.encode().partition(b"\n")[2]),
        "a leading zero": (400, honest.encode().replace(b"old 4", b"old 04", 1)),
        "a negative old size": (400, honest.encode().replace(b"old 4", b"old -4", 1)),
        "nothing": (400, b""),
        "a body over the limit": (400, b"x" * (MAX_BODY_BYTES + 1)),
    }


def test_what_a_witness_refuses_leaves_its_record_as_it_was(url: str, log: PublishedLog, s3: Any, bucket: str) -> None:
    assert post(url, request(log, 0, 4)).status_code == 200
    before = record(s3, bucket)
    for name, (status, body) in _fork(log).items():
        response = post(url, body)
        assert (name, response.status_code) == (name, status)
        assert "witness.example" not in response.text, name
        assert record(s3, bucket) == before, name
    assert post(url, request(log, 4, 10)).status_code == 200


def test_from_nothing_a_proof_is_refused_and_so_is_a_false_empty_tree(url: str, log: PublishedLog) -> None:
    note = AddCheckpoint.decode(request(log, 0, 4)).note
    assert post(url, AddCheckpoint(0, (b"h" * 32,), note).encode()).status_code == 422
    assert post(url, AddCheckpoint(0, (), signed(0, b"r" * 32)).encode()).status_code == 422
    assert post(url, AddCheckpoint(0, (), signed(0, EMPTY_ROOT)).encode()).status_code == 200
    assert post(url, AddCheckpoint(0, (), note).encode()).status_code == 200


def test_other_paths_and_methods(url: str) -> None:
    assert httpx.get(f"{url}/add-checkpoint").status_code == 405
    assert httpx.post(f"{url}/{origin_hash(LOG.name)}/checkpoint").status_code == 405
    for path in (
        "/",
        "/checkpoint",
        f"/{origin_hash('other')}/checkpoint",
        f"/{origin_hash(LOG.name).upper()}/checkpoint",
    ):
        assert httpx.get(url + path).status_code == 404


def _raw(url: str, data: bytes) -> bytes:
    """What the server says to these bytes, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_bodies_may_be_chunked_and_never_ambiguous(url: str, log: PublishedLog) -> None:
    body = request(log, 0, 4)
    assert httpx.post(f"{url}/add-checkpoint", content=iter([body[:10], body[10:]])).status_code == 200
    head = b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    again = request(log, 4, 4)
    chunks = b"\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(again), again)
    assert _raw(url, head + chunked + b"Connection: close\r\n" + chunks).startswith(b"HTTP/1.1 200 OK\r\n")
    length = b"Content-Length: %d\r\n" % len(again)
    refused = {
        "both": head + chunked + length + chunks,
        "chunked twice": head + chunked + chunked + chunks,
        "two lengths": head + length + length + b"\r\n" + again,
        "a length that is none": head + b"Content-Length: +1\r\n\r\nx",
        "another coding": head + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "no chunk": head + chunked + b"\r\nxyz\r\n",
        "a chunk that ends early": head + chunked + b"\r\nff\r\nxx",
        "a body that ends early": head + b"Content-Length: 100\r\n\r\nold 0\n",
        "chunks without end": head + chunked + b"\r\n" + (b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n") * 2,
    }
    for name, data in refused.items():
        said = _raw(url, data)
        assert (name, said.partition(b"\r\n")[0]) == (name, b"HTTP/1.1 400 Bad Request")
        assert said.count(b"HTTP/1.1") == 1, name


class Killed(BaseException):
    """The process ends here."""


class DiesAfterStoring(WitnessRecords):
    def replace(self, origin: str, current: StoredRecord, record: WitnessRecord) -> bool:
        assert super().replace(origin, current, record)
        raise Killed


def test_a_witness_killed_between_storing_and_responding_loses_nothing(s3: Any, bucket: str, log: PublishedLog) -> None:
    logs = [LOG.verifier_key]
    with pytest.raises(Killed):
        service(WITNESS, logs, s3, bucket, records=DiesAfterStoring).respond(
            "POST", "/add-checkpoint", request(log, 0, 4)
        )
    again = service(WITNESS, logs, s3, bucket)
    assert size_of(record(s3, bucket)) == 4
    forked = AddCheckpoint(0, (), signed(4, b"r" * 32)).encode()
    assert again.respond("POST", "/add-checkpoint", forked).status == 409
    forked = AddCheckpoint(4, (), signed(4, b"r" * 32)).encode()
    assert again.respond("POST", "/add-checkpoint", forked).status == 422
    response = again.respond("POST", "/add-checkpoint", request(log, 0, 4))
    assert (response.status, response.body) == (409, b"4\n")
    assert again.respond("POST", "/add-checkpoint", request(log, 4, 4)).status == 200


@pytest.mark.parametrize("old", [0, 3])
def test_of_two_requests_at_once_one_is_told_to_try_again(s3: Any, bucket: str, log: PublishedLog, old: int) -> None:
    """Both read the same record before either stores: the race by which a witness would be rolled back."""
    if old:
        assert service(WITNESS, [LOG.verifier_key], s3, bucket).respond(
            "POST", "/add-checkpoint", request(log, 0, old)
        ).status == 200  # fmt: skip
    both_loaded = threading.Barrier(2)

    class Together(WitnessRecords):
        waited: set[int] = set()  # noqa: RUF012

        def load(self, origin: str) -> StoredRecord:
            loaded = super().load(origin)
            if threading.get_ident() not in self.waited:
                self.waited.add(threading.get_ident())
                both_loaded.wait()
            return loaded

    raced = service(WITNESS, [LOG.verifier_key], s3, bucket, records=Together)
    sizes = (4, 10)
    with ThreadPoolExecutor(2) as pool:
        bodies = [request(log, old, size) for size in sizes]
        responses = list(pool.map(lambda body: raced.respond("POST", "/add-checkpoint", body), bodies))
    assert sorted(response.status for response in responses) == [200, 409]
    won = sizes[[response.status for response in responses].index(200)]
    assert size_of(record(s3, bucket)) == won
    assert b"%d\n" % won in [response.body for response in responses]


def test_many_requests_at_once_never_go_back(url: str, s3: Any, bucket: str, log: PublishedLog) -> None:
    """Every checkpoint that was cosigned is one size on a single way up."""
    with ThreadPoolExecutor(8) as pool:
        bodies = [request(log, old, size) for old in range(10) for size in range(max(old, 1), 11)]
        responses = list(pool.map(lambda body: (body, post(url, body)), bodies * 2))
    cosigned = [AddCheckpoint.decode(body) for body, response in responses if response.status_code == 200]
    steps = {(one.old_size, size_of(one.note)) for one in cosigned}
    at, path = 0, []
    for old, new in sorted(steps):
        if new > old:
            assert old == at, f"two ways from one record: {sorted(steps)}"
            at = new
            path.append(new)
    assert size_of(record(s3, bucket)) == at
    assert {response.status_code for _, response in responses} <= {200, 409}


def test_an_altered_record_is_not_believed(s3: Any, bucket: str, log: PublishedLog) -> None:
    """Somebody who can write the record could otherwise take the witness back."""
    one = service(WITNESS, [LOG.verifier_key], s3, bucket)
    assert one.respond("POST", "/add-checkpoint", request(log, 0, 4)).status == 200
    path = one.records.path(LOG.name)
    stored = record(s3, bucket)
    other = WitnessSigner.generate(WITNESS.name)
    for altered in (
        b"",
        b"rubbish",
        AddCheckpoint.decode(request(log, 0, 3)).note,
        stored.replace(b"\n4\n", b"\n3\n"),
        signed(3, b"r" * 32) + other.cosign(Checkpoint(LOG.name, 3, b"r" * 32).text(), 1).encode(),
    ):
        s3.put_object(Bucket=bucket, Key=path, Body=altered)
        with pytest.raises(Unverified, match="was altered"):
            one.records.load(LOG.name)
        response = one.respond("POST", "/add-checkpoint", request(log, 0, 10))
        assert (response.status, b"witness.example" in response.body) == (503, False)
    s3.put_object(Bucket=bucket, Key=path, Body=stored)
    assert one.respond("POST", "/add-checkpoint", request(log, 4, 10)).status == 200


def test_without_its_bucket_a_witness_cosigns_nothing(s3: Any, log: PublishedLog) -> None:
    one = service(WITNESS, [LOG.verifier_key], s3, "no-such-bucket")
    assert one.respond("POST", "/add-checkpoint", request(log, 0, 4)).status == 503
