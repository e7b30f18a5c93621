"""The AWS API of the embedded cloud: moto in server mode, with a request log, fault injection and serialised S3 writes.

Patches no client and listens on loopback only. A job reaches only what it reaches on AWS (`network`). `hardening`
patches moto where it is more lenient than AWS.
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

from infra.local.account import answer
from infra.local.authorization import Authorization, denial
from infra.local.endpoint import Endpoint
from infra.local.faults import FaultPlan, Refused
from infra.local.formation import install_types
from infra.local.formation.types import OPAQUE, TYPES
from infra.local.hardening import harden_moto
from infra.local.latency import Latency
from infra.local.listener import Handler, Listener
from infra.local.network import reaches
from infra.local.permissions import RequestedAction
from infra.local.requests import Request, RequestLog, peek_body

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

Control = Callable[[str], Any]
CONTROL_PATH = "/_strandline/"

WRITES = frozenset({"PUT", "POST", "DELETE", "PATCH"})


class _Handler(Handler, MotoRequestHandler):
    """moto's request handler, with persistent connections."""


class _Dispatcher(DomainDispatcherApplication):
    """Caches the backend for a host: moto lists its own folder for every request, a fifth of the request's time."""

    @functools.cache  # noqa: B019 - lives as long as the server
    def get_backend_for_host(self, host: str | None) -> Any:
        return super().get_backend_for_host(host)


class ApiServer:
    """Every AWS API on one loopback port, in memory. `log` records the requests, `faults` makes some fail.

    One per process at a time, because moto keeps its state in module globals.
    """

    _alive = threading.Lock()

    def __init__(self, port: int = 0) -> None:
        if not self._alive.acquire(blocking=False):
            raise RuntimeError("this process already runs an embedded cloud, and moto's state is global: stop it first")
        harden_moto()
        self.log = RequestLog()
        self.control: Control | None = None
        """Returns the document for `/_strandline/<name>`, or None for an unknown name."""
        self.faults = FaultPlan()
        self.authorization: Authorization | None = None
        """Denies what roles do not allow; None: everybody may do everything."""
        self.latency: Latency | None = None
        """Adds AWS's latencies to every request; None: as fast as loopback."""
        self._moto = _Dispatcher(create_backend_app)
        self._s3_writes = threading.Lock()
        self._listener = Listener(self._serve, port, "aws-api", _Handler)
        self.port = self._listener.port
        self.endpoint = Endpoint(f"http://127.0.0.1:{self.port}")
        install_types(self.endpoint, TYPES, OPAQUE)

    def start(self) -> None:
        self._listener.start()

    def stop(self) -> None:
        """Stops the listener and resets moto, whose state belongs to the process and not to this object."""
        self._listener.stop()
        moto_api_backend.reset()
        self._alive.release()

    def _serve(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path.startswith(CONTROL_PATH):
            return self._serve_control(path.removeprefix(CONTROL_PATH), start_response)
        request = Request.from_environ(environ)
        if not reaches(request.principal, request.service):
            self.log.add(request, 0)
            raise ConnectionResetError(f"{request.principal} cannot reach {request.service} without a VPC")
        with self.latency.added(request) if self.latency else nullcontext():
            if self.authorization and (denied := self.authorization.denied(request)):
                return self._deny(request, denied, environ, start_response)
            return self._answer(request, environ, start_response)

    def _deny(
        self, request: Request, denied: RequestedAction, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
        peek_body(environ)  # the connection is used again
        status, headers, body = denial(request, denied)
        self._recording(request, start_response)(status, headers)
        return [body]

    def _answer(self, request: Request, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if request.service in ("lambda", "servicequotas") and (known := answer(request, peek_body(environ))):
            self.log.add(request, 200)
            return _json_response(known, "200 OK", start_response)
        fault = self.faults.take(request)
        try:
            if fault and fault.when == "before":
                fault.action(request)
            with self._write_lock(request):
                response = self._moto(environ, self._recording(request, start_response))
            if fault and fault.when == "after":
                fault.action(request)
            return response
        except Refused:
            self.log.add(request, 503)
            start_response("503 Service Unavailable", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return [b""]

    def _serve_control(self, name: str, start_response: StartResponse) -> Iterable[bytes]:
        document = self.control(name) if self.control else None
        return _json_response(document, "404 Not Found" if document is None else "200 OK", start_response)

    def _write_lock(self, request: Request) -> AbstractContextManager[Any]:
        """Serialises S3 writes: moto checks If-None-Match and If-Match, then stores, so two threads could both win."""
        if request.service == "s3" and request.method in WRITES:
            return self._s3_writes
        return nullcontext()

    def _recording(self, request: Request, start_response: StartResponse) -> StartResponse:
        def record(status: str, *arguments: Any) -> Any:
            self.log.add(request, int(status.split(" ", 1)[0]))
            return start_response(status, *arguments)

        return record


def _json_response(document: Any, status: str, start_response: StartResponse) -> Iterable[bytes]:
    body = json.dumps(document).encode()
    start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
