"""A query that runs on Spark, as objects in S3: its record, its job run and its result.

    results/queries/<id>/query.json     the record: the query and its caller; created once, never changed
    results/queries/<id>/run.json       the job run
    results/queries/<id>/part-….parquet rows
    results/queries/<id>/result.json    the list of parts, written last: once it exists, the result is complete
    results/queries/<id>/failure.json   why there is no result
    results/queries/<id>/cancelled.json the query was cancelled; overrides all of the above

Needs neither DuckDB nor Spark: the job and the API read the same objects.
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

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, lost_race, translate_aws_errors
from catalog.core.errors import Internal, NotFound, Unverified

QUERY_ID_PATTERN = r"^[A-Za-z0-9-]{1,64}$"
FORMAT = "strandline/query@v1"


@dataclass(frozen=True)
class TableRead:
    """One table of the query: the Spark SQL that reads it at its snapshot, and the view name the query uses for it."""

    view: str
    table: str
    snapshot_id: str | None
    sql: str


@dataclass(frozen=True)
class QueryRecord:
    """Everything that the job and later status requests need. `sql` is Spark's; `schema` is the result's."""

    id: str
    subject: str | None
    digest: str
    shape: str
    submitted_ms: int
    sql: str
    reads: tuple[TableRead, ...]
    schema: pa.Schema
    receipt: dict[str, Any]
    explanation: dict[str, Any]

    def to_json(self) -> bytes:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("reads", "schema")}
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        reads = [asdict(read) for read in self.reads]
        return json.dumps({"format": FORMAT, **fields, "reads": reads, "schema": schema}).encode()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        if document.get("format") != FORMAT:
            raise Internal(f"the query record has the format {document.get('format')!r}, not {FORMAT}")
        fields = {name: document[name] for name in cls.__dataclass_fields__ if name not in ("reads", "schema")}
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"])))
        return cls(**fields, reads=tuple(TableRead(**read) for read in document["reads"]), schema=schema)


@dataclass(frozen=True)
class ResultPart:
    key: str
    rows: int
    bytes: int
    sha256: str


def digest_of(*request: Any) -> str:
    """A digest by which two requests with one id are compared."""
    return sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()


def query_prefix(query_id: str) -> str:
    return f"{s3_layout.QUERIES}{query_id}/"


class QueryRecords:
    """The objects of one query. Each method makes one request, except `delete_result`."""

    def __init__(self, s3: Any, bucket: str, query_id: str) -> None:
        if not re.match(QUERY_ID_PATTERN, query_id):
            raise NotFound(f"there is no query {query_id!r}", subject=query_id)
        self._s3, self._bucket, self.id = s3, bucket, query_id

    def create(self, record: QueryRecord) -> bool:
        """Stores the record. False if the id already has one, which is kept."""
        return self._put("query.json", record.to_json(), once=True)

    def record(self) -> QueryRecord | None:
        document = self._get("query.json")
        return None if document is None else QueryRecord.of(document)

    def run(self) -> str | None:
        """The id of the query's job run; None if none was started."""
        document = self._get("run.json")
        return None if document is None else str(document["job_run_id"])

    def store_run(self, job_run_id: str) -> None:
        self._put("run.json", json.dumps({"job_run_id": job_run_id}).encode(), once=True)

    def result(self) -> dict[str, Any] | None:
        return self._get("result.json")

    def finish(self, result: Mapping[str, Any]) -> bool:
        """Stores the list of parts, which completes the result. False if another run was first; its list is kept."""
        return self._put("result.json", json.dumps(result).encode(), once=True)

    def failure(self) -> dict[str, Any] | None:
        return self._get("failure.json")

    def fail(self, error: Mapping[str, str]) -> None:
        self._put("failure.json", json.dumps(error).encode())

    def cancelled(self) -> bool:
        return self._get("cancelled.json") is not None

    def cancel(self) -> None:
        self._put("cancelled.json", b"{}")

    def delete_result(self) -> None:
        """Deletes the rows and the result. Parts that a run writes later are never listed, and expire."""
        prefix = query_prefix(self.id)
        with translate_aws_errors(f"query {self.id}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            for page in pages:
                keys = [listing["Key"] for listing in page.get("Contents", ())]
                objects = [{"Key": key} for key in keys if key.endswith((".parquet", "/result.json"))]
                if objects:
                    self._s3.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})

    def rows(self, part: ResultPart) -> bytes:
        """A part's bytes; Unverified if they differ from what the run wrote."""
        with translate_aws_errors(part.key):
            body: bytes = self._s3.get_object(Bucket=self._bucket, Key=part.key)["Body"].read()
        if sha256(body).hexdigest() != part.sha256:
            raise Unverified(f"{part.key} is not what the query wrote: submit the query again", subject=part.key)
        return body

    def _get(self, name: str) -> dict[str, Any] | None:
        with translate_aws_errors(f"query {self.id}"):
            try:
                body = self._s3.get_object(Bucket=self._bucket, Key=query_prefix(self.id) + name)["Body"].read()
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        document: dict[str, Any] = json.loads(body)
        return document

    def _put(self, name: str, body: bytes, *, once: bool = False) -> bool:
        condition = {"IfNoneMatch": "*"} if once else {}
        with translate_aws_errors(f"query {self.id}"):
            try:
                self._s3.put_object(
                    Bucket=self._bucket,
                    Key=query_prefix(self.id) + name,
                    Body=body,
                    ContentType="application/json",
                    **condition,
                )
            except ClientError as error:
                if once and lost_race(error):
                    return False
                raise
        return True
