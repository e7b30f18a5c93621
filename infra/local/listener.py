"""A WSGI application on a loopback port, whose connections are kept.

werkzeug's own handler closes every connection and lingers after each answer; the lake's clients and Spark's make
tens of thousands of requests. Here a connection has a thread, and a request is read whole before the application sees
it: what the application leaves unread is not taken for the next request.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
from contextlib import closing, nullcontext, suppress
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server

_BODILESS = ("1", "204", "304")
_log = logging.getLogger(__name__)


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # head and body leave together

    def setup(self) -> None:
        super().setup()
        self._open.add(self.connection)

    def finish(self) -> None:
        self._open.discard(self.connection)
        with suppress(ConnectionError):  # nobody is there for what is left to say
            super().finish()

    @property
    def _open(self) -> set[socket.socket]:
        found: set[socket.socket] = vars(self.server).setdefault("open_connections", set())
        return found

    def handle_expect_100(self) -> bool:
        carry_on = super().handle_expect_100()
        self.wfile.flush()
        return carry_on

    def run_wsgi(self) -> None:
        """One request. An application that raises ConnectionError ends the connection without an answer."""
        self.environ = environ = self.make_environ()
        environ["wsgi.input"] = io.BytesIO(self._read_body(environ))
        environ["wsgi.input_terminated"] = True
        heads = list[tuple[str, list[tuple[str, str]]]]()

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            heads.append((status, headers))

        try:
            answer: Any = self.server.app(environ, start_response)
            with closing(answer) if hasattr(answer, "close") else nullcontext():
                body = b"".join(answer)
        except ConnectionError:
            self.close_connection = True
            return
        except Exception:
            _log.exception("%s %s failed", self.command, self.path)
            heads, body = [("500 Internal Server Error", [])], b""
        self._answer(*heads[-1], body)

    def _read_body(self, environ: dict[str, Any]) -> bytes:
        if environ.get("wsgi.input_terminated"):  # chunked
            chunks: bytes = environ["wsgi.input"].read()
            return chunks
        return self.rfile.read(int(environ.get("CONTENT_LENGTH") or 0))

    def _answer(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers:
            self.send_header(name, value)
        has_body = self.command != "HEAD" and not code.startswith(_BODILESS)
        if has_body and not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if has_body:
            self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, *args: object, **kwargs: object) -> None:
        """Who listens keeps a log of its own, or none."""


class Listener:
    """Bound when made, so that its port can be told before anything is there to answer."""

    def __init__(self, app: Any, port: int, name: str, handler: type[Handler] = Handler) -> None:
        self._server = make_server("127.0.0.1", port, app, threaded=True, request_handler=handler)
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self.port: int = self._server.port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nobody is answered any more, not on a connection that was kept either."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)
        for connection in list(vars(self._server).get("open_connections", ())):
            with suppress(OSError):  # it is gone already
                connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        self._server.serve_forever(poll_interval=0.02)  # how long `stop` may take
