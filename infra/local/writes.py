"""Detects changes of deployed state from the request log, without polling an API."""

from __future__ import annotations

from infra.local.requests import Request, RequestLog

_READS = ("List", "Describe", "Get", "PutEvents")


class WriteWatch:
    """Whether a request that may have changed `services` arrived since the last call of `changed`.

    CloudFormation requests always count, because they write to every service. Changes to moto's state that bypass the
    API are not detected; code that makes them calls the reader's `sync`.
    """

    def __init__(self, log: RequestLog, *services: str) -> None:
        self._log = log
        self._services = {*services, "cloudformation"}
        self._mark = 0

    def changed(self) -> bool:
        mark = self._log.mark()
        writes = self._log.since(self._mark, self._may_write)
        self._mark = mark
        return bool(writes)

    def _may_write(self, request: Request) -> bool:
        return request.service in self._services and not request.action.startswith((*_READS, "GET"))
