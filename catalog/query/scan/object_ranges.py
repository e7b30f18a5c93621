"""Reads byte ranges of objects with obstore, which takes a fifth of botocore's CPU time for each request.

Whatever it cannot read is requested again by the lake's own S3 client: errors, and what they mean, come from there.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from catalog.core.clients import CONNECT_TIMEOUT_S, RETRIES
from catalog.iceberg import ObjectStore

Buffer: TypeAlias = bytes | memoryview | obstore.Bytes
CREDENTIALS_FOR = timedelta(minutes=5)
"""After this time boto's credentials are asked for again; it renews them well before they expire."""


class ObjectRanges:
    """Reads of one S3 client's objects, with its endpoint, region and credentials."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._by_bucket: dict[str, S3Store | None] = {}
        self._lock = threading.Lock()

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes, in one request. FileNotFoundError, or botocore's error, if they cannot be read."""
        return bytes(self.get_buffer(path, start, end))

    def get_buffer(self, path: str, start: int, end: int) -> Buffer:
        """The same without a copy: an object with Python's buffer protocol."""
        bucket, _, key = path.partition("://")[2].partition("/")
        source = self._source(bucket)
        if source is not None and end > start:
            try:
                data = obstore.get_range(source, key, start=start, end=end)
            except (BaseError, OSError):
                return self.store.get_range(path, start, end)
            if len(data) == end - start:
                return data
        return self.store.get_range(path, start, end)

    def _source(self, bucket: str) -> S3Store | None:
        with self._lock:
            if bucket not in self._by_bucket:
                self._by_bucket[bucket] = _open(bucket, self.store.client)
            return self._by_bucket[bucket]


def _open(bucket: str, client: Any) -> S3Store | None:
    """None for a client without credentials of its own, as in tests without a network."""
    signer = getattr(client, "_request_signer", None)
    credentials = getattr(signer, "_credentials", None)
    if credentials is None:
        return None
    endpoint = str(client.meta.endpoint_url)
    on_aws = endpoint.endswith(".amazonaws.com")

    def current() -> Any:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_FOR,
        }

    return S3Store(
        bucket,
        region=client.meta.region_name,
        endpoint=None if on_aws else endpoint,
        virtual_hosted_style_request=on_aws,
        credential_provider=current,
        client_options={
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
            "timeout": timedelta(seconds=client.meta.config.read_timeout),
        },
        retry_config={"max_retries": RETRIES - 1},
    )
