"""The Python client against a real server on loopback that answers as told: retries, keys, pages, links, problems."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pyarrow as pa
import pytest

from strandline.client import ARROW, Client, Problem
from strandline.connection import MAX_PAUSE_S


@dataclass
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """Answers requests with what is queued, in order; remembers what it was asked."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes] | None] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def will(self, status: int, body: Any = None, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, {"Content-Type": "application/json", **named}, content))

    def will_hang_up(self) -> None:
        self.answers.append(None)


@pytest.fixture
def server() -> Iterator[Server]:
    script = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.seen.append(Seen(self.command, self.path, headers, body))
            told = script.answers.pop(0)
            if told is None:
                self.close_connection = True
                self.connection.close()
                return
            status, sent, content = told
            self.send_response(status)
            for name, value in sent.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield script
    listener.shutdown()
    listener.server_close()
    assert not script.answers, "the client asked less than it should have"


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(server: Server, pauses: list[float]) -> Iterator[Client]:
    with Client(server.url, "a-token", attempts=4, sleep=pauses.append) as client:
        yield client


def problem(kind: str, status: int) -> dict[str, Any]:
    return {"type": f"urn:strandline:{kind}", "status": status, "detail": "because", "instance": "7"}


class TestRetries:
    def test_later_is_tried_again_after_what_the_server_asks_for(
        self, server: Server, client: Client, pauses: list[float]
    ) -> None:
        server.will(503, problem("unavailable", 503), Retry_After="2")
        server.will(429, {"message": "Too Many Requests"})
        server.will(200, {"status": "ok"})
        assert client.health() == {"status": "ok"}
        assert 2 <= pauses[0] <= 2.2 and 0 <= pauses[1] <= 0.3

    def test_a_server_cannot_make_it_wait_for_ever(self, server: Server, client: Client, pauses: list[float]) -> None:
        server.will(503, {}, Retry_After="86400")
        server.will(200, {"status": "ok"})
        client.health()
        assert pauses[0] <= MAX_PAUSE_S + 1

    def test_it_gives_up_and_says_why(self, server: Server, client: Client, pauses: list[float]) -> None:
        for _ in range(4):
            server.will(503, problem("unavailable", 503))
        with pytest.raises(Problem) as caught:
            client.health()
        assert (caught.value.status, caught.value.kind, len(pauses)) == (503, "unavailable", 3)

    def test_a_write_whose_answer_was_lost_is_sent_again_under_the_same_key(
        self, server: Server, client: Client
    ) -> None:
        server.will_hang_up()
        server.will(200, {"rows": 1})
        client.insert("a.b", [{"n": 1}])
        first, second = server.seen
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"] and first.body == second.body

    @pytest.mark.parametrize("status", [500, 502, 503, 504])
    def test_a_server_that_failed_is_asked_again_under_the_same_key(
        self, server: Server, client: Client, pauses: list[float], status: int
    ) -> None:
        for _ in range(2):
            server.will(status, problem("internal", status))
        server.will(200, {"rows": 1})
        client.insert("a.b", [{"n": 1}])
        server.will(status, problem("internal", status))
        server.will(200, {"name": "a.b"})
        assert client.describe("a.b") == {"name": "a.b"}
        keys = {one.headers.get("idempotency-key") for one in server.seen[:3]}
        assert len(keys) == 1 and None not in keys and len(pauses) == 3

    def test_a_server_that_fails_every_time_is_given_up_with_its_own_problem(
        self, server: Server, client: Client, pauses: list[float]
    ) -> None:
        for _ in range(4):
            server.will(500, problem("internal", 500))
        with pytest.raises(Problem) as caught:
            client.drop_table("a.b")
        assert (caught.value.status, caught.value.kind, len(pauses)) == (500, "internal", 3)
        assert len({one.headers["idempotency-key"] for one in server.seen}) == 1

    def test_two_writes_have_two_keys_unless_told(self, server: Server, client: Client) -> None:
        for _ in range(3):
            server.will(200, {"rows": 1})
        client.insert("a.b", [{"n": 1}])
        client.insert("a.b", [{"n": 1}])
        client.insert("a.b", [{"n": 1}], idempotency_key="mine")
        keys = [one.headers["idempotency-key"] for one in server.seen]
        assert len(set(keys)) == 3 and keys[2] == "mine"

    def test_what_is_wrong_stays_wrong(self, server: Server, client: Client, pauses: list[float]) -> None:
        server.will(400, problem("invalid", 400))
        with pytest.raises(Problem, match="because"):
            client.describe("a.b")
        assert not pauses

    def test_a_server_that_is_not_there(self) -> None:
        pauses: list[float] = []
        with Client("http://127.0.0.1:1", attempts=2, sleep=pauses.append) as client, pytest.raises(httpx.ConnectError):
            client.health()
        assert len(pauses) == 1


class TestAnswers:
    def test_pages_are_followed_with_the_token_they_came_with(self, server: Server, client: Client) -> None:
        server.will(200, {"tables": ["a.a", "a.b"], "next": "t+k/="})
        server.will(200, {"tables": ["a.c"]})
        assert list(client.tables("a")) == ["a.a", "a.b", "a.c"]
        assert httpx.URL(server.seen[1].path).params["page"] == "t+k/="
        assert all(one.headers["authorization"] == "Bearer a-token" for one in server.seen)

    def test_a_linked_answer_is_fetched_without_the_token(self, server: Server, client: Client) -> None:
        rows = pa.table({"n": [1, 2, 3]})
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        server.will(303, {"url": "see Location"}, Location=f"{server.url}/elsewhere?sig=1")
        server.will(200, sink.getvalue())
        assert client.rows("a.b", limit=3).equals(rows)
        assert "authorization" not in server.seen[1].headers and server.seen[1].path == "/elsewhere?sig=1"

    def test_arrow_goes_out_as_arrow_and_dicts_as_json(self, server: Server, client: Client) -> None:
        for _ in range(2):
            server.will(200, {"rows": 1})
        client.upsert("a.b", pa.table({"n": [1]}), key=["n"])
        client.insert("a.b", [{"n": 1}])
        arrow, plain = server.seen
        assert arrow.headers["content-type"] == ARROW and pa.ipc.open_stream(arrow.body).read_all().num_rows == 1
        assert httpx.URL(arrow.path).params.multi_items() == [("mode", "upsert"), ("key", "n")]
        assert json.loads(plain.body) == {"rows": [{"n": 1}]}

    def test_the_gateways_own_refusals_have_a_kind_too(self, server: Server, client: Client) -> None:
        server.will(401, {"message": "Unauthorized"})
        with pytest.raises(Problem) as caught:
            client.metrics()
        assert (caught.value.kind, caught.value.detail) == ("unauthenticated", "Unauthorized")

    def test_an_answer_that_is_no_json_is_a_problem_all_the_same(self, server: Server, client: Client) -> None:
        server.will(418, b"<html>")
        with pytest.raises(Problem, match="<html>"):
            client.metrics()

    def test_names_are_quoted(self, server: Server, client: Client) -> None:
        server.will(200, {})
        client.describe("a.b?/c")
        assert server.seen[0].path == "/tables/a.b%3F/c"


def test_it_needs_httpx_and_pyarrow_and_nothing_of_the_lake() -> None:
    code = (
        "import sys, strandline.client; ours = {'catalog', 'infra', 'functions', 'typer', 'boto3', 'pydantic'};"
        "print(sorted(ours & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
