"""Good traffic beside the whole hostile set, on the deployed functions: its median against that of the same alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count as counting

import boto3
import httpx

from bench.children import in_child
from bench.harness import Figure, p50
from infra.local.cloud import EmbeddedCloud
from strandline.client import Client
from tests.worlds.hostile_load import hostile_bodies, landed_files
from tests.worlds.hostile_queries import hostile_queries

MINE, GOOD = "gold.hostile", "gold.good"


def hostile_load_figures(cloud: EmbeddedCloud, table: str, count: int) -> Iterator[Figure]:
    """A small query, an insert and `/health`, alone and for as long as callers in a process of their own send the whole
    hostile set."""
    endpoint = cloud.addresses()["api"]
    with Client(endpoint, cloud.token("admin")) as admin:
        for name in (MINE, GOOD):
            admin.create_table(name, {"a": "long", "b": "string"})
            admin.insert(name, [{"a": 1, "b": "x"}])
    cloud.wait_until_idle()
    target = Target(
        endpoint,
        cloud.token(f"reader:{MINE}", subject="hostile-reader"),
        cloud.token(f"writer:{MINE}", subject="hostile-writer"),
        cloud.endpoint.environment("person"),
        cloud.environment("person")["STRANDLINE_BUCKET"],
    )
    good = _bearer(cloud.token(f"reader:{table}", f"writer:{GOOD}", subject="good"))
    with httpx.Client(base_url=endpoint, headers=good, timeout=60) as http, ThreadPoolExecutor(1) as beside_it:
        alone = _measure(http, table, lambda turns: turns >= count)
        attack = beside_it.submit(in_child, _attack, target)
        beside = _measure(http, table, lambda _: attack.done())
    answers = attack.result()
    failed = sum(number for (_, status), number in answers.items() if status >= 500)
    sent: dict[str, object] = {f"{kind} {status}": number for (kind, status), number in sorted(answers.items())}
    yield Figure("the hostile set, answers of 5xx", failed, "answers", 0, detail=sent)
    for name in alone:
        detail: dict[str, object] = {
            "alone_p50_ms": round(p50(alone[name]), 2),
            "beside_p50_ms": round(p50(beside[name]), 2),
            "beside_worst_ms": round(max(beside[name]), 2),
            "requests": len(beside[name]),
        }
        yield Figure(
            f"{name} beside hostile load, over alone", p50(beside[name]) / p50(alone[name]), "x", 2, detail=detail
        )


@dataclass(frozen=True)
class Target:
    """What the hostile callers know: the lake's address, their tokens, and where files are put."""

    endpoint: str
    reader: str
    writer: str
    aws: dict[str, str]
    bucket: str


def _attack(target: Target) -> dict[tuple[str, int], int]:
    """Sends the whole set once, by three callers at a time; how often which status was answered, by kind."""
    sets = {"statements": _statements, "bodies": _bodies, "files": _files}
    answers: Counter[tuple[str, int]] = Counter()

    def send(kind: str) -> None:
        for status in sets[kind](target):
            answers[kind, status] += 1

    with ThreadPoolExecutor(len(sets)) as callers:
        list(callers.map(send, sets))
    return dict(answers)


def _statements(target: Target) -> Iterator[int]:
    with httpx.Client(base_url=target.endpoint, headers=_bearer(target.reader), timeout=60) as http:
        for sql in hostile_queries(MINE, "gold.hidden").values():
            yield http.post("/query", json={"sql": sql, "engine": "lambda"}).status_code


def _bodies(target: Target) -> Iterator[int]:
    with httpx.Client(base_url=target.endpoint, headers=_bearer(target.writer), timeout=60) as http:
        for kind, _, data in hostile_bodies():
            yield http.post(f"/tables/{MINE}/rows", content=data, headers={"Content-Type": kind}).status_code


def _files(target: Target) -> Iterator[int]:
    s3 = boto3.client(
        "s3",
        endpoint_url=target.aws["AWS_ENDPOINT_URL"],
        region_name=target.aws["AWS_REGION"],
        aws_access_key_id=target.aws["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=target.aws["AWS_SECRET_ACCESS_KEY"],
    )
    for key, data in landed_files():
        answer = s3.put_object(Bucket=target.bucket, Key=key, Body=data)
        yield int(answer["ResponseMetadata"]["HTTPStatusCode"])


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _measure(http: httpx.Client, table: str, enough: Callable[[int], bool]) -> dict[str, list[float]]:
    """Milliseconds of each request, the first ten left out."""
    samples: dict[str, list[float]] = {"small query": [], "insert": [], "/health": []}
    for turn in counting(-10):
        if turn >= 0 and enough(turn):
            return samples
        for name, taken in samples.items():
            began = time.perf_counter()
            if name == "/health":
                response = http.get("/health")
            elif name == "insert":
                response = http.post(f"/tables/{GOOD}/rows", json={"rows": [{"a": turn, "b": "x"}]})
            else:
                sql = f"select {turn} as turn, count(metres) as n from {table}"
                response = http.post("/query", json={"sql": sql, "engine": "lambda"})
            response.raise_for_status()
            if turn >= 0:
                taken.append((time.perf_counter() - began) * 1000)
    raise AssertionError("counting has no end")
