"""Commit tokens that no snapshot summary has: those of expired snapshots, and of schema or property changes.

A commit's token is in its snapshot's summary. Expiry removes the snapshot, and writes the receipts of its tokens to a
small object, which the table's properties name in the same commit: so a crash loses no token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from uuid import uuid4

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from catalog.core.errors import Unavailable
from catalog.core.s3_layout import REQUEST_DAYS
from catalog.iceberg import CommitIO, ObjectIO, ObjectStore
from catalog.tables.committer import COMMIT_TOKEN, Receipt, receipt_of
from catalog.tables.delta import summary_value
from catalog.tables.glue_store import TableVersion

EXPIRED_TOKENS, ALTER_TOKENS = "strandline.expired-tokens", "strandline.alter-tokens"
# A day longer than an idempotency key is valid, because clocks differ.
KEPT_MS = (REQUEST_DAYS + 1) * 86_400_000
_FIELDS = ("snapshot_id", "sequence", "rows", "mode", "reason")


def now_ms() -> int:
    return int(time.time() * 1000)


def find_receipts(version: TableVersion, tokens: Iterable[str], io: ObjectIO) -> dict[str, Receipt]:
    """The receipts of those tokens that were committed, from the snapshots and from the record of expired ones.

    No request, except one GET for a record that this process has not read.
    """
    requested = set(tokens)
    receipts = receipt_of(version, requested)
    missing = requested - receipts.keys()
    if missing and (path := version.properties.get(EXPIRED_TOKENS)):
        expired = _read(version, path, io.store)["tokens"]
        for token in missing & expired.keys():
            fields = {name: expired[token][name] for name in _FIELDS}
            receipts[token] = Receipt(table=version.name, token=token, replayed=True, **fields)
    return receipts


def keep_tokens(
    version: TableVersion, expired: Iterable[Snapshot], io: CommitIO
) -> tuple[list[TableUpdate], list[str]]:
    """Writes a record with the receipts of expired snapshots and those of the previous record that are still valid.

    Returns the updates for the expiry's own commit, and the objects to delete after it. The previous record is not
    among them: a writer may be reading it.
    """
    path = version.properties.get(EXPIRED_TOKENS)
    previous: Mapping[str, Any] = _read(version, path, io.store) if path else {"previous": None, "tokens": {}}
    oldest = now_ms() - KEPT_MS
    tokens = {token: fields for token, fields in previous["tokens"].items() if fields["committed_ms"] >= oldest}
    for snapshot in expired:
        if snapshot.timestamp_ms >= oldest:
            for token, receipt in receipt_of(version, summary_value(snapshot, COMMIT_TOKEN).split()).items():
                fields = {name: getattr(receipt, name) for name in _FIELDS}
                tokens[token] = {**fields, "committed_ms": snapshot.timestamp_ms}
    obsolete = [previous["previous"]] if previous["previous"] else []
    if not tokens:
        return ([RemovePropertiesUpdate(removals=[EXPIRED_TOKENS])], [*obsolete, path]) if path else ([], obsolete)
    record = f"{version.paths().metadata_path}/expired-tokens-{uuid4().hex}.json"
    io.send(record, json.dumps({"previous": path, "tokens": tokens}).encode())
    return [SetPropertiesUpdate(updates={EXPIRED_TOKENS: record})], obsolete


def has_altered(version: TableVersion, token: str) -> bool:
    """Whether an `alter` with this token was committed."""
    return token in _alterations(version)


def note_alteration(version: TableVersion, token: str) -> TableUpdate:
    """The update that records the token, for the same commit. It is a table property, because alterations are few."""
    oldest = now_ms() - KEPT_MS
    tokens = {altered: ms for altered, ms in _alterations(version).items() if ms >= oldest} | {token: now_ms()}
    return SetPropertiesUpdate(updates={ALTER_TOKENS: json.dumps(tokens)})


def _alterations(version: TableVersion) -> dict[str, int]:
    """Token -> when its change was committed, in milliseconds."""
    tokens: dict[str, int] = json.loads(version.properties.get(ALTER_TOKENS, "{}"))
    return tokens


def _read(version: TableVersion, path: str, store: ObjectStore) -> Mapping[str, Any]:
    try:
        return _record(store, path)
    except FileNotFoundError:
        raise Unavailable(
            f"{version.name}: snapshots expired twice while its tokens were read: try again", subject=version.name
        ) from None


@lru_cache(maxsize=32)
def _record(store: ObjectStore, path: str) -> Mapping[str, Any]:
    """Cached: an object at such a path never changes."""
    record: dict[str, Any] = json.loads(store.get(path))
    return record
