"""A lake to ask: one in-memory AWS, tables, a timeline that is sequenced when a test says so, and DuckDB beside it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from uuid import uuid4

import boto3
import pyarrow as pa
import pytest

from catalog.lake import Lake, open_lake
from catalog.merkle.note import Ed25519Signer
from catalog.query.results import Answer
from catalog.settings import load_settings
from catalog.timeline.publish import Publisher
from catalog.timeline.store import Place, Reader
from infra.local.server import ApiServer

ORIGIN = "strandline.test/query"
POLL_MS = 200  # each poll is requests, all the while


@contextmanager
def lake_on(server: ApiServer) -> Iterator[Lake]:
    """A lake of its own; the environment names it while it is there, as a command would find it."""
    monkey = pytest.MonkeyPatch()
    bucket = f"lake-{uuid4().hex[:12]}"
    secret = f"key-{uuid4().hex[:12]}"
    key = Ed25519Signer.generate(ORIGIN).private_key()
    server.endpoint.client("s3", "person").create_bucket(Bucket=bucket)
    server.endpoint.client("secretsmanager", "person").create_secret(Name=secret, SecretString=key)
    variables = {
        "STRANDLINE_BUCKET": bucket,
        "STRANDLINE_ORIGIN": ORIGIN,
        "STRANDLINE_SIGNER": f"secret:{secret}",
        **server.endpoint.environment("person"),
    }
    for name, value in variables.items():
        monkey.setenv(name, value)
    monkey.setattr(boto3, "DEFAULT_SESSION", None)
    made = open_lake(load_settings())
    try:
        yield made
    finally:
        made.close()
        monkey.undo()


def sequence(lake: Lake, *tables: str) -> int:
    """Sequences the tables and waits until the reader sees it: the newest index."""
    lake.sequencer.catch_up(list(tables))
    if "_reader" not in lake.__dict__:  # the lake's own reader looks once a second: the tests would wait for that
        lake.__dict__["_reader"] = Reader.open(Place.from_settings(lake.settings), POLL_MS)
    size = Publisher(lake.s3, lake.settings.bucket).published().size
    deadline = time.monotonic() + 60
    while lake.timeline.head().checkpoint.size < size:
        assert time.monotonic() < deadline, "the reader does not follow the sequencer"
        time.sleep(0.02)
    return size - 1


def rows_of(found: Answer | pa.Table | Any) -> list[tuple[Any, ...]]:
    """An answer as tuples that two engines agree on: numbers as numbers, whatever their type."""
    table = found.table() if isinstance(found, Answer) else found
    return [tuple(map(_plain, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Decimal):
        return float(value)
    return value


def assert_same(
    ours: Iterable[tuple[Any, ...]], theirs: Iterable[tuple[Any, ...]], *, ordered: bool, note: str
) -> None:
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs), f"{note}: {len(ours)} rows, expected {len(theirs)}\n{ours[:5]}\n{theirs[:5]}"
    if not ordered:
        ours, theirs = sorted(ours, key=_order), sorted(theirs, key=_order)
    for mine, other in zip(ours, theirs, strict=True):
        assert len(mine) == len(other), note
        assert all(map(_alike, mine, other)), f"{note}\n  ours   {mine}\n  theirs {other}"


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, int | float) and isinstance(two, int | float) and not isinstance(one, bool):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-6)
    return bool(one == two)


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """NULL first, NaN last, numbers rounded so that near ones fall together."""
    out: list[Any] = []
    for value in row:
        if value is None:
            out.append((0, ""))
        elif isinstance(value, bool):
            out.append((1, str(value)))
        elif isinstance(value, int | float):
            out.append((3, "") if math.isnan(value) else (2, round(float(value), 3)))
        else:
            out.append((4, str(value)))
    return tuple(out)
