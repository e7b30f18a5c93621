"""The listener under the embedded cloud: connections are kept, and nothing of one request reaches the next."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection, RemoteDisconnected
from typing import Any

import pytest

from infra.local.listener import Listener


def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    path = environ["PATH_INFO"]
    if path == "/lost":
        raise ConnectionResetError("on purpose")
    if path == "/fails":
        raise ValueError("on purpose")
    if path == "/unread":
        start_response("200 OK", [])
        return [b"did not ", b"look"]
    if path == "/nothing":
        start_response("204 No Content", [])
        return []
    body = environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Length", str(len(body))), ("X-Raw", environ["RAW_URI"])])
    return [body]


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener(app, 0, "test")
    listener.start()
    yield listener
    listener.stop()


@pytest.fixture
def line(listener: Listener) -> Iterator[HTTPConnection]:
    line = HTTPConnection("127.0.0.1", listener.port, timeout=60)
    yield line
    line.close()


def ask(line: HTTPConnection, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, bytes]:
    line.request(method, path, body, **more)
    answer = line.getresponse()
    return answer.status, answer.read()


def test_a_connection_serves_one_request_after_another(line: HTTPConnection) -> None:
    assert ask(line, "POST", "/echo", b"first") == (200, b"first")
    used = line.sock
    assert ask(line, "PUT", "/unread", b"GET /echo HTTP/1.1\r\n\r\n" * 5000) == (200, b"did not look")
    assert ask(line, "GET", "/nothing") == (204, b"")
    assert ask(line, "HEAD", "/unread") == (200, b"")
    assert ask(line, "POST", "/echo", iter([b"in ", b"chunks"]), encode_chunked=True) == (200, b"in chunks")
    assert ask(line, "POST", "/fails", b"x") == (500, b"")
    assert ask(line, "POST", "/echo", b"x" * (1 << 20)) == (200, b"x" * (1 << 20))
    assert line.sock is used


def test_who_expects_to_be_told_may_go_on(line: HTTPConnection) -> None:
    assert ask(line, "PUT", "/echo", b"body", headers={"Expect": "100-continue"}) == (200, b"body")


def test_an_answer_that_is_lost_ends_the_connection(line: HTTPConnection) -> None:
    with pytest.raises((RemoteDisconnected, ConnectionResetError)):
        ask(line, "POST", "/lost", b"x")


def test_a_kept_connection_ends_with_the_listener(listener: Listener, line: HTTPConnection) -> None:
    assert ask(line, "GET", "/echo") == (200, b"")
    kept = line.sock
    listener.stop()
    assert kept.recv(1) == b""
