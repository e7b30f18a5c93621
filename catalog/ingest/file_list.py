"""Landed files of a lake: those that were ingested, those in quarantine, and a quarantined file's way back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from catalog.core.aws_errors import translate_aws_errors
from catalog.core.errors import NotFound
from catalog.core.s3_layout import INGESTED, QUARANTINE
from catalog.ingest.file_status import find_by_key
from catalog.ingest.ledger import LedgerRecord
from catalog.ingest.s3_events import parse_table

REPORT_SUFFIX = ".json"
_RECORD_SUFFIX = ".json"
_NOT_RECORDS = (f"{INGESTED}attempts/", f"{INGESTED}failed/")


def list_records(s3: Any, bucket: str, table: str | None = None, limit: int = 100) -> list[LedgerRecord]:
    """The ledger's records, the latest first. Lists the whole ledger, then costs a GET for each record that it reads:
    up to `limit` for all tables, more if they are filtered by one."""
    records = list[LedgerRecord]()
    for key in _latest_first(s3, bucket, INGESTED):
        if len(records) >= limit:
            break
        if key.startswith(_NOT_RECORDS):
            continue
        record = LedgerRecord.model_validate_json(_read(s3, bucket, key))
        if table in (None, record.table):
            records.append(record)
    return sorted(records, key=lambda record: record.at, reverse=True)  # S3's times are of whole seconds


def list_quarantined(s3: Any, bucket: str, table: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
    """The reports of files in quarantine, the latest first, also of tables that do not exist. One GET for each."""
    folder = "" if table is None else "{}/{}/".format(*parse_table(table))
    reports = list[dict[str, Any]]()
    for key in _latest_first(s3, bucket, f"{QUARANTINE}{folder}"):
        if len(reports) >= limit:
            break
        if key.endswith(REPORT_SUFFIX):
            reports.append({**json.loads(_read(s3, bucket, key)), "report": key})
    return reports


def find_report(s3: Any, bucket: str, key: str) -> dict[str, Any]:
    """The report of a quarantined file by its landing key. NotFound if the file is not in quarantine."""
    for record in find_by_key(s3, bucket, key):
        if record.state == "quarantined" and record.report is not None:
            return {**json.loads(_read(s3, bucket, record.report)), "report": record.report}
    raise NotFound(f"{key} is not in quarantine: see `strandline ingest list --quarantined`", subject=key)


def retry_file(s3: Any, bucket: str, key: str) -> str | None:
    """Lands the quarantined bytes again under their key, as a new version, which is ingested like any other. Returns
    the version's id."""
    report = find_report(s3, bucket, key)
    if report["kept_as"] is None:
        raise NotFound(f"the bytes of {key} were not kept: send the file with `strandline ingest put`", subject=key)
    with translate_aws_errors(key):
        copied = s3.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": report["kept_as"]})
    version: str | None = copied.get("VersionId")
    return version


def _latest_first(s3: Any, bucket: str, prefix: str) -> Iterator[str]:
    with translate_aws_errors(prefix):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        entries = [(entry["LastModified"], entry["Key"]) for page in pages for entry in page.get("Contents", ())]
    yield from (key for _, key in sorted(entries, reverse=True) if key.endswith(_RECORD_SUFFIX))


def _read(s3: Any, bucket: str, key: str) -> bytes:
    with translate_aws_errors(key):
        body: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    return body
