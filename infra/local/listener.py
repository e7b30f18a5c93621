"""A WSGI server on a loopback port, with persistent connections.

werkzeug's own handler closes the connection after each response, and lingers; the lake's clients and Spark make tens
of thousands of requests. Here each connection has a thread, and a request's body is read completely before the
application runs, so that unread bytes are not taken for the next request.
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
    wbufsize = 1 << 16  # sends head and body together

    def setup(self) -> None:
        super().setup()
        self._open.add(self.connection)

    def finish(self) -> None:
        self._open.discard(self.connection)
        with suppress(ConnectionError):  # the client has closed the connection
            super().finish()

    @property
    def _open(self) -> set[socket.socket]:
        connections: set[socket.socket] = vars(self.server).setdefault("open_connections", set())
        return connections

    def handle_expect_100(self) -> bool:
        carry_on = super().handle_expect_100()
        self.wfile.flush()
        return carry_on

    def run_wsgi(self) -> None:
        """Serves one request. When the application raises ConnectionError, closes the connection without a response."""
        self.environ = environ = self.make_environ()
        environ["wsgi.input"] = io.BytesIO(self._read_body(environ))
        environ["wsgi.input_terminated"] = True
        heads = list[tuple[str, list[tuple[str, str]]]]()

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            heads.append((status, headers))

        try:
            chunks: Any = self.server.app(environ, start_response)
            with closing(chunks) if hasattr(chunks, "close") else nullcontext():
                body = b"".join(chunks)
        except ConnectionError:
            self.close_connection = True
            return
        except Exception:
            _log.exception("%s %s failed", self.command, self.path)
            heads, body = [("500 Internal Server Error", [])], b""
        self._respond(*heads[-1], body)

    def _read_body(self, environ: dict[str, Any]) -> bytes:
        if environ.get("wsgi.input_terminated"):  # chunked
            chunks: bytes = environ["wsgi.input"].read()
            return chunks
        return self.rfile.read(int(environ.get("CONTENT_LENGTH") or 0))

    def _respond(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
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
        """Logs nothing: the applications keep their own logs."""


class Listener:
    """Binds its port on creation, so that the port is known before `start`."""

    def __init__(self, app: Any, port: int, name: str, handler: type[Handler] = Handler) -> None:
        self._server = make_server("127.0.0.1", port, app, threaded=True, request_handler=handler)
        self._thread = threading.Thread(target=self._listen, name=name, daemon=True)
        self.port: int = self._server.port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops serving, and closes persistent connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)
        for connection in list(vars(self._server).get("open_connections", ())):
            with suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        self._server.serve_forever(poll_interval=0.02)  # the longest that `stop` waits
