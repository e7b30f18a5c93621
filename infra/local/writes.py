"""Notices that somebody changed deployed state by reading the request log: it polls no API and
hooks into none."""

from __future__ import annotations

from infra.local.requests import Request, RequestLog

_READS = ("List", "Describe", "Get", "PutEvents")


class WriteWatch:
    """Tells whether a request that may have changed `services` arrived since the last look.

    CloudFormation counts always: it writes for every service. State changed in this process, past the API, is
    not seen; whoever does that calls the reader's `sync`.
    """

    def __init__(self, log: RequestLog, *services: str) -> None:
        self._log = log
        self._services = {*services, "cloudformation"}
        self._mark = 0

    def changed(self) -> bool:
        mark = self._log.mark()
        found = self._log.since(self._mark, self._may_write)
        self._mark = mark
        return bool(found)

    def _may_write(self, request: Request) -> bool:
        return request.service in self._services and not request.action.startswith((*_READS, "GET"))
