"""S3 objects as the tables use them: one request for each read or write.

Never checks with HEAD whether an object exists, because table objects are never overwritten; never uploads in parts,
because an object's whole content is in memory when it is sent.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from botocore.exceptions import ClientError
from pyiceberg.typedef import Properties

from catalog.core.aws_errors import is_missing
from catalog.core.clients import CONNECT_TIMEOUT_S, RETRIES, make_client

WORKERS = 8
# Iceberg's metadata files are small, immutable and read again by every commit.
CACHED_SUFFIXES = (".avro", ".json")
CACHE_BYTES = 64 << 20
# A Parquet reader begins at the end of a file: a file no longer than this is read in one request.
TAIL_BYTES = 1 << 20


class ObjectStore:
    """An S3 client with a pool for parallel writes and a cache of immutable metadata, by path."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="objects")
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def get(self, path: str) -> bytes:
        """The whole object, without a request if it is cached metadata. FileNotFoundError if it does not exist."""
        with self._lock:
            if path in self._cache:
                self._cache.move_to_end(path)
                return self._cache[path]
        data: bytes = self._get(path)["Body"].read()
        self._cache_metadata(path, data)
        return data

    def get_tail(self, path: str) -> tuple[bytes, int]:
        """The object's last TAIL_BYTES, and its length."""
        response = self._get(path, Range=f"bytes=-{TAIL_BYTES}")
        data: bytes = response["Body"].read()
        _, _, total = response.get("ContentRange", "").rpartition("/")
        return data, int(total) if total else len(data)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        data: bytes = self._get(path, Range=f"bytes={start}-{end - 1}")["Body"].read()
        return data

    def put(self, path: str, data: bytes, **condition: str) -> None:
        bucket, key = _split(path)
        self.client.put_object(Bucket=bucket, Key=key, Body=data, **condition)
        self._cache_metadata(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes the objects, a thousand per request; a missing one is no error."""
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = _split(path)
            by_bucket.setdefault(bucket, []).append(key)
            self.forget(path)
        for bucket, keys in by_bucket.items():
            for start in range(0, len(keys), 1000):
                objects = [{"Key": key} for key in keys[start : start + 1000]]
                self.client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})

    def delete_below(self, folder: str) -> None:
        """Deletes every object below a folder, for a table that is purged. One LIST per thousand objects."""
        bucket, prefix = _split(f"{folder.rstrip('/')}/")
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            self.delete(f"s3://{bucket}/{item['Key']}" for item in page.get("Contents", ()))

    def _get(self, path: str, **options: str) -> Any:
        bucket, key = _split(path)
        try:
            return self.client.get_object(Bucket=bucket, Key=key, **options)
        except ClientError as error:
            if is_missing(error, or_bucket=True):
                raise FileNotFoundError(path) from None
            raise

    def _cache_metadata(self, path: str, data: bytes) -> None:
        if not path.endswith(CACHED_SUFFIXES):
            return
        with self._lock:
            if path not in self._cache:
                self._cached_bytes += len(data)
            self._cache[path] = data
            while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
                self._cached_bytes -= len(self._cache.popitem(last=False)[1])

    def forget(self, path: str) -> None:
        """Drops what is cached of the object."""
        with self._lock:
            self._cached_bytes -= len(self._cache.pop(path, b""))


_CLIENT_PROPERTIES: Sequence[tuple[str, ...]] = (
    ("s3.endpoint",),
    ("s3.region", "client.region"),
    ("s3.access-key-id", "client.access-key-id"),
    ("s3.secret-access-key", "client.secret-access-key"),
    ("s3.session-token", "client.session-token"),
    ("s3.connect-timeout",),
    ("s3.request-timeout",),
    ("s3.max-attempts",),
)


def open_object_store(properties: Properties) -> ObjectStore:
    """The store for a catalog's properties. Settings they do not have come from the environment."""
    return _store(*(_first(properties, *names) for names in _CLIENT_PROPERTIES))


def _first(properties: Properties, *names: str) -> str | None:
    return next((properties[name] for name in names if properties.get(name)), None)


@lru_cache(maxsize=16)
def _store(
    endpoint: str | None,
    region: str | None,
    key_id: str | None,
    secret: str | None,
    token: str | None,
    connect_timeout: str | None,
    read_timeout: str | None,
    attempts: str | None,
) -> ObjectStore:
    """Cached, one store per set of credentials: pyiceberg makes a FileIO for every table it loads."""
    client = make_client(
        "s3",
        region=region,
        endpoint_url=endpoint,
        credentials=(key_id, secret, token),
        connect_timeout_s=float(connect_timeout or CONNECT_TIMEOUT_S),
        read_timeout_s=float(read_timeout or 60),
        retries=int(attempts or RETRIES),
        pool=2 * WORKERS,
    )
    return ObjectStore(client)


def _split(path: str) -> tuple[str, str]:
    bucket, _, key = path.partition("://")[2].partition("/")
    return bucket, key
