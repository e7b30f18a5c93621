"""The timeline's figures: what sequencing, proving and verifying cost, in requests and in time."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import boto3
import pyarrow as pa
from botocore.config import Config

from bench.harness import Figure, Plot, p50, stopwatch, suite
from bench.object_store import ObjectStore, object_store
from bench.timeline_world import ORIGIN, Cloud, CountedDatabase, Log, MemoryS3, cloud, leaves
from catalog.events import SilentBus
from catalog.lake import open_lake
from catalog.merkle.note import Ed25519Signer
from catalog.merkle.proof import read, write
from catalog.merkle.proof import verify as verify_proof
from catalog.settings import Settings
from catalog.tables.iceberg import open_catalog
from catalog.tables.manager import Tables
from catalog.timeline.attest import Attestation, Attestations, Entry
from catalog.timeline.proofs import Timeline
from catalog.timeline.publish import Publisher
from catalog.timeline.sequencer import Sequencer
from catalog.timeline.sources import PublishedSource, StoredSource
from catalog.timeline.store import Place, Reader
from catalog.timeline.verification import Verifier

GIB = 1 << 30


@suite("timeline")
def timeline(quick: bool) -> Iterator[Figure]:
    yield from _in_memory()
    with cloud() as running:
        yield from _counted(running)
        with object_store(running) as store:
            yield _warm(store, 20 if quick else 60)
        yield from _cost_of_proving(running, 30 if quick else 100)
    yield from _at_size(50_000 if quick else 1_000_000)
    yield from _growth([100, 1_000, 10_000] if quick else [100, 1_000, 10_000, 100_000, 1_000_000])


def _sequencer(place: Place, s3: Any, bucket: str, catalog: Any = None) -> Sequencer:
    signer = Ed25519Signer.generate(ORIGIN)
    attestations = Attestations(s3, bucket)
    return Sequencer(place, cast(Any, catalog), Publisher(s3, bucket), attestations, signer, SilentBus())


def _in_memory() -> Iterator[Figure]:
    sequencer = _sequencer(Place.in_memory(), MemoryS3(), "lake")
    given = [leaves(first, 1000) for first in range(0, 10_000, 1000)]
    began = time.process_time()
    with stopwatch() as seconds:
        for batch in given:
            sequencer.append(batch)
    cpu = time.process_time() - began
    sequencer.close()
    detail = {"cpu_leaves_per_s": round(10_000 / cpu)}
    yield Figure("leaves sequenced, in memory", 10_000 / seconds(), "leaves/s", 5000, "higher", detail)


def _counted(running: Cloud) -> Iterator[Figure]:
    bucket = running.bucket()
    sequencer = _sequencer(_place(running.url, bucket), _client(running.url, "s3"), bucket)
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
    sequencer = _sequencer(_place(store.url, bucket), _client(store.url, "s3"), bucket)
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
    """So many inserts, then one run of the sequencer. Staging an attestation is timeline work, too."""
    bucket = running.bucket()
    settings = _settings(running.url, bucket)
    s3, catalog = _client(running.url, "s3"), open_lake(settings).iceberg
    attestations = Attestations(s3, bucket)
    rows = pa.table({"id": pa.array(range(100), pa.int64())})

    def stage(table: Any, snapshot: Any, written: Any) -> None:
        if snapshot is not None:
            entries = {entry.path: Entry(*entry) for entry in written}
            listing = entries.pop(snapshot.manifest_list)
            uuid = str(table.metadata.table_uuid)
            attestations.stage(Attestation(uuid, snapshot.snapshot_id, listing, tuple(sorted(entries.values()))))

    def commits(name: str, hook: Any) -> int:
        tables = Tables(catalog, hook=hook)
        tables.create(name, rows.schema)
        before = running.counts().total()
        for _ in range(count):
            tables.insert(name, rows)
        return running.counts().total() - before

    def appends(name: str) -> int:
        """The same by pyiceberg itself, unproven: what a commit costs where nobody counts requests."""
        table = open_catalog(settings).create_table(name, schema=rows.schema)
        before = running.counts().total()
        for _ in range(count):
            table.append(rows)
        return running.counts().total() - before

    alone, peer = commits("sales.alone", None), appends("sales.peer")
    # Its objects are kept apart from the writer's, as in a process of its own: it has seen none of them.
    elsewhere = open_lake(settings).iceberg
    elsewhere.properties["s3.max-attempts"] = "4"
    sequencer = _sequencer(_place(running.url, bucket), s3, bucket, elsewhere)
    for name, hook in (("sales.staged", stage), ("sales.unstaged", None)):
        sequencer.catch_up([])
        spent = commits(name, hook)
        before = running.counts()
        outcome = sequencer.catch_up([name])
        asked = running.counts() - before
        assert len(outcome.leaves) == count + 1, outcome
        ratio = (spent + asked.total()) / alone
        detail = {"commits_alone": alone, "commits": spent, "sequencer": dict(asked)}
        how = "attestations staged" if hook else "nothing staged"
        yield Figure(
            f"requests of {count} proven commits / of the commits alone, {how}", ratio, "x", 1.4, detail=detail
        )
        beside = {"pyiceberg": peer, "ours_proven": spent + asked.total()}
        against = (spent + asked.total()) / peer
        yield Figure(
            f"requests of {count} proven commits / of pyiceberg's, unproven, {how}", against, "x", detail=beside
        )
    sequencer.close()


def _at_size(size: int) -> Iterator[Figure]:
    with stopwatch() as building:
        log = Log(size)
    reader = Reader.open(log.place)
    trusted = [log.signer.verifier_key]
    shown = f"{size:,} leaves"

    stored = Timeline(StoredSource(reader), ORIGIN, trusted)
    chosen = random.Random(1).sample(range(size), 40)
    hot = []
    for index in chosen:
        stored.proof(index)
        with stopwatch() as seconds:
            proof = stored.proof(index)
        hot.append(seconds() * 1000)
    yield Figure(f"inclusion proof, hot, {shown}", p50(hot), "ms", 1, detail={"min": min(hot)}, samples=hot)

    gets = []
    for index in chosen:
        public = Timeline(PublishedSource(log.s3, "lake"), ORIGIN, trusted)
        before = log.s3.counts["GET"]
        public.proof(index)
        gets.append(log.s3.counts["GET"] - before - 2)
    detail = {"besides": "one each for the checkpoint and the entry's bundle"}
    yield Figure(f"tiles fetched for a proof, cold, {shown}", max(gets), "GETs", 5, detail=detail)
    with_entry = write(read(proof).__class__(read(proof).index, read(proof).hashes, read(proof).checkpoint, b"x" * 680))
    yield Figure(f"proof file, {shown}", len(proof), "bytes", 2048, detail={"with its entry": len(with_entry)})

    db = CountedDatabase(reader)
    verifier = Verifier(db, log.s3, "lake", cast(Any, None), ORIGIN, trusted)
    began = time.process_time()
    with _peak_rss() as peak, stopwatch() as seconds:
        report = verifier.verify().check()
    cpu = time.process_time() - began
    assert report.leaves == size
    detail = {"cpu_s": round(cpu, 1), "built_in_s": round(building(), 1), "tiles": report.tiles}
    yield Figure(f"whole tree verified, {shown}", seconds(), "s", 60 * size / 1_000_000, detail=detail)
    base, top = peak()
    detail = {"before_gib": round(base / GIB, 2), "peak_gib": round(top / GIB, 2), "before": "the store itself"}
    yield Figure(f"memory of that verification, {shown}", (top - base) / GIB, "GiB", 2, detail=detail)

    db.reads, gets_before = 0, log.s3.counts["GET"]
    verifier.verify(since=report.note).check()
    reads = db.reads + log.s3.counts["GET"] - gets_before
    yield Figure(f"reads of a verification that finds nothing new, {shown}", reads, "", 2 * math.log2(size))
    reader.close()
    log.db.close()


def _growth(sizes: list[int]) -> Iterator[Figure]:
    """Proofs grow with the logarithm of the timeline: their bytes, and the time to make and to check one."""
    bytes_, made, checked = list[tuple[float, float]](), list[tuple[float, float]](), list[tuple[float, float]]()
    for size in sizes:
        log = Log(size)
        reader, key = Reader.open(log.place), log.signer.verifier_key
        timeline = Timeline(StoredSource(reader), ORIGIN, [key])
        making, checking = list[float](), list[float]()
        for index in random.Random(1).sample(range(size), 30):
            entry = timeline.source.entry(index, size)
            timeline.proof(index)
            with stopwatch() as seconds:
                proof = timeline.proof(index)
            making.append(seconds() * 1000)
            with stopwatch() as seconds:
                verify_proof(proof, entry, [key], origin=ORIGIN)
            checking.append(seconds() * 1000)
        bytes_.append((size, len(proof)))
        made.append((size, p50(making)))
        checked.append((size, p50(checking)))
        reader.close()
        log.db.close()
    plot = Plot("Size of a proof against leaves", "leaves", "bytes", {"proof file": bytes_}, log_y=False)
    name = f"proof file, {sizes[-1]:,} leaves / {sizes[0]:,} leaves"
    yield Figure(name, bytes_[-1][1] / bytes_[0][1], "x", plot=plot)
    plot = Plot("Time of a proof against leaves", "leaves", "ms", {"made": made, "checked": checked})
    yield Figure(f"proof made, {sizes[-1]:,} leaves / {sizes[0]:,} leaves", made[-1][1] / made[0][1], "x", plot=plot)


@contextmanager
def _peak_rss() -> Iterator[Callable[[], tuple[int, int]]]:
    """Resident memory before the block, and at its peak: sampled, because the process held more before."""
    base = top = _rss()
    done = threading.Event()

    def sample() -> None:
        nonlocal top
        while not done.wait(0.05):
            top = max(top, _rss())

    watcher = threading.Thread(target=sample)
    watcher.start()
    try:
        yield lambda: (base, top)
    finally:
        done.set()
        watcher.join()


def _rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _client(url: str, service: str) -> Any:
    config = Config(max_pool_connections=32, s3={"addressing_style": "path"})
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", config=config)


def _place(url: str, bucket: str) -> Place:
    return Place.from_settings(_settings(url, bucket))


def _settings(url: str, bucket: str) -> Settings:
    return Settings(stage="dev", region="us-east-1", endpoint_url=url, bucket=bucket)
