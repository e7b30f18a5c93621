"""The HTTP interface of a witness (c2sp.org/tlog-witness), without the HTTP: a request in, a response out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from catalog.core.errors import LakeError
from catalog.merkle.witness import AddCheckpoint, Refused, Witness, conflict, origin_hash
from catalog.timeline.witness.records import WitnessRecords

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = TEXT


@dataclass(frozen=True)
class WitnessService:
    """Cosigns checkpoints of the witness's logs, and serves the latest of each. Safe for many threads and processes."""

    witness: Witness
    records: WitnessRecords
    clock: Callable[[], int] = lambda: int(time.time())

    def respond(self, method: str, path: str, body: bytes) -> Response:
        """Serves `POST /add-checkpoint` and `GET /<origin hash>/checkpoint`. Never raises."""
        try:
            if path == "/add-checkpoint":
                return self._add_checkpoint(body) if method == "POST" else _not_allowed("POST")
            for origin in self.witness.logs:
                if path == f"/{origin_hash(origin)}/checkpoint":
                    return self._checkpoint(origin) if method == "GET" else _not_allowed("GET")
            return Response(404, b"a witness serves POST /add-checkpoint and GET /<origin hash>/checkpoint\n")
        except Refused as refused:
            logger.info("refused", extra={"status": refused.status, "reason": str(refused)[:500]})
            return Response(refused.status, refused.body.encode(), refused.content_type)
        except LakeError as error:
            logger.error("not served", extra={"error": error.as_dict()})
            return Response(503, b"the witness cannot read or write its records\n")
        except Exception:
            logger.exception("not served")
            return Response(500, b"the witness failed\n")

    def _add_checkpoint(self, body: bytes) -> Response:
        """One GET and one PUT, both only for a checkpoint that a known log signed.

        The record is stored before the cosignature leaves this process. After a crash in between, or a lost response,
        the log sends its checkpoint again: 409 tells it the new size, and the same checkpoint is then cosigned.
        """
        request = AddCheckpoint.decode(body)
        origin = self.witness.origin_of(request.note)
        current = self.records.load(origin)
        line, record = self.witness.add_checkpoint(request, current.record, self.clock())
        if not self.records.replace(origin, current, record):
            newer = self.records.load(origin).record
            raise conflict(newer.size if newer is not None else 0)
        logger.info("cosigned", extra={"origin": origin, "size": record.size})
        return Response(200, line.encode())

    def _checkpoint(self, origin: str) -> Response:
        record = self.records.load(origin).record
        if record is None:
            raise Refused(404, f"no checkpoint of {origin} was cosigned yet")
        return Response(200, record.note)


def _not_allowed(method: str) -> Response:
    return Response(405, f"send it with {method}\n".encode())
