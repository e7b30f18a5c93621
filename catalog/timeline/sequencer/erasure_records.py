"""The records of erasures in the lake's bucket. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import NotFound, Unverified
from catalog.timeline.log.erasure import Erasure, erased_keys_key, erasure_key


@dataclass(frozen=True)
class ErasureRecords:
    s3: Any
    bucket: str

    def location(self, table_uuid: str, erasure_id: str) -> str:
        return f"s3://{self.bucket}/{erasure_key(table_uuid, erasure_id)}"

    def load(self, table_uuid: str, erasure_id: str) -> Erasure:
        """One GET. NotFound without a record; Unverified if it is not one of this table and id."""
        erasure = Erasure.decode(self._read(erasure_key(table_uuid, erasure_id)))
        if (erasure.table_uuid, erasure.id) != (table_uuid, erasure_id):
            raise Unverified("the record of an erasure is of another table, or another erasure")
        return erasure

    def key_digests(self, table_uuid: str, erasure_id: str) -> list[bytes]:
        """The key digests of the erased rows; none once the erasure is complete, or for a table without a key."""
        try:
            data = self._read(erased_keys_key(table_uuid, erasure_id))
        except NotFound:
            return []
        return [data[at : at + 32] for at in range(0, len(data) - 31, 32)]

    def names(self, table_uuid: str) -> set[str]:
        """The names of all objects of the table's erasures: one LIST per thousand."""
        prefix = erasure_key(table_uuid, "")
        with translate_errors(prefix):
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            return {item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", ())}

    def list(self, table_uuid: str) -> list[Erasure]:
        """All valid records of the table: one LIST, and a GET for each. An invalid one is passed over."""
        found = list[Erasure]()
        for name in sorted(self.names(table_uuid)):
            if "." not in name:
                try:
                    found.append(self.load(table_uuid, name))
                except (NotFound, Unverified):
                    continue
        return found

    def _read(self, key: str) -> bytes:
        with translate_errors(key):
            data: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return data
