"""Erasures that were asked for through the API: the request travels in a message, its status is an object.

The message has the keys of the rows, so it is deleted when it is served; the status has none of them.
"""

from __future__ import annotations

from typing import Any, Literal

from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, Field

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, translate_aws_errors
from catalog.core.errors import INTERNAL, UNAVAILABLE, LakeError, NotFound
from catalog.erasure.eraser import Eraser, ErasureResult

MAX_BYTES = 256 << 20
"""Data files in all kept snapshots, for an erasure in a function: it has fifteen minutes."""


class ErasureRequest(BaseModel):
    """What is to be erased, and who asked for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    table: str
    keys: list[dict[str, Any]] = []
    where: str | None = None
    reason: str
    accept_guessable: bool = False
    requested_by: str


class ErasureStatus(BaseModel):
    """What became of a request. `refused`: nothing was erased, for `error`; `complete`: see the result's fields."""

    model_config = ConfigDict(frozen=True)

    id: str
    table: str
    reason: str
    requested_by: str
    state: Literal["requested", "complete", "refused"] = "requested"
    error: str | None = None
    index: int | None = None
    rows: int = 0
    unsalted: int = 0
    vectors: list[str] = []
    remains: list[str] = []


class ErasureStatuses:
    """`erase-requests/<table>/<id>.json`."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3, self._bucket = s3, bucket

    def put(self, status: ErasureStatus) -> ErasureStatus:
        """One PUT."""
        key = _key(status.table, status.id)
        with translate_aws_errors(key):
            body = status.model_dump_json().encode()
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=body, ContentType="application/json")
        return status

    def find(self, table: str, id_: str) -> ErasureStatus | None:
        """One GET."""
        key = _key(table, id_)
        with translate_aws_errors(key):
            try:
                data = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        return ErasureStatus.model_validate_json(data)

    def get(self, table: str, id_: str) -> ErasureStatus:
        """NotFound if there is none of this table and id."""
        status = self.find(table, id_)
        if status is None:
            raise NotFound(f"there is no request {id_} to erase rows of {table}, or it was made too long ago")
        return status


def begun(request: ErasureRequest) -> ErasureStatus:
    """The status of a request that was not served yet."""
    return ErasureStatus(id=request.id, table=request.table, reason=request.reason, requested_by=request.requested_by)


def serve_request(request: ErasureRequest, eraser: Eraser, statuses: ErasureStatuses) -> ErasureStatus:
    """Erases, and stores what became of it. Raises only what a later attempt may not meet: unavailable, internal.

    A request that was served is not served again: its message was delivered twice.
    """
    known = statuses.find(request.table, request.id)
    if known is not None and known.state != "requested":
        return known
    status = begun(request)
    eraser.max_bytes = MAX_BYTES
    try:
        result = eraser.erase(
            request.table,
            reason=request.reason,
            keys=request.keys,
            where=request.where,
            accept_guessable=request.accept_guessable,
        )
    except LakeError as error:
        if error.kind in (UNAVAILABLE, INTERNAL):
            raise
        return statuses.put(status.model_copy(update={"state": "refused", "error": error.message}))
    return statuses.put(status.model_copy(update={"state": "complete", **_shown(result)}))


def _shown(result: ErasureResult) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ("index", "rows", "unsalted", "vectors", "remains")}


def _key(table: str, id_: str) -> str:
    return f"{s3_layout.ERASE_REQUESTS}{table}/{id_}.json"
