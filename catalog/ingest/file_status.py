"""The status of a landed file by its key; by its digest, `Ledger.find` has it."""

from __future__ import annotations

from typing import Any

from catalog.core.errors import NotFound
from catalog.formats import FormatLimits
from catalog.ingest.landed_object import LandedObject
from catalog.ingest.ledger import Ledger, LedgerRecord, source_id, unread_digest
from catalog.ingest.s3_events import LandedFile


def find_by_key(s3: Any, bucket: str, key: str) -> list[LedgerRecord]:
    """The records of the object that has the key now; or that of its last failure; or none, if it is not ingested yet.

    NotFound if there is no such object. Reads the whole object for its digest.
    """
    ledger, landed = Ledger(s3, bucket), LandedObject(s3, LandedFile(bucket, key))
    digest = landed.digest(FormatLimits())
    if digest is None and not landed.size:
        raise NotFound(f"there is no object {key}: send it with `strandline ingest put`", subject=key)
    version = landed.version
    same_digest = ledger.find(digest or unread_digest(key, version))
    records = [record for record in same_digest if record.source == source_id(key, version)]
    failure = ledger.failure(key, version)
    return records or ([failure] if failure is not None else [])
