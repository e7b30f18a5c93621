"""Reads and replaces the heads of vector tables in S3.

Readers take the Lance version from the head, so they never see an unfinished refresh; writers replace it by
compare-and-swap, so one of two concurrent refreshes wins. Lance's own latest version is never used for reads.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from catalog.core import s3_layout
from catalog.core.aws_errors import is_missing, lost_race, translate_errors
from catalog.core.errors import Conflict, NotFound
from catalog.core.vector_head import Head
from catalog.timeline import VectorObjects, head_key, vector_table_name


class Heads:
    """The heads of a bucket's vector tables, with their ETags."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self._s3, self._bucket = s3, bucket

    def read(self, id_: str) -> tuple[Head, str]:
        """The head and its ETag. One request; NotFound if there is none."""
        with translate_errors(id_):
            try:
                response = self._s3.get_object(Bucket=self._bucket, Key=_key(id_))
            except ClientError as error:
                if not is_missing(error):
                    raise
                raise NotFound(
                    f"there is no vector table {id_}: create it with `strandline vectors create`", subject=id_
                ) from None
            return Head.parse(response["Body"].read(), _key(id_), id_), response["ETag"]

    def write(self, head: Head, etag: str | None) -> str:
        """Replaces the head with this ETag (None: creates it) and returns the new ETag; Conflict if it changed."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        with translate_errors(head.id):
            try:
                response = self._s3.put_object(
                    Bucket=self._bucket, Key=_key(head.id), Body=head.model_dump_json().encode(), **condition
                )
            except ClientError as error:
                if not lost_race(error):
                    raise
                message = f"the vector table {head.id} exists already: drop it first, or refresh it"
                if etag is not None:
                    message = f"the vector table {head.id} was changed by another writer: try again"
                raise Conflict(message, subject=head.id) from None
        new_etag: str = response["ETag"]
        return new_etag

    def remove(self, id_: str) -> None:
        with translate_errors(id_):
            self._s3.delete_object(Bucket=self._bucket, Key=_key(id_))

    def ids(self) -> list[str]:
        """The ids of all vector tables, from a listing of their heads."""
        names = VectorObjects(self._s3, self._bucket).names()
        return [name.removeprefix(s3_layout.VECTORS) for name in names]


def _key(id_: str) -> str:
    return head_key(vector_table_name(id_))
