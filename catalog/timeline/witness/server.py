"""An HTTP server for a witness: bounded requests, bounded time, a bounded number of connections. No TLS."""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from catalog.timeline.witness.service import TEXT, Response, WitnessService

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 10
MAX_CONNECTIONS = 64
REQUEST_S = 10.0
"""How long a client may take to send its request, and how long an idle connection stays open."""
LINGER_S, LINGER_BYTES = 2.0, 1 << 20
"""How much of a refused request is still read, and for how long."""
_DIGITS = re.compile(r"[0-9]{1,9}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[^\r\n]{0,100}\r\n")


class _BadRequest(Exception):
    """The body cannot be read; the connection is closed after the response."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "strandline-witness", ""
    timeout = REQUEST_S
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        try:
            body = self._body()
        except _BadRequest as error:
            self.close_connection = True
            self._send(Response(400, f"{error}\n".encode(), TEXT))
            self._linger()
            return
        service = cast(WitnessServer, self.server).service
        self._send(service.respond(self.command, self.path, body))

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(response.body)
        self.wfile.flush()

    def _linger(self) -> None:
        """Reads some of what the client still sends: closing at once would reset the connection under the response."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            deadline, left = time.monotonic() + LINGER_S, LINGER_BYTES
            while left > 0 and (seconds := deadline - time.monotonic()) > 0:
                self.connection.settimeout(seconds)
                if not (data := self.connection.recv(65536)):
                    return
                left -= len(data)

    def _body(self) -> bytes:
        lengths, codings = self.headers.get_all("Content-Length", []), self.headers.get_all("Transfer-Encoding", [])
        deadline = time.monotonic() + REQUEST_S
        if codings:
            if lengths or [coding.lower() for coding in codings] != ["chunked"]:
                raise _BadRequest("send a body with Content-Length, or chunked, and not both")
            return self._chunks(deadline)
        if not lengths:
            return b""
        if len(lengths) > 1 or not _DIGITS.fullmatch(lengths[0]):
            raise _BadRequest("Content-Length is not one number")
        if int(lengths[0]) > MAX_BODY_BYTES:
            raise _BadRequest(f"a request of {lengths[0]} bytes is over the limit of {MAX_BODY_BYTES}")
        return self._exactly(int(lengths[0]), deadline)

    def _chunks(self, deadline: float) -> bytes:
        body = b""
        while True:
            line = _CHUNK.fullmatch(self.rfile.readline(120))
            if line is None:
                raise _BadRequest("the body is not chunked as its header says")
            length = int(line[1], 16)
            if length + len(body) > MAX_BODY_BYTES:
                raise _BadRequest(f"a request is over the limit of {MAX_BODY_BYTES} bytes")
            body += self._exactly(length, deadline)
            if self._exactly(2, deadline) != b"\r\n":  # there are no trailers
                raise _BadRequest("the body is not chunked as its header says")
            if not length:
                return body

    def _exactly(self, length: int, deadline: float) -> bytes:
        data = b""
        while len(data) < length:
            part = cast(Any, self.rfile).read1(length - len(data))
            if not part or time.monotonic() > deadline:
                raise _BadRequest("the body ended early, or took too long")
            data += part
        return data

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the service logs what it cosigned and refused."""


class WitnessServer(ThreadingHTTPServer):
    """Serves a witness on a host and port; port 0 chooses a free one. `serve_forever` runs until `shutdown`."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, service: WitnessService, host: str = "127.0.0.1", port: int = 0) -> None:
        self.service = service
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)  # as many connections as there may be: this one is closed
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a connection failed", exc_info=True)
