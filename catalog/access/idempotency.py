"""A request with an idempotency key takes effect once. One conditional PUT binds the key to its request.

Bindings are objects below `requests/` and are valid for a week. Each has a unique id. Writes of rows use it as commit
token, which the table itself stores. Other writes store their response in the binding, and may store there before they
act what they are about to do, so that a later attempt can learn whether it was done.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any
from uuid import uuid4

from botocore.exceptions import ClientError

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, lost_race, translate_aws_errors
from catalog.core.errors import Conflict

KEPT_MS = s3_layout.REQUEST_DAYS * 86_400_000
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A caller's request to a route under a key. Only the digest of `body` is stored."""

    subject: str
    route: str
    key: str
    body: bytes

    @property
    def token(self) -> str:
        """Identifies the caller, route and key; names the binding's object."""
        return sha256(json.dumps([self.subject, self.route, self.key]).encode()).hexdigest()

    @property
    def digest(self) -> str:
        return sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class Bound:
    """A key's binding, the same for every attempt at its request. `id` serves as commit token.

    `noted`: what an earlier attempt was about to do. `answer`: the stored response, None before there is one.
    """

    digest: str
    id: str
    bound_ms: int
    noted: Any | None = None
    answer: Any | None = None


class IdempotencyStore:
    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3, self._bucket = s3, bucket

    def bind(self, request: IdempotentRequest) -> Bound:
        """The key's binding, created if there is none or it is older than a week. Conflict if it is of another request.

        One PUT, and a GET if the key was bound already.
        """
        fresh = Bound(request.digest, uuid4().hex, now_ms())
        condition = {"IfNoneMatch": "*"}
        for _ in range(_ATTEMPTS):
            with translate_aws_errors("the request's key"):
                if self._put(request, fresh, **condition):
                    return fresh
                stored = self._get(request)
            if stored is None:  # S3's lifecycle removed it after a week
                condition = {"IfNoneMatch": "*"}
                continue
            bound, etag = stored
            if now_ms() - bound.bound_ms > KEPT_MS:
                condition = {"IfMatch": etag}
                continue
            if bound.digest != request.digest:
                raise Conflict(
                    f"the idempotency key {request.key!r} was used for another request: "
                    "send a new key with a new request",
                    subject=request.key,
                )
            return bound
        raise Conflict(
            f"the idempotency key {request.key!r} is in use by a concurrent request: try again", subject=request.key
        )

    def note(self, request: IdempotentRequest, bound: Bound, noted: Any) -> Bound:
        """Stores what the request is about to do, for a later attempt to read. One PUT."""
        return self._store(request, replace(bound, noted=noted))

    def keep(self, request: IdempotentRequest, bound: Bound, answer: Any) -> Bound:
        """Stores the response for later requests with the key. After a crash before it, they use `noted`. One PUT."""
        return self._store(request, replace(bound, answer=answer))

    def _store(self, request: IdempotentRequest, bound: Bound) -> Bound:
        with translate_aws_errors("the request's key"):
            self._put(request, bound)
        return bound

    def _put(self, request: IdempotentRequest, bound: Bound, **condition: str) -> bool:
        """Returns whether the condition held."""
        try:
            self._s3.put_object(
                Bucket=self._bucket,
                Key=_key(request),
                Body=json.dumps(asdict(bound)).encode(),
                ContentType="application/json",
                **condition,
            )
        except ClientError as error:
            if lost_race(error) or is_missing(error):  # missing: If-Match on an object that is gone
                return False
            raise
        return True

    def _get(self, request: IdempotentRequest) -> tuple[Bound, str] | None:
        try:
            response = self._s3.get_object(Bucket=self._bucket, Key=_key(request))
        except ClientError as error:
            if is_missing(error):
                return None
            raise
        # Bindings from before ids existed get the request's token as id, and now as their time.
        values = {"id": request.token, "bound_ms": now_ms(), **json.loads(response["Body"].read())}
        return Bound(**values), response["ETag"]


def now_ms() -> int:
    return int(time.time() * 1000)


def _key(request: IdempotentRequest) -> str:
    return f"{s3_layout.REQUESTS}{request.token}"
