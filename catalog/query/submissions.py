"""A query that became a job, as it lies on S3: what was asked, which run does it, how it ended.

    results/queries/<id>/query.json     what was asked and by whom; made once, never changed
    results/queries/<id>/run.json       the job run
    results/queries/<id>/part-….parquet rows
    results/queries/<id>/result.json    the list of parts, written last: where it lies, the result is whole
    results/queries/<id>/failure.json   why there is none
    results/queries/<id>/cancelled.json it is not wanted any more; stronger than all of the above

Needs neither an engine nor Spark: the job and whoever waits for it read the same documents.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Self

import pyarrow as pa
from botocore.exceptions import ClientError

from catalog import places
from catalog.errors import Internal, NotFound, Unverified
from catalog.refusals import explained

ID = r"^[A-Za-z0-9-]{1,64}$"
FORMAT = "strandline/query@v1"


@dataclass(frozen=True)
class Reads:
    """One table of the query: the SQL that reads it at its snapshot, and the name the query has for that."""

    view: str
    table: str
    snapshot_id: str | None
    sql: str


@dataclass(frozen=True)
class Asked:
    """All that the job needs, and all that is told of the query later. `sql` is Spark's; `schema` the answer's."""

    id: str
    subject: str | None
    digest: str
    shape: str
    submitted_ms: int
    sql: str
    reads: tuple[Reads, ...]
    schema: pa.Schema
    receipt: dict[str, Any]
    explanation: dict[str, Any]

    def to_json(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("reads", "schema")}
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        listed = [asdict(one) for one in self.reads]
        return json.dumps({"format": FORMAT, **fields, "reads": listed, "schema": schema}).encode()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        if document.get("format") != FORMAT:
            raise Internal(f"the query's record has the format {document.get('format')!r}, not {FORMAT}")
        fields = {name: document[name] for name in cls.__dataclass_fields__ if name not in ("reads", "schema")}
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"])))
        return cls(**fields, reads=tuple(Reads(**one) for one in document["reads"]), schema=schema)


@dataclass(frozen=True)
class Part:
    key: str
    rows: int
    bytes: int
    sha256: str


def digest_of(*request: Any) -> str:
    """What tells two requests apart under one id."""
    return sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()


def folder(query_id: str) -> str:
    return f"{places.QUERIES}{query_id}/"


class Submission:
    """One query's objects. Each method is one request, but for `forget`."""

    def __init__(self, s3: Any, bucket: str, query_id: str) -> None:
        if not re.match(ID, query_id):
            raise NotFound(f"there is no query {query_id!r}", subject=query_id)
        self._s3, self._bucket, self.id = s3, bucket, query_id

    def create(self, asked: Asked) -> bool:
        """False if it was there before."""
        return self._put("query.json", asked.to_json(), once=True)

    def asked(self) -> Asked | None:
        found = self._get("query.json")
        return None if found is None else Asked.of(found)

    def run(self) -> str | None:
        found = self._get("run.json")
        return None if found is None else str(found["job_run_id"])

    def started(self, job_run_id: str) -> None:
        self._put("run.json", json.dumps({"job_run_id": job_run_id}).encode(), once=True)

    def result(self) -> dict[str, Any] | None:
        return self._get("result.json")

    def finish(self, result: Mapping[str, Any]) -> bool:
        """The last object of a result. False if another run of the same job was sooner: then that one stands."""
        return self._put("result.json", json.dumps(result).encode(), once=True)

    def failure(self) -> dict[str, Any] | None:
        return self._get("failure.json")

    def fail(self, error: Mapping[str, str]) -> None:
        self._put("failure.json", json.dumps(error).encode())

    def cancelled(self) -> bool:
        return self._get("cancelled.json") is not None

    def cancel(self) -> None:
        self._put("cancelled.json", b"{}")

    def forget(self) -> None:
        """Removes rows and result. What a run writes after this is nobody's, and expires."""
        prefix = folder(self.id)
        with explained(f"query {self.id}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            for page in pages:
                keys = [found["Key"] for found in page.get("Contents", ())]
                gone = [key for key in keys if key.endswith((".parquet", "/result.json"))]
                if gone:
                    objects = [{"Key": key} for key in gone]
                    self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})

    def rows(self, part: Part) -> bytes:
        """A part's bytes; Unverified if they are not those the run wrote."""
        with explained(part.key):
            body: bytes = self._s3.get_object(Bucket=self._bucket, Key=part.key)["Body"].read()
        if sha256(body).hexdigest() != part.sha256:
            raise Unverified(f"{part.key} is not what the query wrote: submit it again", subject=part.key)
        return body

    def _get(self, name: str) -> dict[str, Any] | None:
        with explained(f"query {self.id}"):
            try:
                body = self._s3.get_object(Bucket=self._bucket, Key=folder(self.id) + name)["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                    return None
                raise
        found: dict[str, Any] = json.loads(body)
        return found

    def _put(self, name: str, body: bytes, *, once: bool = False) -> bool:
        condition = {"IfNoneMatch": "*"} if once else {}
        with explained(f"query {self.id}"):
            try:
                self._s3.put_object(
                    Bucket=self._bucket,
                    Key=folder(self.id) + name,
                    Body=body,
                    ContentType="application/json",
                    **condition,
                )
            except ClientError as error:
                if once and error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412):
                    return False
                raise
        return True
