"""How the timeline's store grows with its age: its objects, and a cold open of the sequencer.

    python -m bench.timeline_age 300 1000 2000

One commit per batch, as a quiet lake makes them, against the embedded S3 in another process. Garbage is collected after
two seconds, because the commits of weeks are made in one minute here.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any, cast

from bench.timeline_world import ORIGIN, Cloud, cloud, leaves
from catalog import Settings
from catalog.core.clients import make_client
from catalog.core.events import NoEventBus
from catalog.merkle.note import Ed25519Signer
from catalog.timeline import Attestations, Publisher, Sequencer, StoreLocation
from catalog.timeline.log import store


def main(sizes: list[int]) -> None:
    store.GARBAGE_AGE_MS = 2000
    with cloud() as running:
        bucket = running.bucket()
        s3 = make_client("s3", region="us-east-1", endpoint_url=running.url, read_timeout_s=30)
        signer = Ed25519Signer.generate(ORIGIN)
        settings = Settings(stage="dev", region="us-east-1", endpoint_url=running.url, bucket=bucket, origin=ORIGIN)

        def opened() -> Sequencer:
            location = StoreLocation.from_settings(settings)
            return Sequencer(
                location, cast(Any, None), Publisher(s3, bucket), Attestations(s3, bucket), signer, NoEventBus()
            )

        sequencer, at = opened(), 0
        for size in sizes:
            slowest, began = 0.0, time.perf_counter()
            while at < size:
                start = time.perf_counter()
                sequencer.append(leaves(at, 1))
                sequencer.maintain()
                slowest = max(slowest, time.perf_counter() - start)
                at += 1
            seconds = time.perf_counter() - began
            sequencer.close()
            sequencer = opened()
            requests, start = sum(running.counts().values()), time.perf_counter()
            sequencer.append([])
            cold = time.perf_counter() - start
            _print(running, s3, bucket, at, cold, sum(running.counts().values()) - requests, slowest, seconds)
        sequencer.close()


def _print(
    running: Cloud, s3: Any, bucket: str, commits: int, cold: float, requests: int, slowest: float, seconds: float
) -> None:
    objects = Counter[str]()
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="timeline.slatedb/"):
        objects.update(entry["Key"].split("/")[1] for entry in page.get("Contents", ()))
    print(
        f"{commits:6d} commits: cold open {cold:6.2f} s, {requests:5d} requests; {dict(objects)}; "
        f"slowest commit {slowest:.2f} s, all {seconds:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [300, 1000, 2000])
