"""The AWS API of the embedded cloud: moto in server mode behind a gate that logs, faults and serialises.

Never patches a client and never listens beyond loopback. What moto answers more kindly than AWS is mended in
`hardening`, not here.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app

from infra.local.endpoint import Endpoint
from infra.local.faults import FaultPlan, Refused
from infra.local.formation import install_types
from infra.local.formation.types import OPAQUE, TYPES
from infra.local.hardening import harden_moto
from infra.local.listener import Handler, Listener
from infra.local.requests import Request, RequestLog

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

Control = Callable[[str], Any]
CONTROL_PATH = "/_strandline/"

WRITES = frozenset({"PUT", "POST", "DELETE", "PATCH"})


class _Handler(Handler, MotoRequestHandler):
    """As moto reads requests, on connections that are kept."""


class _Dispatcher(DomainDispatcherApplication):
    """moto lists its own folder for every request, to know which services there are: a fifth of the request's time."""

    @functools.cache  # noqa: B019 - lives as long as the server
    def get_backend_for_host(self, host: str | None) -> Any:
        return super().get_backend_for_host(host)


class ApiServer:
    """Every AWS API on one loopback port, in memory. `log` knows who asked for what, `faults` what must fail.

    One per process at a time: moto keeps its state in module globals.
    """

    _alive = threading.Lock()

    def __init__(self, port: int = 0) -> None:
        if not self._alive.acquire(blocking=False):
            raise RuntimeError("an embedded cloud runs in this process already: moto has one memory per process")
        harden_moto()
        self.log = RequestLog()
        self.control: Control | None = None
        """Answers `/_strandline/<what>`; None for what it does not know."""
        self.faults = FaultPlan()
        self._moto = _Dispatcher(create_backend_app)
        self._s3_writes = threading.Lock()
        self._listener = Listener(self._serve, port, "aws-api", _Handler)
        self.port = self._listener.port
        self.endpoint = Endpoint(f"http://127.0.0.1:{self.port}")
        install_types(self.endpoint, TYPES, OPAQUE)

    def start(self) -> None:
        self._listener.start()

    def stop(self) -> None:
        """Ends the listener and forgets everything: moto's state belongs to the process, not to this object."""
        self._listener.stop()
        moto_api_backend.reset()
        self._alive.release()

    def _serve(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path.startswith(CONTROL_PATH):
            return self._tell(path.removeprefix(CONTROL_PATH), start_response)
        request = Request.from_environ(environ)
        fault = self.faults.take(request)
        try:
            if fault and fault.when == "before":
                fault.action(request)
            with self._gate(request):
                answer = self._moto(environ, self._recording(request, start_response))
            if fault and fault.when == "after":
                fault.action(request)
            return answer
        except Refused:
            self.log.add(request, 503)
            start_response("503 Service Unavailable", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return [b""]

    def _tell(self, what: str, start_response: StartResponse) -> Iterable[bytes]:
        answer = self.control(what) if self.control else None
        body = json.dumps(answer).encode()
        status = "404 Not Found" if answer is None else "200 OK"
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    def _gate(self, request: Request) -> AbstractContextManager[Any]:
        """moto decides If-None-Match and If-Match in one step and stores in the next: two threads may both win."""
        if request.service == "s3" and request.method in WRITES:
            return self._s3_writes
        return nullcontext()

    def _recording(self, request: Request, start_response: StartResponse) -> StartResponse:
        def record(status: str, *rest: Any) -> Any:
            self.log.add(request, int(status.split(" ", 1)[0]))
            return start_response(status, *rest)

        return record
