"""Rows over HTTP: JSON, Arrow IPC streams, Parquet and CSV, in memory, chosen by Content-Type and Accept.

An answer that does not fit into one response goes to S3 and is linked to; nothing is ever cut without saying so.
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

from catalog.access.links import RESULT_SECONDS
from catalog.errors import Invalid
from functions.api.app import JSON, answer, asked, links
from functions.api.models import Elsewhere, RowsIn, RowsOut
from functions.api.problems import Refusal

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
CSV = "text/csv"
ROWS_OUT: dict[str, Any] = {JSON: RowsOut, ARROW: None, PARQUET: None, CSV: None}
ROWS_IN = (JSON, ARROW, PARQUET)

MAX_ANSWER_BYTES = 4 << 20
"""Of the body; as base64 within JSON it is a third more, and Lambda takes 6 MB."""

MAX_RECEIPT_BYTES = 4096


def read_rows(media_type: str, body: bytes) -> Any:
    """The rows of a request's body. Invalid if they are not what the type says, 415 for a type nobody reads."""
    if media_type in ("", JSON):
        return RowsIn.model_validate(_parse_json(body)).rows
    try:
        if media_type == ARROW:
            with pa.ipc.open_stream(body) as stream:
                return stream.read_all()
        if media_type == PARQUET:
            import pyarrow.parquet as pq

            return pq.read_table(io.BytesIO(body))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Invalid(f"the body is no {media_type}: {error}") from None
    raise Refusal(415, "unsupported_media_type", f"rows come as {', '.join(ROWS_IN)}, not as {media_type}")


def send_rows(
    rows: pa.Table, *, more: bool, receipt: dict[str, Any] | None = None, following: str | None = None
) -> Response[Any]:
    """The rows as the caller's Accept asks for them; JSON if it says nothing. A short receipt is a header, too; so is
    `following`, the token of the next page."""
    media_type = accepted(ROWS_OUT)
    if media_type == JSON:
        listed = [plain(row) for row in rows.to_pylist()]
        shown = {"columns": rows.column_names, "rows": listed, "more": more} | ({"receipt": receipt} if receipt else {})
        shown |= {"next": following} if following else {}
        body = json.dumps(shown, separators=(",", ":")).encode()
    else:
        body = _WRITERS[media_type](rows)
    headers = {"Strandline-More": str(more).lower(), "Vary": "Accept"}
    if following is not None:
        headers["Strandline-Next"] = following
    said = json.dumps(receipt, separators=(",", ":")) if receipt else ""
    if 0 < len(said) <= MAX_RECEIPT_BYTES:
        headers["Strandline-Receipt"] = said
    return send(body, media_type, headers)


def send(body: bytes, media_type: str, headers: dict[str, str]) -> Response[Any]:
    """The body, or if it is too large for a response, a link to it."""
    headers = {**headers, "Cache-Control": "no-store"}
    if len(body) <= MAX_ANSWER_BYTES:
        sent = body.decode() if media_type in (JSON, CSV) else body
        return Response(200, f"{CSV}; charset=utf-8" if media_type == CSV else media_type, sent, headers=headers)
    url = links().result(body, media_type)
    there = Elsewhere(url=url, media_type=media_type, bytes=len(body), expires_in_s=RESULT_SECONDS)
    return answer(there, 303, {**headers, "Location": url})


def accepted(offered: Iterable[str]) -> str:
    """The best of what is offered, by the weights in Accept, then its order; 406 if there is none."""
    header, offers = asked().headers.get("accept") or "*/*", list(offered)
    wanted = sorted(enumerate(header.split(",")), key=lambda item: (-_weight(item[1]), item[0]))
    for _, choice in wanted:
        kind = choice.partition(";")[0].strip().lower()
        if _weight(choice) <= 0:
            continue
        if kind in ("*/*", "application/*", ""):
            return JSON
        if kind == "text/*" and CSV in offers:
            return CSV
        if kind in offers:
            return kind
    raise Refusal(406, "not_acceptable", f"this is answered as {', '.join(offers)}")


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
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"the body is no JSON: {error}") from None


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
    for row in rows.to_pylist():
        writer.writerow([_cell(plain(value)) for value in row.values()])
    return sink.getvalue().encode()


_WRITERS: dict[str, Callable[[pa.Table], bytes]] = {
    ARROW: _to_arrow,
    PARQUET: _to_parquet,
    CSV: _to_csv,
}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (dict, list)) else value


def plain(value: Any) -> Any:
    """A value of a row as JSON has it: times in ISO 8601, decimals as text, bytes as base64, NaN as text."""
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
