"""Rows over HTTP: JSON, Arrow IPC streams, Parquet and CSV, in memory, chosen by Content-Type and Accept.

A body that does not fit into one response is stored in S3, and the response links to it. Rows are never truncated
silently.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from aws_lambda_powertools.event_handler import Response

from catalog import Invalid
from catalog.access import RESULT_SECONDS
from catalog.core.column_names import check_column_names
from catalog.formats import FileRejected, FormatLimits, exact_float
from functions.api.app import JSON, body_reader, current_request, presigned_urls, respond
from functions.api.models import Elsewhere, RowsIn, RowsOut
from functions.api.problems import Refusal

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
ROWS_OUT: dict[str, Any] = {JSON: RowsOut, ARROW: None, PARQUET: None, CSV: None}
_SHORT = {JSON: "json", PARQUET: "parquet"}
ROWS_IN = (JSON, ARROW, PARQUET)

MAX_ANSWER_BYTES = 4 << 20
"""The limit of a response body: base64 adds a third to it, and Lambda's limit is 6 MB."""

BATCH_ROWS = 10_000
MAX_JSON_BYTES = 64 << 20
"""The limit of rows as JSON, which repeats the columns' names in every row."""

MAX_RECEIPT_BYTES = 4096
RECEIPT = b"strandline:receipt"
"""The key of the receipt in the schema metadata of an Arrow stream, whatever its length."""

MAX_ROWS_BYTES = 128 << 20
"""The limit of a request's decoded rows: a body of a few kilobytes can decode to gigabytes."""
LIMITS = FormatLimits(decompressed_bytes=MAX_ROWS_BYTES, in_memory_bytes=MAX_ROWS_BYTES)


def read_rows(media_type: str, body: bytes) -> Any:
    """The rows of a request's body. Invalid if it is not valid for its media type; Refusal (415) for another type.

    Arrow and Parquet are read in a process of their own (`ApartReader`): their readers are native code.
    """
    if media_type in ("", JSON):
        return RowsIn.model_validate(_parse_json(body)).rows
    try:
        if media_type == ARROW:
            return body_reader().read("arrow", body, LIMITS)
        if media_type == PARQUET:
            return body_reader().read("parquet", body, LIMITS)
    except FileRejected as error:
        raise Invalid(f"the body is not valid {media_type}: {error.message}") from None
    raise Refusal(415, "unsupported_media_type", f"rows cannot be sent as {media_type}: use {', '.join(ROWS_IN)}")


def send_rows(
    rows: pa.Table, *, more: bool, receipt: dict[str, Any] | None = None, following: str | None = None
) -> Response[Any]:
    """The rows in the format of the Accept header, by default JSON. A receipt up to MAX_RECEIPT_BYTES is also a header,
    and so is `following`, the token of the next page. In Arrow the schema's metadata has the receipt."""
    media_type = accepted(ROWS_OUT)
    check_sendable(rows.schema)
    receipt_json = json.dumps(receipt, separators=(",", ":")) if receipt else ""
    if media_type == ARROW and receipt_json:
        rows = rows.replace_schema_metadata({**(rows.schema.metadata or {}), RECEIPT: receipt_json.encode()})
    if media_type == JSON:
        page: dict[str, Any] = {"columns": rows.column_names, "more": more} | ({"receipt": receipt} if receipt else {})
        page |= {"next": following} if following else {}
        body = _to_json(rows, page)
    else:
        body = _WRITERS[media_type](rows)
    headers = {"Strandline-More": str(more).lower(), "Vary": "Accept"}
    if following is not None:
        headers["Strandline-Next"] = following
    if 0 < len(receipt_json) <= MAX_RECEIPT_BYTES:
        headers["Strandline-Receipt"] = receipt_json
    return send(body, media_type, headers)


def check_sendable(schema: pa.Schema) -> None:
    """Invalid, before any row is read, if the format of the Accept header cannot hold all the columns."""
    instead = f"ask for another format with Accept: {CSV} or {ARROW}"
    check_column_names(schema.names, _SHORT.get(accepted(ROWS_OUT), ""), instead)


def send(body: bytes, media_type: str, headers: dict[str, str]) -> Response[Any]:
    """The body; if it is too large for a response, a redirect (303) to it."""
    headers = {**headers, "Cache-Control": "no-store"}
    if len(body) <= MAX_ANSWER_BYTES:
        content = body.decode() if media_type in (JSON, CSV) else body
        return Response(200, f"{CSV}; charset=utf-8" if media_type == CSV else media_type, content, headers=headers)
    url = presigned_urls().result(body, media_type)
    link = Elsewhere(url=url, media_type=media_type, bytes=len(body), expires_in_s=RESULT_SECONDS)
    return respond(link, 303, {**headers, "Location": url})


def accepted(offered: Iterable[str]) -> str:
    """The offered media type that Accept prefers, by weight, then by order. Refusal (406) if there is none."""
    header, offers = current_request().headers.get("accept") or "*/*", list(offered)
    choices = sorted(enumerate(header.split(",")), key=lambda item: (-_weight(item[1]), item[0]))
    for _, choice in choices:
        media_type = choice.partition(";")[0].strip().lower()
        if _weight(choice) <= 0:
            continue
        if media_type in ("*/*", "application/*", ""):
            return JSON
        if media_type == "text/*" and CSV in offers:
            return CSV
        if media_type in offers:
            return media_type
    raise Refusal(406, "not_acceptable", f"the response is available as {', '.join(offers)}: change Accept")


def _weight(choice: str) -> float:
    for parameter in choice.split(";")[1:]:
        name, _, value = parameter.strip().partition("=")
        if name == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body, parse_float=exact_float)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the body is not valid JSON: {error}") from None


def _to_json(rows: pa.Table, page: dict[str, Any]) -> bytes:
    """The page with its rows. As Python objects rows are many times larger, so only some are that at a time."""
    body = bytearray(json.dumps(page, separators=(",", ":")).encode()[:-1] + b',"rows":[')
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        for row in _python(batch):
            body += json.dumps(plain(row), separators=(",", ":")).encode() + b","
        if len(body) > MAX_JSON_BYTES:
            raise Invalid(
                f"the result has more than {MAX_JSON_BYTES >> 20} MiB as JSON: select fewer rows, or ask for Arrow "
                f"with Accept: {ARROW}"
            )
    if body.endswith(b","):
        del body[-1]
    return bytes(body + b"]}")


def _python(values: pa.RecordBatch | pa.Array) -> list[Any]:
    """The values as Python's. Invalid for those that it has no type for: times beyond the year 9999, nanoseconds."""
    try:
        objects: list[Any] = values.to_pylist()
        return objects
    except (OverflowError, ValueError) as error:
        raise Invalid(
            f"the result has a value that cannot be written in this format ({error}): cast it to text, or ask for "
            f"Arrow with Accept: {ARROW}"
        ) from None


def _to_arrow(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def _to_parquet(rows: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    return sink.getvalue()


def _to_csv(rows: pa.Table) -> bytes:
    import csv

    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(rows.column_names)
    # By position: two columns may have the same name.
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        for row in zip(*map(_python, batch.columns), strict=True):
            writer.writerow([_cell(plain(value)) for value in row])
    return sink.getvalue().encode()


_WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    ARROW: _to_arrow,
    PARQUET: _to_parquet,
    CSV: _to_csv,
}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def plain(value: Any) -> Any:
    """A value of a row in JSON: times in ISO 8601, decimals, NaN and infinity as text, bytes as base64."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value) if isinstance(value, (Decimal, UUID)) else repr(value)
