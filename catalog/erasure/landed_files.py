"""Landed and quarantined files that hold an erased key: they are deleted, with all their versions and their ledger.

A landed file is parsed with the table's types. One that cannot be parsed, or lacks a column of the key, is not deleted
but named, for a person to look at; so is a quarantined file with the key's text in it, which has no rows to compare,
and one that is not ingested yet: its other rows are nowhere else.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa

from catalog.core import s3_layout
from catalog.core.aws_errors import translate_errors
from catalog.core.errors import LakeError
from catalog.erasure.purge import ObjectVersion, Purge
from catalog.formats import FormatLimits, read_rows


@dataclass(frozen=True)
class LandedFiles:
    purge: Purge

    def erase(self, table: str, keys: Sequence[Mapping[str, Any]], hint: pa.Schema) -> tuple[int, list[str]]:
        """Deletes what holds one of the keys. Returns how many objects, and those that stay, with what to do."""
        folder = table.replace(".", "/")
        deleted, remains = 0, dict[str, None]()
        rejected = s3_layout.QUARANTINE
        for prefix in (f"{s3_layout.LANDING}{folder}/", f"{rejected}{folder}/", f"{rejected}unplaced/"):
            for version in list(self.purge.versions(prefix)):
                if version.is_marker:
                    continue
                data, location = self._read(version), f"s3://{self.purge.bucket}/{version.key}"
                ledger = f"{s3_layout.INGESTED}{sha256(data).hexdigest()}/"
                found = holds(data, version.key, keys, hint)
                if found is None:
                    remains[f"{location}: look into it, and delete it if it has the rows"] = None
                elif found and not self._is_ingested(version, ledger):
                    remains[f"{location}: it has the rows, but is not ingested yet: run the command again later"] = None
                elif found:
                    deleted += self.purge.delete([version])
                    self.purge.below(ledger)
        return deleted, sorted(remains)

    def _is_ingested(self, version: ObjectVersion, ledger: str) -> bool:
        """Whether the ledger has the rows of this version as committed."""
        keys = [each.key for each in self.purge.versions(ledger) if each.is_latest and not each.is_marker]
        for key in keys:
            with translate_errors(key):
                data = self.purge.s3.get_object(Bucket=self.purge.bucket, Key=key)["Body"].read()
            record = json.loads(data)
            if (record.get("key"), record.get("version")) == (version.key, version.version_id):
                return record.get("state") in ("committed", "duplicate")
        return False

    def _read(self, version: ObjectVersion) -> bytes:
        with translate_errors(version.key):
            response = self.purge.s3.get_object(Bucket=self.purge.bucket, Key=version.key, VersionId=version.version_id)
        data: bytes = response["Body"].read()
        return data


def holds(data: bytes, name: str, keys: Sequence[Mapping[str, Any]], hint: pa.Schema) -> bool | None:
    """Whether a file has a row with one of the keys; None if it cannot be told. Values are compared as text."""
    if not keys:
        return None
    wanted = {tuple(str(key[column]) for column in sorted(key)) for key in keys}
    columns = sorted(keys[0])
    if name.startswith(s3_layout.QUARANTINE):
        is_text = b"\0" not in data
        return False if is_text and not any(all(text.encode() in data for text in key) for key in wanted) else None
    try:
        for batch in read_rows(io.BytesIO(data), name, FormatLimits(), hint):
            rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            if any(column not in rows.column_names for column in columns):
                return None
            values = zip(*(rows[column].to_pylist() for column in columns), strict=True)
            if any(tuple(map(str, row)) in wanted for row in values):
                return True
    except (LakeError, pa.ArrowException, ValueError):
        return None
    return False
