"""A request with an idempotency key is done once. The key is bound to its request by one conditional PUT.

Bindings lie under `requests/` and are kept for a week. Writes of rows need no more: the key is the commit's token,
and the table itself remembers it. Other writes keep their answer beside the binding.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from botocore.exceptions import ClientError

from catalog import places
from catalog.errors import Unverified
from catalog.refusals import explained


@dataclass(frozen=True, slots=True)
class Request:
    """Who asked for what under which key. `body` is digested, never kept."""

    subject: str
    route: str
    key: str
    body: bytes

    @property
    def token(self) -> str:
        """The same for the same caller, route and key, and fit for a commit's token."""
        return sha256(json.dumps([self.subject, self.route, self.key]).encode()).hexdigest()

    @property
    def digest(self) -> str:
        return sha256(self.body).hexdigest()


class Once:
    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3, self._bucket = s3, bucket

    def bind(self, request: Request) -> Any | None:
        """The answer an earlier request was given, None if there is none yet. Unverified if the key stands for
        another request. One PUT, and a GET if the key was there."""
        record = json.dumps({"digest": request.digest, "answer": None})
        with explained("the request's key"):
            try:
                self._put(request, record, IfNoneMatch="*")
                return None
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (409, 412):
                    raise
            stored = self._s3.get_object(Bucket=self._bucket, Key=_key(request))["Body"].read()
        known = json.loads(stored)
        if known["digest"] != request.digest:
            raise Unverified(
                f"the idempotency key {request.key!r} stands for another request: send a new key with a new request",
                subject=request.key,
            )
        return known["answer"]

    def keep(self, request: Request, answer: Any) -> None:
        """What later requests with the key are answered. A crash before it leaves the key bound, and nothing else."""
        with explained("the request's key"):
            self._put(request, json.dumps({"digest": request.digest, "answer": answer}))

    def _put(self, request: Request, record: str, **condition: str) -> None:
        self._s3.put_object(
            Bucket=self._bucket,
            Key=_key(request),
            Body=record.encode(),
            ContentType="application/json",
            **condition,
        )


def _key(request: Request) -> str:
    return f"{places.REQUESTS}{request.token}"
