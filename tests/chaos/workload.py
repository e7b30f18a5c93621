"""Writers that remember what was acknowledged, and what the lake must then show: every such row once, and no other.

Each writer has a table of its own and is its only one, so that what is expected is known without asking the lake.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

from catalog.lake import Lake
from strandline.client import Client
from strandline.errors import StrandlineError

PAUSE_S = 0.2
KEYS = 10


@dataclass
class Writer(ABC):
    """Writes one numbered value after another until it is stopped. A write that failed is repeated, with its key."""

    table: str
    stop: Event
    acknowledged: dict[int, float] = field(default_factory=dict)
    """Number -> when its write was acknowledged, on the monotonic clock."""
    failures: int = 0
    """Requests that failed for good, after the client's own retries."""

    @abstractmethod
    def write(self, number: int) -> None: ...

    @abstractmethod
    def expected(self) -> list[tuple[int, int]]:
        """The rows (id, value) of the table, by what was acknowledged."""

    def start(self) -> Thread:
        thread = Thread(target=self._run, name=self.table, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        number = 0
        while not self.stop.is_set():
            try:
                self.write(number)
            except StrandlineError:
                self.failures += 1
                continue  # the same number again: it may or may not have been written
            self.acknowledged[number] = time.monotonic()
            number += 1
            self.stop.wait(PAUSE_S)


@dataclass
class Files(Writer):
    """Lands a file for each number. S3 has acknowledged it, so its rows must come."""

    lake: Lake | None = None

    def write(self, number: int) -> None:
        assert self.lake is not None
        database, _, table = self.table.partition(".")
        body = json.dumps({"id": number, "value": number}).encode()
        self.lake.s3.put_object(
            Bucket=self.lake.settings.bucket, Key=f"landing/{database}/{table}/{number}.jsonl", Body=body
        )

    def expected(self) -> list[tuple[int, int]]:
        return [(number, number) for number in self.acknowledged]


@dataclass
class Inserts(Writer):
    """Inserts a row for each number, with the number as the idempotency key."""

    api: Client | None = None

    def write(self, number: int) -> None:
        assert self.api is not None
        self.api.insert(self.table, [{"id": number, "value": number}], idempotency_key=f"{self.table}-{number}")

    def expected(self) -> list[tuple[int, int]]:
        return [(number, number) for number in self.acknowledged]


@dataclass
class Upserts(Writer):
    """Writes the numbers to a few keys in turn: the last one acknowledged for a key is its value."""

    api: Client | None = None

    def write(self, number: int) -> None:
        assert self.api is not None
        row = {"id": number % KEYS, "value": number}
        self.api.upsert(self.table, [row], idempotency_key=f"{self.table}-{number}")

    def expected(self) -> list[tuple[int, int]]:
        return sorted({number % KEYS: number for number in sorted(self.acknowledged)}.items())


def rows(api: Client, table: str, **options: Any) -> list[tuple[int, int]]:
    """The table's rows by a query, by default at the newest index."""
    answer = api.query(f"SELECT id, value FROM {table} ORDER BY id, value", **options)
    return list(zip(*(column.to_pylist() for column in answer.columns), strict=True))
