"""Checkpoints are sent to witnesses before they are published; no witness can hold them up or spoil them."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from uuid import uuid4

import pytest

from catalog.core.errors import Invalid, Unavailable
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.cosignature import WitnessSigner, read_cosignatures
from catalog.merkle.note import Ed25519Signer, open_note, split_note
from catalog.merkle.policy import Policy
from catalog.merkle.witness import AddCheckpoint
from catalog.timeline.log import feeder as feeder_module
from catalog.timeline.log.feeder import LIMIT_S, MAX_WITNESSES, REST_S, RETRY_S, Feeder
from catalog.timeline.log.publisher import Publisher
from catalog.timeline.log.witness_client import MAX_RESPONSE_BYTES, WitnessClient
from infra.local.server import ApiServer
from tests.waiting import wait_until
from tests.worlds.witness import PATIENCE_S, PublishedLog, hostile, policy_of, respond, witness

W1, W2 = WitnessSigner.generate("witness.example/w1"), WitnessSigner.generate("witness.example/w2")
Reply = Callable[[BaseHTTPRequestHandler, bytes], None]


class Witnesses:
    """A log, and the witnesses that a test starts for it."""

    def __init__(self, server: ApiServer, stack: ExitStack) -> None:
        self.s3, self.bucket = server.endpoint.client("s3", "person"), f"lake-{uuid4().hex[:12]}"
        self.s3.create_bucket(Bucket=self.bucket)
        self.log = PublishedLog(self.s3, self.bucket, Ed25519Signer.generate("lake.example/log"))
        self._stack = stack
        self.now = [0.0]

    def honest(self, signer: WitnessSigner = W1) -> WitnessClient:
        url = self._stack.enter_context(witness(signer, [self.log.signer.verifier_key], self.s3, self.bucket))
        return WitnessClient(signer.name, signer.witness_key, url)

    def hostile(self, reply: Reply, signer: WitnessSigner = W2) -> WitnessClient:
        url = self._stack.enter_context(hostile(reply))
        return WitnessClient(signer.name, signer.witness_key, url)

    def feed(self, *clients: WitnessClient) -> None:
        self.log.feeder = Feeder(clients, lambda: self.now[0])

    def publish(self, leaves: int = 1) -> list[str]:
        """Publishes that many new leaves; the names of the witnesses whose valid cosignature is on the checkpoint."""
        self.log.grow(leaves)
        note = self.log.publish()
        opened = open_note(note, [self.log.signer.verifier_key])
        assert Checkpoint.parse(opened.text).size == self.log.frontier.size
        assert len(split_note(note)[1]) == 1 + len(read_cosignatures(note, [W1.witness_key, W2.witness_key]))
        return [cosignature.key.name for cosignature in read_cosignatures(note, [W1.witness_key, W2.witness_key])]


@pytest.fixture
def witnesses(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Witnesses]:
    monkeypatch.setattr(feeder_module, "LIMIT_S", PATIENCE_S)
    with ExitStack() as stack:
        yield Witnesses(server, stack)


def test_a_published_checkpoint_carries_the_cosignatures_of_all_witnesses(witnesses: Witnesses) -> None:
    first, second = witnesses.honest(W1), witnesses.honest(W2)
    witnesses.feed(first, second)
    policy = Policy.parse(policy_of(witnesses.log.signer.verifier_key, *policy_lines(first, second)).encode())
    for leaves in (1, 1, 300, 7):
        assert sorted(witnesses.publish(leaves)) == [W1.name, W2.name]
        assert policy.check(witnesses.log.published.note).size == witnesses.log.frontier.size


def policy_lines(*clients: WitnessClient) -> list[tuple[str, object, str]]:
    return [(f"w{number}", client.key, client.url) for number, client in enumerate(clients, 1)]


def test_a_witness_that_missed_checkpoints_is_brought_up_to_the_newest_one(witnesses: Witnesses) -> None:
    """It responds 409 with the size it knows; the proof from there is made from the log's own tiles."""
    client = witnesses.honest()
    witnesses.feed(client)
    assert witnesses.publish(3) == [W1.name]
    witnesses.feed()
    assert witnesses.publish(300) == []
    assert witnesses.publish(5) == []
    witnesses.feed(client)
    assert witnesses.publish(70) == [W1.name]


def test_a_witness_that_never_saw_the_log_and_one_that_forgot_it_begin_anew(witnesses: Witnesses) -> None:
    witnesses.feed()
    witnesses.publish(5)
    witnesses.feed(witnesses.honest())
    assert witnesses.publish(5) == [W1.name]
    for item in witnesses.s3.list_objects_v2(Bucket=witnesses.bucket, Prefix="witness/")["Contents"]:
        witnesses.s3.delete_object(Bucket=witnesses.bucket, Key=item["Key"])
    assert witnesses.publish(5) == [W1.name]


def test_a_silent_witness_does_not_hold_up_the_checkpoint(
    witnesses: Witnesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the request and never responds while the test runs: publishing that waited for it would hang."""
    assert LIMIT_S == 1.0
    monkeypatch.setattr(feeder_module, "LIMIT_S", LIMIT_S)
    done = threading.Event()
    witnesses.feed(witnesses.hostile(lambda handler, body: done.wait() and None))
    assert witnesses.publish() == []
    done.set()


def _drip(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    while True:  # ends when the client hangs up
        handler.wfile.write(b"x" * 64)
        handler.wfile.flush()


def _endless(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65536)


def _bomb(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    respond(handler, 200, gzip.compress(bytes(1 << 24)), Content_Encoding="gzip")


def _cosigned_otherwise(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    text = split_note(AddCheckpoint.decode(body).note)[0]
    respond(handler, 200, W2.cosign(text.replace("lake.example", "lake.exampl3"), 1_800_000_000).encode())


def _cosigned_by_a_stranger(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    stranger = WitnessSigner.generate(W2.name)
    respond(handler, 200, stranger.cosign(split_note(AddCheckpoint.decode(body).note)[0], 1_800_000_000).encode())


def _valid_and_then_rubbish(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    line = W2.cosign(split_note(AddCheckpoint.decode(body).note)[0], 1_800_000_000)
    respond(handler, 200, f"{line}\nlake.example/log\n7\n".encode())


def _many_lines(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    line = W2.cosign(split_note(AddCheckpoint.decode(body).note)[0], 1_800_000_000)
    respond(handler, 200, line.encode() * 101)


def _hang_up(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.close_connection = True


def _replies(status: int, body: bytes) -> Reply:
    return lambda handler, _: respond(handler, status, body)


HOSTILE: dict[str, Reply] = {
    "a body that drips": _drip,
    "a body without end": _endless,
    "a body over the limit": _replies(200, b"x" * (MAX_RESPONSE_BYTES + 1)),
    "a compressed body": _bomb,
    "a page of HTML": _replies(200, b"<html>captive portal</html>\n"),
    "an empty body": _replies(200, b""),
    "not UTF-8": _replies(200, b"\xff\xfe\n"),
    "a cosignature on another text": _cosigned_otherwise,
    "a stranger's cosignature under its name": _cosigned_by_a_stranger,
    "a cosignature and then rubbish": _valid_and_then_rubbish,
    "more lines than a note may have": _many_lines,
    "a hung-up connection": _hang_up,
    "a larger size": _replies(409, b"4611686018427387904\n"),
    "a size that is none": _replies(409, b"-1\n"),
    "a size in other digits": _replies(409, "٣\n".encode()),
    "a conflict without end": _replies(409, b"0\n"),
    "a refusal": _replies(422, b"the proof is wrong\n"),
    "a failure": _replies(500, b"x" * 10_000),
    "no content": _replies(204, b""),
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_witness_spoils_nothing_but_its_own_cosignature(witnesses: Witnesses, reply: Reply) -> None:
    witnesses.feed(witnesses.hostile(reply), witnesses.honest())
    assert witnesses.publish(3) == [W1.name]
    assert witnesses.publish(3) == [W1.name]


def test_no_more_of_a_response_is_read_than_a_cosignature_can_have() -> None:
    """Without the limit this would read for an hour, and keep all of it."""
    with hostile(_endless) as url:
        client = WitnessClient(W1.name, W1.witness_key, url)
        with pytest.raises(Unavailable, match=f"more than {MAX_RESPONSE_BYTES} bytes"):
            client.add_checkpoint(AddCheckpoint(0, (), b"note"), time.monotonic() + 3600)


def test_a_redirect_is_not_followed(witnesses: Witnesses) -> None:
    followed: list[bytes] = []
    target = witnesses.hostile(lambda handler, body: followed.append(body))

    def redirect(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        respond(handler, 307, Location=f"{target.url}/add-checkpoint")

    witnesses.feed(witnesses.hostile(redirect), witnesses.honest())
    assert witnesses.publish() == [W1.name]
    assert followed == []


def test_a_witness_that_is_down_is_left_out(witnesses: Witnesses) -> None:
    with hostile(_hang_up) as url:
        gone = WitnessClient(W2.name, W2.witness_key, url)
    witnesses.feed(gone, witnesses.honest())
    assert witnesses.publish() == [W1.name]


def test_a_witness_gets_the_logs_own_signature_alone_and_two_requests_at_most(witnesses: Witnesses) -> None:
    """Other witnesses' lines would only make the request larger: litewitness takes 10 KB."""
    requests: list[AddCheckpoint] = []

    def conflict(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        requests.append(AddCheckpoint.decode(body))
        respond(handler, 409, b"%d\n" % len(requests))

    witnesses.feed(witnesses.honest(), witnesses.hostile(conflict))
    assert witnesses.publish(9) == [W1.name]
    assert [request.old_size for request in requests] == [0, 1]
    assert {request.note for request in requests} == {witnesses.log.own_note()}


def test_a_cosignature_that_was_late_is_added_to_the_published_checkpoint(witnesses: Witnesses) -> None:
    """Once in RETRY_S, and the checkpoint's text and its other signatures stay."""
    is_up = threading.Event()

    def late(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if not is_up.is_set():
            respond(handler, 503)
            return
        respond(handler, 200, W2.cosign(split_note(AddCheckpoint.decode(body).note)[0], 1_800_000_000).encode())

    witnesses.feed(witnesses.hostile(late), witnesses.honest())
    assert witnesses.publish(4) == [W1.name]
    before = witnesses.log.published.note
    is_up.set()
    publisher = Publisher(witnesses.s3, witnesses.bucket, witnesses.log.feeder)
    assert not publisher.lacks_cosignatures(witnesses.log.published)
    witnesses.now[0] += RETRY_S
    assert publisher.lacks_cosignatures(witnesses.log.published)
    assert witnesses.publish(0) == [W1.name, W2.name]
    assert witnesses.log.published.note.startswith(before)
    witnesses.now[0] += RETRY_S
    assert not publisher.lacks_cosignatures(witnesses.log.published)
    etag = witnesses.log.published.etag
    witnesses.publish(0)
    assert witnesses.log.published.etag == etag


def test_a_false_cosignature_that_somebody_added_to_the_published_note_is_dropped(witnesses: Witnesses) -> None:
    witnesses.feed(witnesses.honest())
    assert witnesses.publish(2) == [W1.name]
    spoilt = witnesses.log.own_note() + W1.cosign("another text\n", 1).encode()
    witnesses.s3.put_object(Bucket=witnesses.bucket, Key="timeline/checkpoint", Body=spoilt)
    witnesses.log.published = Publisher(witnesses.s3, witnesses.bucket).published()
    assert witnesses.publish(0) == [W1.name]
    assert witnesses.publish(2) == [W1.name]


def test_a_witness_that_misses_the_limit_twice_rests(witnesses: Witnesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would delay every checkpoint by the whole limit."""
    monkeypatch.setattr(feeder_module, "LIMIT_S", 0.05)
    asked: list[bytes] = []
    released = threading.Semaphore(0)

    def slow(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        asked.append(body)
        released.acquire()
        handler.close_connection = True

    witnesses.feed(witnesses.hostile(slow))
    fed = witnesses.log.feeder._fed[0]  # type: ignore[union-attr]
    for misses in (1, 2):
        witnesses.publish()
        assert (len(asked), fed.missed) == (misses, misses)
        witnesses.publish()  # it keeps the first request waiting: no second thread
        assert len(asked) == misses
        released.release()
        wait_until(lambda: not fed.is_busy, "the witness's connection to end")
    witnesses.publish()
    assert len(asked) == 2
    witnesses.now[0] += REST_S
    witnesses.publish()
    assert len(asked) == 3
    released.release()


@pytest.mark.parametrize(
    "url",
    [
        "http://witness.example/",
        "http://127.0.0.1.example/",
        "https://user:secret@witness.example/",
        "https://witness.example/?log=1",
        "https://witness.example/#x",
        "ftp://witness.example/",
        "file:///etc/passwd",
        "witness.example",
        "https://",
        "https://wítness.example/",
    ],
)
def test_only_https_urls_are_taken_but_for_this_machine(url: str) -> None:
    with pytest.raises(Invalid, match="URL"):
        WitnessClient("w", W1.witness_key, url)
    for fine in ("https://witness.example/w1/", "http://localhost:7380", "http://127.0.0.1:1/", "http://[::1]:1"):
        assert WitnessClient("w", W1.witness_key, fine).url == fine


def test_the_setting_is_a_policy_file_with_witnesses_that_have_urls() -> None:
    line = f"witness w1 {W1.witness_key} https://witness.example/w1"
    assert [client.url for client in Feeder.parse(f"{line}\nquorum w1\n").clients] == ["https://witness.example/w1"]
    without_url = f"witness w1 {W1.witness_key}\nquorum w1\n"
    many = [f"witness w{n} {WitnessSigner.generate(f'w{n}').witness_key} https://w" for n in range(MAX_WITNESSES + 1)]
    for wrong in (line, "", "quorum none\n", without_url, "\n".join([*many, "quorum none"])):
        with pytest.raises(Invalid):
            Feeder.parse(wrong)
