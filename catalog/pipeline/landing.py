"""S3's event records: which file landed, and for which table. A key says it all: `landing/<namespace>/<table>/<name>`.

Lines of the message are believed only for where to look; size and content are S3's to say.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from catalog.errors import Invalid
from catalog.places import LANDING

# What Glue, Athena and Spark all take without quoting.
_NAME = re.compile(r"[a-z0-9_]{1,128}")
_MAX_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Landed:
    """One object that was put into the bucket. `correlation_id` is S3's id of the request that put it."""

    bucket: str
    key: str
    version_id: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a key says its rows belong. `name` is the rest of the key, as it is: a label, never a path."""

    namespace: str
    table: str
    name: str

    @property
    def full_table(self) -> str:
        return f"{self.namespace}.{self.table}"


def parse_event(body: str) -> list[Landed]:
    """The objects one S3 message tells of; none for S3's test message, removals and folder markers.

    Invalid if it is no message of S3's: nothing can be quarantined then, so the message is a dead letter.
    """
    try:
        document = json.loads(body)
    except ValueError as error:
        raise Invalid(f"not a message from S3: {error}") from None
    if isinstance(document, dict) and document.get("Event") == "s3:TestEvent":
        return []
    if not isinstance(document, dict) or not isinstance(document.get("Records"), list):
        raise Invalid("not a message from S3: it has no list of Records")
    found = (_landed(number, record) for number, record in enumerate(document["Records"]))
    return [landed for landed in found if landed is not None]


def _landed(number: int, record: Any) -> Landed | None:
    try:
        if not record["eventName"].startswith("ObjectCreated:"):
            return None
        stored = record["s3"]["object"]
        key = unquote_plus(stored["key"], errors="strict")
        bucket, version = record["s3"]["bucket"]["name"], stored.get("versionId")
        request = (record.get("responseElements") or {}).get("x-amz-request-id")
    except UnicodeDecodeError as error:
        raise Invalid(f"record {number}: the key is not UTF-8: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"record {number} is not a record of S3's: {error!r}") from None
    # What consoles make for an empty folder.
    return None if key.endswith("/") else Landed(bucket, key, version, request)


def parse_key(key: str) -> Destination:
    """`landing/bronze/notes/2026/a b.md` -> bronze, notes, `2026/a b.md`; Invalid with the reason otherwise."""
    if not key.startswith(LANDING):
        raise Invalid(f"{key!r} is not below {LANDING}", subject=key)
    parts = key.removeprefix(LANDING).split("/", 2)
    if len(parts) < 3 or not parts[2]:
        raise Invalid(f"{key!r} names no table: write {LANDING}<namespace>/<table>/<name>", subject=key)
    namespace, table, name = parts
    _check_names(namespace, table, key)
    if any(part in (".", "..") for part in name.split("/")):
        # HTTP clients fold such segments away: what is read could be another object than what was announced.
        raise Invalid(f"{key!r} has a segment '.' or '..', which means different things to different readers")
    if len(key.encode()) > _MAX_NAME_BYTES:
        raise Invalid(f"{key[:40]!r}… is longer than a key of S3's can be", subject=key[:40])
    return Destination(namespace, table, name)


def parse_table(name: str) -> tuple[str, str]:
    """`bronze.notes` -> bronze, notes; Invalid if files could not land there."""
    namespace, dot, table = name.partition(".")
    if not dot:
        raise Invalid(f"{name!r} names no table: write <namespace>.<table>", subject=name)
    _check_names(namespace, table, name)
    return namespace, table


def _check_names(namespace: str, table: str, subject: str) -> None:
    for what, found in (("namespace", namespace), ("table", table)):
        if not _NAME.fullmatch(found):
            reason = f"{found!r} is no {what}: 1 to 128 lower-case letters, digits and underscores"
            raise Invalid(f"{subject!r}: {reason}", subject=subject)
