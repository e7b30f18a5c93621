"""Routes of ingestion: presigned URLs for uploads, the status of a file, and the rules of tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path

from catalog import Denied, Invalid, NotFound
from catalog.access import UPLOAD_SECONDS, Level
from catalog.core.s3_layout import LANDING
from catalog.ingest import MUST_EXIST, Ledger, LedgerRecord, RuleStore, StoredRule, parse_key, parse_rule
from functions.api.app import JSON, caller, lake, presigned_urls, respond, serve
from functions.api.idempotency import Attempt, run_once
from functions.api.models import IngestedFile, IngestOut, RuleIn, RuleOut, UploadIn, UploadOut
from functions.api.tables import Name, authorize


@serve("POST /ingest/uploads", {201: {JSON: UploadOut}}, problems=(403, 413, 415), tag="ingest")
def begin_upload(upload: UploadIn) -> Response[Any]:
    """A presigned URL to PUT one file for ingestion. S3 accepts only bytes with the digest in the request."""
    authorize(Level.WRITE, upload.table)
    key = f"{LANDING}{upload.table.replace('.', '/')}/{upload.name}"
    parse_key(key)  # Invalid if a file with this key could not be ingested
    may_create = caller().may(Level.ADMIN, upload.table)
    if not may_create:
        _require_table(upload.table)
    link = presigned_urls().upload(key, upload.sha256, {} if may_create else MUST_EXIST)
    presigned_urls().expect(upload.sha256, upload.table, key)
    return respond(UploadOut(url=link.url, key=link.key, headers=link.headers, expires_in_s=UPLOAD_SECONDS), 201)


@serve("GET /ingest/{digest}", {200: {JSON: IngestOut}}, tag="ingest")
def find_upload(
    digest: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file, hex")],
) -> Response[Any]:
    """The status of a file, by its digest: landing, committed, duplicate, or quarantined with the reason."""
    may = caller().may
    records = _ledger().find(digest)
    files = [_ingested(record) for record in records if record.table and may(Level.READ, record.table)]
    if not files:
        files = _waiting(digest, may)
    status = files[0].status if files else "unknown"
    return respond(IngestOut(sha256=digest, status=status, files=files), headers={"Cache-Control": "no-store"})


@serve("GET /tables/{t}/rule", {200: {JSON: RuleOut}}, tag="ingest")
def read_rule(t: Name) -> Response[Any]:
    """The rule of a table: how files become its rows. It was set, or inferred from the first files."""
    stored = _rules().get(authorize(Level.READ, t))
    return respond(_rule(stored), headers={"Cache-Control": "no-store"})


@serve("PUT /tables/{t}/rule", {200: {JSON: RuleOut}}, problems=(403, 409, 413, 415), tag="ingest")
def set_rule(t: Name, rule: RuleIn) -> Response[Any]:
    """Set the rule of a table, which need not exist yet. Needs the role `admin` for its name.

    Replaces the current rule. Its columns and key must match the table, if that exists.
    """
    table, new_rule = authorize(Level.ADMIN, t), parse_rule(rule.model_dump())
    return run_once(lambda _: _rule(_rules().replace(table, new_rule)), 200)


@serve("DELETE /tables/{t}/rule", {204: {}}, problems=(403, 409), tag="ingest")
def remove_rule(t: Name) -> Response[Any]:
    """Remove a table's rule. The table stays, and its columns apply to files."""
    table = authorize(Level.ADMIN, t)

    def remove(attempt: Attempt) -> None:
        if attempt.noted is None:
            attempt.note(_rules().get(table).tag)
        stored = _rules().find(table)
        if stored is not None and stored.tag == attempt.noted:  # otherwise it is removed, and another was set later
            _rules().remove(table, tag=stored.tag)

    return run_once(remove, 204)


def _require_table(table: str) -> None:
    """Denied unless the table exists, or an admin has declared it with a rule: a first file would create it."""
    try:
        lake().tables.load(table)
    except NotFound:
        stored = _rules().find(table)
        if stored is None or stored.rule.inferred:
            raise Denied(
                f"{caller().subject} may not create {table}: ask for the role admin, or for the table to be created",
                subject=table,
            ) from None


def _rules() -> RuleStore:
    return RuleStore(lake().s3, lake().settings.bucket, lake().tables)


def _rule(stored: StoredRule) -> RuleOut:
    return RuleOut(table=stored.table, **stored.rule.model_dump())


@cache
def _ledger() -> Ledger:
    return Ledger(lake().s3, lake().settings.bucket)


def _ingested(record: LedgerRecord) -> IngestedFile:
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


def _waiting(digest: str, may: Callable[[Level, str], bool]) -> list[IngestedFile]:
    """Files that were uploaded by presigned URLs and are not ingested yet; with the reason if that failed before."""
    files = []
    for key, version in presigned_urls().waiting(digest, lambda table: may(Level.READ, table)):
        table, failure = parse_key(key).full_table, _ledger().failure(key, version)
        if failure is not None:
            files.append(IngestedFile(status="failed", key=key, table=table, reason=failure.reason))
        else:
            files.append(IngestedFile(status="landing", key=key, table=table))
    return files


def _index(snapshot_id: int | None, table: str | None) -> int | None:
    try:
        return None if snapshot_id is None else lake().timeline.find(snapshot_id, table)[0]
    except (NotFound, Invalid):
        return None  # not sequenced yet
