"""The timeline: the cost of sequencing, proving and verifying, in requests and in time."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import boto3
import pyarrow as pa
from botocore.config import Config

from bench.harness import Figure, Plot, p50, stopwatch, suite
from bench.object_store import ObjectStore, object_store
from bench.state_maps import state_maps
from bench.timeline_world import ORIGIN, Cloud, CountedDatabase, Log, MemoryS3, cloud, leaves
from catalog import Settings, open_lake
from catalog.changes import StateComputer, changes_of
from catalog.core.events import NoEventBus
from catalog.iceberg import ManifestReader, open_catalog
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.proof import read, write
from catalog.merkle.proof import verify as verify_proof
from catalog.tables import Tables
from catalog.timeline import (
    Attestation,
    Attestations,
    ObjectDigest,
    Publisher,
    Sequencer,
    StoredSource,
    StoreLocation,
    StoreReader,
    Timeline,
    Verifier,
)
from catalog.timeline.reader.sources import PublishedSource

GIB = 1 << 30


@suite("timeline")
def timeline(quick: bool) -> Iterator[Figure]:
    yield from _in_memory()
    with cloud() as running:
        yield from _counted(running)
        with object_store(running) as store:
            yield _warm(store, 20 if quick else 60)
        yield from _cost_of_proving(running, 30 if quick else 100)
    yield from state_maps(100_000 if quick else 1_000_000)
    yield from _at_size(50_000 if quick else 1_000_000)
    yield from _growth([100, 1_000, 10_000] if quick else [100, 1_000, 10_000, 100_000, 1_000_000])


def _sequencer(location: StoreLocation, s3: Any, bucket: str, catalog: Any = None) -> Sequencer:
    """As the lake makes it: it computes the changes of every small commit, and the state of the rows after it."""
    manifests = ManifestReader()
    return Sequencer(
        location,
        cast(Any, catalog),
        Publisher(s3, bucket),
        Attestations(s3, bucket),
        Ed25519Signer.generate(ORIGIN),
        NoEventBus(),
        partial(changes_of, manifests=manifests, with_records=True),
        compute_state=StateComputer(manifests=manifests),
    )


def _in_memory() -> Iterator[Figure]:
    sequencer = _sequencer(StoreLocation.in_memory(), MemoryS3(), "lake")
    batches = [leaves(first, 1000) for first in range(0, 10_000, 1000)]
    began = time.process_time()
    with stopwatch() as seconds:
        for batch in batches:
            sequencer.append(batch)
    cpu = time.process_time() - began
    sequencer.close()
    detail = {"cpu_leaves_per_s": round(10_000 / cpu)}
    yield Figure("leaves sequenced, in memory", 10_000 / seconds(), "leaves/s", 5000, "higher", detail)


def _counted(running: Cloud) -> Iterator[Figure]:
    bucket = running.bucket()
    sequencer = _sequencer(_location(running.url, bucket), _client(running.url, "s3"), bucket)
    before = running.counts()["s3 PUT"]
    for first in range(0, 10_000, 1000):
        sequencer.append(leaves(first, 1000))
    puts = running.counts()["s3 PUT"] - before
    yield Figure("PUTs, 10,000 leaves in batches of 1,000", puts / 10_000, "per leaf", 0.02, detail={"puts": puts})

    before = running.counts()["s3 PUT"]
    sequencer.append(leaves(10_000, 1))
    yield Figure("PUTs, one leaf alone", running.counts()["s3 PUT"] - before, "", 5)
    sequencer.close()


def _warm(store: ObjectStore, times: int) -> Figure:
    bucket = store.bucket()
    sequencer = _sequencer(_location(store.url, bucket), _client(store.url, "s3"), bucket)
    for first in range(0, 10_000, 1000):
        sequencer.append(leaves(first, 1000))
    samples = []
    for first in range(10_000, 10_000 + times * 10, 10):
        batch = leaves(first, 10)
        with stopwatch() as seconds:
            sequencer.append(batch)
        samples.append(seconds() * 1000)
    sequencer.close()
    detail: dict[str, object] = {"min": min(samples)}
    return Figure("10 leaves sequenced, warm, p50", p50(samples), "ms", 25, detail=detail, samples=samples)


def _cost_of_proving(running: Cloud, count: int) -> Iterator[Figure]:
    """Requests of `count` inserts and one sequencer run, with attestations staged (which counts too) and without."""
    bucket = running.bucket()
    settings = _settings(running.url, bucket)
    s3, catalog = _client(running.url, "s3"), open_lake(settings).iceberg
    attestations = Attestations(s3, bucket)
    rows = pa.table({"id": pa.array(range(100), pa.int64())})

    def stage(table: Any, snapshot: Any, written: Any) -> None:
        if snapshot is not None:
            entries = {entry.path: ObjectDigest(*entry) for entry in written}
            listing = entries.pop(snapshot.manifest_list)
            uuid = str(table.metadata.table_uuid)
            attestations.stage(Attestation(uuid, snapshot.snapshot_id, listing, tuple(sorted(entries.values()))))

    def commits(name: str, hook: Any) -> int:
        tables = Tables(catalog, on_commit=hook)
        tables.create(name, rows.schema)
        before = running.counts().total()
        for _ in range(count):
            tables.insert(name, rows)
        return running.counts().total() - before

    def appends(name: str) -> int:
        """Requests of the same inserts by pyiceberg, without proofs."""
        table = open_catalog(settings).create_table(name, schema=rows.schema)
        before = running.counts().total()
        for _ in range(count):
            table.append(rows)
        return running.counts().total() - before

    alone, peer = commits("sales.alone", None), appends("sales.peer")
    # A catalog with its own object cache, which is empty, as in another process.
    sequencer_catalog = open_lake(settings).iceberg
    sequencer_catalog.properties["s3.max-attempts"] = "4"
    sequencer = _sequencer(_location(running.url, bucket), s3, bucket, sequencer_catalog)
    for name, hook in (("sales.staged", stage), ("sales.unstaged", None)):
        sequencer.catch_up([])
        commit_requests = commits(name, hook)
        before = running.counts()
        outcome = sequencer.catch_up([name])
        sequencer_requests = running.counts() - before
        assert len(outcome.leaves) == count + 1, outcome
        ratio = (commit_requests + sequencer_requests.total()) / alone
        detail = {"commits_alone": alone, "commits": commit_requests, "sequencer": dict(sequencer_requests)}
        staging = "attestations staged" if hook else "nothing staged"
        yield Figure(
            f"requests of {count} proven commits / of the commits alone, {staging}", ratio, "x", 1.4, detail=detail
        )
        peer_detail = {"pyiceberg": peer, "ours_proven": commit_requests + sequencer_requests.total()}
        peer_ratio = (commit_requests + sequencer_requests.total()) / peer
        yield Figure(
            f"requests of {count} proven commits / of pyiceberg's, unproven, {staging}",
            peer_ratio,
            "x",
            detail=peer_detail,
        )
    sequencer.close()


def _at_size(size: int) -> Iterator[Figure]:
    with stopwatch() as building:
        log = Log(size)
    reader = StoreReader.open(log.location)
    trusted = [log.signer.verifier_key]
    leaf_count = f"{size:,} leaves"

    stored = Timeline(StoredSource(reader), ORIGIN, trusted)
    indexes = random.Random(1).sample(range(size), 40)
    hot = []
    for index in indexes:
        stored.proof(index)
        with stopwatch() as seconds:
            proof = stored.proof(index)
        hot.append(seconds() * 1000)
    yield Figure(f"inclusion proof, hot, {leaf_count}", p50(hot), "ms", 1, detail={"min": min(hot)}, samples=hot)

    gets = []
    for index in indexes:
        public = Timeline(PublishedSource(log.s3, "lake"), ORIGIN, trusted)
        before = log.s3.counts["GET"]
        public.proof(index)
        gets.append(log.s3.counts["GET"] - before - 2)
    detail = {"besides": "one each for the checkpoint and the entry's bundle"}
    yield Figure(f"tiles fetched for a proof, cold, {leaf_count}", max(gets), "GETs", 5, detail=detail)
    with_entry = write(read(proof).__class__(read(proof).index, read(proof).hashes, read(proof).checkpoint, b"x" * 680))
    yield Figure(f"proof file, {leaf_count}", len(proof), "bytes", 2048, detail={"with its entry": len(with_entry)})

    db = CountedDatabase(reader)
    verifier = Verifier(db, log.s3, "lake", cast(Any, None), ORIGIN, trusted)
    began = time.process_time()
    with _peak_rss() as peak, stopwatch() as seconds:
        report = verifier.verify().check()
    cpu = time.process_time() - began
    assert report.leaves == size
    detail = {"cpu_s": round(cpu, 1), "built_in_s": round(building(), 1), "tiles": report.tiles}
    yield Figure(f"whole tree verified, {leaf_count}", seconds(), "s", 60 * size / 1_000_000, detail=detail)
    base, top = peak()
    detail = {"before_gib": round(base / GIB, 2), "peak_gib": round(top / GIB, 2), "before": "the store itself"}
    yield Figure(f"memory of that verification, {leaf_count}", (top - base) / GIB, "GiB", 2, detail=detail)

    db.reads, gets_before = 0, log.s3.counts["GET"]
    verifier.verify(since=report.note).check()
    reads = db.reads + log.s3.counts["GET"] - gets_before
    yield Figure(f"reads of a verification that finds nothing new, {leaf_count}", reads, "", 2 * math.log2(size))
    reader.close()
    log.db.close()


def _growth(sizes: list[int]) -> Iterator[Figure]:
    """Growth with the number of leaves: the size of a proof, and the times to create and verify one."""
    bytes_, created, verified = list[tuple[float, float]](), list[tuple[float, float]](), list[tuple[float, float]]()
    for size in sizes:
        log = Log(size)
        reader, key = StoreReader.open(log.location), log.signer.verifier_key
        timeline = Timeline(StoredSource(reader), ORIGIN, [key])
        create_ms, verify_ms = list[float](), list[float]()
        for index in random.Random(1).sample(range(size), 30):
            entry = timeline.source.entry(index, size)
            timeline.proof(index)
            with stopwatch() as seconds:
                proof = timeline.proof(index)
            create_ms.append(seconds() * 1000)
            with stopwatch() as seconds:
                verify_proof(proof, entry, [key], origin=ORIGIN)
            verify_ms.append(seconds() * 1000)
        bytes_.append((size, len(proof)))
        created.append((size, p50(create_ms)))
        verified.append((size, p50(verify_ms)))
        reader.close()
        log.db.close()
    plot = Plot("Size of a proof against leaves", "leaves", "bytes", {"proof file": bytes_}, log_y=False)
    name = f"proof file, {sizes[-1]:,} leaves / {sizes[0]:,} leaves"
    yield Figure(name, bytes_[-1][1] / bytes_[0][1], "x", plot=plot)
    plot = Plot("Time of a proof against leaves", "leaves", "ms", {"made": created, "checked": verified})
    yield Figure(
        f"proof made, {sizes[-1]:,} leaves / {sizes[0]:,} leaves", created[-1][1] / created[0][1], "x", plot=plot
    )


@contextmanager
def _peak_rss() -> Iterator[Callable[[], tuple[int, int]]]:
    """Resident memory before the block and its peak, sampled: the process held more memory earlier."""
    base = peak = _rss()
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, _rss())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield lambda: (base, peak)
    finally:
        done.set()
        sampler.join()


def _rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _client(url: str, service: str) -> Any:
    config = Config(max_pool_connections=32, s3={"addressing_style": "path"})
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", config=config)


def _location(url: str, bucket: str) -> StoreLocation:
    return StoreLocation.from_settings(_settings(url, bucket))


def _settings(url: str, bucket: str) -> Settings:
    return Settings(stage="dev", region="us-east-1", endpoint_url=url, bucket=bucket)
