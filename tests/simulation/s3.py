"""S3 in memory: versions, conditional writes, listings, ranges, events of created objects. Strongly consistent."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any

from botocore.exceptions import ClientError

from tests.simulation.network import Network, client_error
from tests.simulation.scheduler import EPOCH_S, World

USED_ONCE = ".slatedb/wal/"
"""SlateDB fences a writer that would write a collected file of the WAL again. How it knows is not modelled: that is."""


@dataclass(frozen=True)
class Version:
    key: str
    body: bytes
    version_id: str
    at: float
    metadata: dict[str, Any]

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body).hexdigest()}"'

    @property
    def modified(self) -> datetime:
        """S3 keeps whole seconds."""
        return datetime.fromtimestamp(int(EPOCH_S + self.at), UTC)


class Bucket:
    """The objects of the one bucket. A deleted object's versions stay, as in a versioned bucket."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.objects: dict[str, Version] = {}
        self.versions: dict[str, list[Version]] = {}
        self.on_created: Callable[[Version], None] = lambda version: None
        self.on_put: Callable[[Version], None] = lambda version: None
        self._number = 0

    def put(self, key: str, body: bytes, if_none_match: str | None, if_match: str | None, metadata: Any) -> Version:
        current = self.objects.get(key)
        collected = USED_ONCE in key and key in self.versions
        if if_none_match is not None and (current is not None or collected):
            raise client_error("PreconditionFailed", 412, "PutObject")
        if if_match is not None and current is None:
            raise client_error("NoSuchKey", 404, "PutObject")
        if if_match is not None and current is not None and current.etag != if_match:
            raise client_error("PreconditionFailed", 412, "PutObject")
        self._number += 1
        version = Version(key, bytes(body), f"v{self._number:06}", self.world.now, metadata or {})
        self.objects[key] = version
        self.versions.setdefault(key, []).append(version)
        self.on_put(version)
        self.on_created(version)
        return version

    def get(self, key: str, version_id: str | None = None) -> Version:
        if version_id is None:
            if key not in self.objects:
                raise client_error("NoSuchKey", 404, "GetObject", f"no key {key}")
            return self.objects[key]
        for version in self.versions.get(key, ()):
            if version.version_id == version_id:
                return version
        raise client_error("NoSuchVersion", 404, "GetObject")

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def listed(self, prefix: str) -> list[Version]:
        return [self.objects[key] for key in sorted(self.objects) if key.startswith(prefix)]


class S3Client:
    """boto3's S3 client, as far as the lake uses it."""

    def __init__(self, network: Network, bucket: Bucket, attempts: int = 3) -> None:
        self._network, self._bucket, self._attempts = network, bucket, attempts

    def _send(self, what: str, apply: Callable[[], Any]) -> Any:
        return self._network.request(f"s3 {what}", apply, attempts=self._attempts)

    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: Any = b"",
        IfNoneMatch: str | None = None,
        IfMatch: str | None = None,
        Metadata: Any = None,
        **_: Any,
    ) -> dict[str, Any]:
        body = Body if isinstance(Body, bytes) else bytes(Body) if isinstance(Body, bytearray) else Body.read()

        def apply() -> dict[str, Any]:
            version = self._bucket.put(Key, body, IfNoneMatch, IfMatch, Metadata)
            return {"ETag": version.etag, "VersionId": version.version_id}

        result: dict[str, Any] = self._send(f"PUT {Key}", apply)
        return result

    def get_object(
        self, *, Bucket: str, Key: str, Range: str | None = None, VersionId: str | None = None, **_: Any
    ) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            version = self._bucket.get(Key, VersionId)
            start, end = _range(Range, len(version.body))
            found = _described(version) | {"Body": io.BytesIO(version.body[start:end])}
            found["ContentLength"] = end - start
            if Range:
                found["ContentRange"] = f"bytes {start}-{end - 1}/{len(version.body)}"
            return found

        result: dict[str, Any] = self._send(f"GET {Key}", apply)
        return result

    def head_object(self, *, Bucket: str, Key: str, VersionId: str | None = None, **_: Any) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            dated = {"HTTPHeaders": {"date": formatdate(EPOCH_S + self._bucket.world.now, usegmt=True)}}
            try:
                return _described(self._bucket.get(Key, VersionId)) | {"ResponseMetadata": dated}
            except ClientError as missing:
                missing.response["ResponseMetadata"] |= dated  # type: ignore[typeddict-item]
                raise

        result: dict[str, Any] = self._send(f"HEAD {Key}", apply)
        return result

    def copy_object(self, *, Bucket: str, Key: str, CopySource: dict[str, str], **named: Any) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            source = self._bucket.get(CopySource["Key"], CopySource.get("VersionId"))
            version = self._bucket.put(Key, source.body, None, None, named.get("Metadata"))
            return {"CopyObjectResult": {"ETag": version.etag}, "VersionId": version.version_id}

        result: dict[str, Any] = self._send(f"COPY {Key}", apply)
        return result

    def delete_object(self, *, Bucket: str, Key: str, **_: Any) -> dict[str, Any]:
        self._send(f"DELETE {Key}", lambda: self._bucket.delete(Key))
        return {}

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any], **_: Any) -> dict[str, Any]:
        keys = [item["Key"] for item in Delete["Objects"]]

        def apply() -> None:
            for key in keys:
                self._bucket.delete(key)

        self._send(f"DELETE {len(keys)} objects, {min(keys)} ...", apply)
        return {}

    def list_objects_v2(self, *, Bucket: str, Prefix: str = "", **named: Any) -> dict[str, Any]:
        def apply() -> dict[str, Any]:
            listed = self._bucket.listed(Prefix)
            if named.get("StartAfter"):
                listed = [version for version in listed if version.key > named["StartAfter"]]
            listed = listed[: named.get("MaxKeys", 1000)]
            delimiter = named.get("Delimiter")
            contents, prefixes = [], dict[str, None]()
            for version in listed:
                rest = version.key[len(Prefix) :]
                if delimiter and delimiter in rest:
                    prefixes[Prefix + rest.split(delimiter)[0] + delimiter] = None
                else:
                    contents.append({"Key": version.key, "Size": len(version.body), **_listed(version)})
            page: dict[str, Any] = {"IsTruncated": False, "KeyCount": len(contents)}
            if contents:
                page["Contents"] = contents
            if prefixes:
                page["CommonPrefixes"] = [{"Prefix": prefix} for prefix in prefixes]
            return page

        result: dict[str, Any] = self._send(f"LIST {Prefix}", apply)
        return result

    def get_paginator(self, operation: str) -> Any:
        return Paginator(getattr(self, operation))


class Paginator:
    """One page has everything: the simulation's lakes are small."""

    def __init__(self, operation: Callable[..., dict[str, Any]]) -> None:
        self._operation = operation

    def paginate(self, **named: Any) -> Iterator[dict[str, Any]]:
        named.pop("PaginationConfig", None)
        yield self._operation(**named)


def _described(version: Version) -> dict[str, Any]:
    return {
        "ContentLength": len(version.body),
        "VersionId": version.version_id,
        "Metadata": version.metadata,
        **_listed(version),
    }


def _listed(version: Version) -> dict[str, Any]:
    return {"ETag": version.etag, "LastModified": version.modified}


def _range(text: str | None, length: int) -> tuple[int, int]:
    if text is None:
        return 0, length
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, length - int(last)), length
    return int(first), min(length, int(last) + 1 if last else length)
