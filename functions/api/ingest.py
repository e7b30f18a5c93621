"""Files on their way in: a link to put one into landing, where it is now, and the rule it goes by."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path

from catalog.access.links import UPLOAD_SECONDS
from catalog.access.roles import Level
from catalog.errors import Invalid, NotFound
from catalog.ingest.ledger import Ledger, Record
from catalog.ingest.rules import Rules, StoredRule, parse_rule
from catalog.pipeline.landing import parse_key
from catalog.places import LANDING
from functions.api.app import JSON, answer, asked, lake, links, serve
from functions.api.models import IngestedFile, IngestOut, RuleIn, RuleOut, UploadIn, UploadOut
from functions.api.tables import Name, allowed


@serve("POST /ingest/uploads", {201: {JSON: UploadOut}}, problems=(403, 413, 415), tag="ingest")
def begin_upload(upload: UploadIn) -> Response[Any]:
    """A link to PUT one file into landing. The digest is bound to it: S3 takes these bytes and no others."""
    allowed(Level.WRITE, upload.table)
    key = f"{LANDING}{upload.table.replace('.', '/')}/{upload.name}"
    parse_key(key)  # what could not be ingested is refused here
    link = links().upload(key, upload.sha256)
    links().expect(upload.sha256, key)
    return answer(UploadOut(url=link.url, key=link.key, headers=link.headers, expires_in_s=UPLOAD_SECONDS), 201)


@serve("GET /ingest/{digest}", {200: {JSON: IngestOut}}, tag="ingest")
def find_upload(
    digest: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file, hex")],
) -> Response[Any]:
    """Where a file is now, by its content: in landing, committed, a duplicate, or quarantined with the reason."""
    may = asked().known().may
    files = [_ingested(one) for one in _ledger().find(digest) if one.table and may(Level.READ, one.table)]
    if not files:
        files = [one for one in _waiting(digest) if one.table and may(Level.READ, one.table)]
    status = files[0].status if files else "unknown"
    return answer(IngestOut(sha256=digest, status=status, files=files), headers={"Cache-Control": "no-store"})


@serve("GET /tables/{t}/rule", {200: {JSON: RuleOut}}, tag="ingest")
def read_rule(t: Name) -> Response[Any]:
    """What a table's files should look like, set by somebody or inferred from the first of them."""
    return _shown(_rules().get(allowed(Level.READ, t)))


@serve("PUT /tables/{t}/rule", {200: {JSON: RuleOut}}, problems=(403, 409, 413, 415, 422), tag="ingest")
def set_rule(t: Name, rule: RuleIn) -> Response[Any]:
    """Say what a table's files should look like; the table may come later. Needs the role `admin` for its name.

    Replaces the rule that is there. Refused if its columns or key do not go with the table that is there.
    """
    return _shown(_rules().replace(allowed(Level.ADMIN, t), parse_rule(rule.model_dump())))


@serve("DELETE /tables/{t}/rule", {204: {}}, problems=(403, 409, 422), tag="ingest")
def remove_rule(t: Name) -> Response[Any]:
    """Forget a table's rule. The table stays, and its columns are what counts."""
    _rules().remove(allowed(Level.ADMIN, t))
    return answer(status=204)


def _rules() -> Rules:
    return Rules(lake().s3, lake().settings.bucket, lake().tables)


def _shown(found: StoredRule) -> Response[Any]:
    return answer(RuleOut(table=found.table, **found.rule.model_dump()), headers={"Cache-Control": "no-store"})


@cache
def _ledger() -> Ledger:
    return Ledger(lake().s3, lake().settings.bucket)


def _ingested(record: Record) -> IngestedFile:
    return IngestedFile(
        status=record.state,
        key=record.key,
        table=record.table,
        rows=record.rows,
        snapshot_id=None if record.snapshot_id is None else str(record.snapshot_id),
        index=_index(record.snapshot_id, record.table),
        duplicate_of=record.duplicate_of,
        reason=record.reason,
        position=record.position or None,
        report=record.report,
    )


def _waiting(digest: str) -> list[IngestedFile]:
    """What was promised by a link, has arrived, and is not dealt with; with the reason if that failed before."""
    found = links().waiting(digest)
    if found is None:
        return []
    key, version = found
    table, failure = parse_key(key).full_table, _ledger().failure(key, version)
    if failure is not None:
        return [IngestedFile(status="failed", key=key, table=table, reason=failure.reason)]
    return [IngestedFile(status="landing", key=key, table=table)]


def _index(snapshot_id: int | None, table: str | None) -> int | None:
    try:
        return None if snapshot_id is None else lake().timeline.find(snapshot_id, table)[0]
    except (NotFound, Invalid):
        return None  # not sequenced yet
