"""S3's event messages: which files landed, and for which table, by the key: `landing/<namespace>/<table>/<name>`.

A message is trusted only for where to look; size and content are read from S3.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from catalog.core.errors import Invalid
from catalog.core.s3_layout import LANDING

# What Glue, Athena and Spark all accept without quoting.
_NAME = re.compile(r"[a-z0-9_]{1,128}")
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{1,64}(-[0-9]{1,5})?")
_MAX_NAME_BYTES = 1024


@dataclass(frozen=True, slots=True)
class LandedFile:
    """One object that was put into the bucket. `correlation_id` is S3's id of the PUT request; `sequencer` orders the
    events of one key."""

    bucket: str
    key: str
    version_id: str | None = None
    correlation_id: str | None = None
    sequencer: str | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """The table that a key names. `name` is the rest of the key, unchanged: a label, never a path."""

    namespace: str
    table: str
    name: str

    @property
    def full_table(self) -> str:
        return f"{self.namespace}.{self.table}"


def parse_event(body: str) -> list[LandedFile]:
    """The objects that an S3 message lists; none for S3's test message, removals and folder markers.

    Invalid if the message is not S3's: there is nothing to quarantine, so the message becomes a dead letter.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"not a message from S3: {error}") from None
    if isinstance(document, dict) and document.get("Event") == "s3:TestEvent":
        return []
    if not isinstance(document, dict) or not isinstance(document.get("Records"), list):
        raise Invalid("not a message from S3: it has no list of Records")
    files = (_landed_file(number, record) for number, record in enumerate(document["Records"]))
    return [file for file in files if file is not None]


def _landed_file(number: int, record: Any) -> LandedFile | None:
    try:
        if not record["eventName"].startswith("ObjectCreated:"):
            return None
        entity = record["s3"]["object"]
        key = unquote_plus(entity["key"], errors="strict")
        bucket, version = record["s3"]["bucket"]["name"], entity.get("versionId")
        request = (record.get("responseElements") or {}).get("x-amz-request-id")
        sequencer, etag = _hexadecimal(entity.get("sequencer")), _hexadecimal(entity.get("eTag"))
    except UnicodeDecodeError as error:
        raise Invalid(f"record {number}: the key is not UTF-8: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(f"record {number} is not an S3 event record: {error!r}") from None
    # Consoles create such a key for an empty folder.
    return None if key.endswith("/") else LandedFile(bucket, key, version, request, sequencer, etag)


def _hexadecimal(value: Any) -> str | None:
    """The value if it is hexadecimal, as sequencers and ETags are (optionally with `-` and a part count), else None."""
    return value if isinstance(value, str) and _HEXADECIMAL.fullmatch(value) else None


def parse_key(key: str) -> Destination:
    """`landing/bronze/notes/2026/a b.md` -> bronze, notes, `2026/a b.md`; Invalid with the reason otherwise."""
    if not key.startswith(LANDING):
        raise Invalid(f"{key!r} is not below {LANDING}: write {LANDING}<namespace>/<table>/<name>", subject=key)
    parts = key.removeprefix(LANDING).split("/", 2)
    if len(parts) < 3 or not parts[2]:
        raise Invalid(f"{key!r} names no table: write {LANDING}<namespace>/<table>/<name>", subject=key)
    namespace, table, name = parts
    _check_names(namespace, table, key)
    if any(part in (".", "..") for part in name.split("/")):
        # HTTP clients resolve such segments: the object that is read could be another than the one announced.
        raise Invalid(f"{key!r} has a segment '.' or '..', which HTTP clients resolve: rename it")
    if len(key.encode()) > _MAX_NAME_BYTES:
        reason = f"it is longer than {_MAX_NAME_BYTES} bytes, S3's limit for a key: shorten it"
        raise Invalid(f"{key[:40]!r}…: {reason}", subject=key[:40])
    return Destination(namespace, table, name)


def parse_table(name: str) -> tuple[str, str]:
    """`bronze.notes` -> bronze, notes; Invalid if no key can name that table."""
    namespace, dot, table = name.partition(".")
    if not dot:
        raise Invalid(f"{name!r} names no table: write <namespace>.<table>", subject=name)
    _check_names(namespace, table, name)
    return namespace, table


def _check_names(namespace: str, table: str, subject: str) -> None:
    for what, name in (("namespace", namespace), ("table", table)):
        if not _NAME.fullmatch(name):
            reason = f"{name!r} is not a {what} name: use 1 to 128 lower-case letters, digits and underscores"
            raise Invalid(f"{subject!r}: {reason}", subject=subject)
