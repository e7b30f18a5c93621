"""What the query figures are taken on: tables made in the embedded cloud, their objects served from memory by a process
of its own that answers S3's GET at the speed of the loopback, and counts what it is asked for.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4
from xml.sax.saxutils import escape

import boto3
from pyiceberg.catalog.glue import GlueCatalog

from bench.timeline_world import cloud
from catalog.errors import NotFound
from catalog.query.engine import Limits
from catalog.query.queries import Queries
from catalog.tables.manager import Tables
from catalog.timeline.attest import Attestations


@dataclass
class Warehouse:
    """A bucket of tables. `reader()` is a process that has seen nothing yet, as far as caches go."""

    url: str
    bucket: str = field(default_factory=lambda: f"bench-{uuid4().hex[:12]}")
    fast: FastStore | None = None

    def __post_init__(self) -> None:
        boto3.client("s3", endpoint_url=self.url, region_name="us-east-1").create_bucket(Bucket=self.bucket)

    def tables(self, *, fast: bool = False) -> Tables:
        properties = {
            "s3.endpoint": self.fast.url if fast and self.fast else self.url,
            "s3.region": "us-east-1",
            "s3.access-key-id": f"bench-{uuid4().hex}",  # a store, and so a cache, of its own
            "s3.secret-access-key": "x",
            "warehouse": f"s3://{self.bucket}/tables",
        }
        glue = boto3.client("glue", endpoint_url=self.url, region_name="us-east-1")
        return Tables(GlueCatalog("bench", client=glue, **properties))

    @property
    def fast_url(self) -> str:
        assert self.fast is not None
        return self.fast.url

    def publish(self) -> None:
        """Copies every object to the fast store: from here on it is read there."""
        client = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1")
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        assert self.fast is not None
        for page in pages:
            for found in page.get("Contents", ()):
                body = client.get_object(Bucket=self.bucket, Key=found["Key"])["Body"].read()
                self.fast.put(f"/{self.bucket}/{found['Key']}", body)

    def reader(self) -> Queries:
        tables = self.tables(fast=True)
        client = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1")
        limits = Limits(6 << 30, 300.0)  # what a function of 10 GB has
        return Queries(tables, _no_timeline, Attestations(client, self.bucket), limits=limits)


def _no_timeline() -> Any:
    """Tables are read at their newest snapshot: the timeline has figures of its own."""
    raise NotFound("no timeline here")


class FastStore:
    """Objects in another process's memory, behind HTTP."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        self.url: str = self._pipe.recv()

    def put(self, path: str, data: bytes) -> None:
        self._pipe.send((path, data))
        self._pipe.recv()

    def gets(self) -> dict[str, int]:
        """How often each path was read since the last call."""
        self._pipe.send(("gets", None))
        found: dict[str, int] = self._pipe.recv()
        return found

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join(10)


def _serve(pipe: Any) -> None:
    objects: dict[str, bytes] = {}
    counts: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            path, _, query = self.path.partition("?")
            data = objects.get(path)
            if data is None and "list-type=2" in query:
                data = _listing(objects, path.strip("/"), parse_qs(query))
            if data is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            counts[path] = counts.get(path, 0) + body
            view, total = memoryview(data), len(data)
            asked = self.headers.get("Range")
            start, end = 0, total
            if asked:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start = int(first) if first else max(0, total - int(last))
                end = min(int(last) + 1, total) if first and last else total
            self.send_response(206 if asked else 200)
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{total}")
            self.send_header("Content-Length", str(end - start))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", f'"{abs(hash(path)):x}"')
            self.send_header("Last-Modified", "Mon, 16 Nov 2026 00:00:00 GMT")
            self.end_headers()
            if body:
                self.wfile.write(view[start:end])

        def log_message(self, *_: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A caller that hangs up between two requests, as the JVM's does, is no fault."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pipe.send(f"http://127.0.0.1:{server.server_port}")
    while (message := pipe.recv()) is not None:
        path, data = message
        if data is None:
            pipe.send(dict(counts))
            counts.clear()
        else:
            objects[path] = data
            pipe.send(None)


def _listing(objects: dict[str, bytes], bucket: str, query: dict[str, list[str]]) -> bytes:
    """ListObjectsV2, all on one page."""
    prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
    found, folders = [], set()
    for path in sorted(objects):
        key = path.removeprefix(f"/{bucket}/")
        if not path.startswith(f"/{bucket}/{prefix}"):
            continue
        folder = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if folder[1]:
            folders.add(prefix + folder[0] + delimiter)
            continue
        found.append(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[path])}</Size><ETag>&quot;x&quot;</ETag>"
            "<LastModified>2026-11-16T00:00:00.000Z</LastModified><StorageClass>STANDARD</StorageClass></Contents>"
        )
    common = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders))
    return (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{''.join(found)}{common}</ListBucketResult>"
    ).encode()


@contextmanager
def warehouse() -> Iterator[Warehouse]:
    with cloud() as running:
        fast = FastStore()
        try:
            yield Warehouse(running.url, fast=fast)
        finally:
            fast.stop()
