"""Deletes objects for good: every version of them, so that the bucket's versioning keeps none. Irreversible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Conflict, Unavailable


@dataclass(frozen=True)
class ObjectVersion:
    key: str
    version_id: str
    is_latest: bool
    is_marker: bool
    modified: datetime


@dataclass(frozen=True)
class Purge:
    s3: Any
    bucket: str

    def versions(self, prefix: str) -> Iterator[ObjectVersion]:
        """All versions and delete markers below a prefix. One LIST per thousand."""
        with translate_errors(prefix):
            for page in self.s3.get_paginator("list_object_versions").paginate(Bucket=self.bucket, Prefix=prefix):
                for kind in ("Versions", "DeleteMarkers"):
                    for item in page.get(kind, ()):
                        yield ObjectVersion(
                            item["Key"],
                            item["VersionId"],
                            item["IsLatest"],
                            kind == "DeleteMarkers",
                            item["LastModified"],
                        )

    def delete(self, versions: Iterable[ObjectVersion]) -> int:
        """Deletes these versions, a thousand per request. Returns how many; Unavailable if one could not be deleted.

        Delete markers go last: without its marker, the version before would be the object again.
        """
        listed = list(versions)
        for kind in ([each for each in listed if not each.is_marker], [each for each in listed if each.is_marker]):
            for start in range(0, len(kind), 1000):
                part = [{"Key": each.key, "VersionId": each.version_id} for each in kind[start : start + 1000]]
                with translate_errors(self.bucket):
                    response = self.s3.delete_objects(Bucket=self.bucket, Delete={"Objects": part, "Quiet": True})
                if errors := response.get("Errors"):
                    code = errors[0].get("Code")
                    raise Unavailable(f"{errors[0]['Key']} could not be deleted ({code}): run it again")
        return len(listed)

    def key(self, path: str) -> str:
        """The key of an object's path, or of a folder's. Raises for one in another bucket."""
        prefix = f"s3://{self.bucket}/"
        if not path.startswith(prefix) or path == prefix:
            raise Conflict(f"{path} is not in the lake's bucket, {self.bucket}: nothing of it is deleted")
        return path.removeprefix(prefix)

    def below(self, prefix: str, selected: Callable[[ObjectVersion], bool] = lambda _: True) -> int:
        """Deletes the selected versions below a prefix."""
        return self.delete(each for each in self.versions(prefix) if selected(each))

    def objects(self, keys: Iterable[str]) -> int:
        """Deletes every version of these objects."""
        return sum(self.below(key, lambda each, key=key: each.key == key) for key in keys)  # type: ignore[misc]
