"""What a query gives: Arrow, and a receipt that says from which state of the lake it was made."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

import pyarrow as pa

from catalog.query.routing import Explanation, Route
from catalog.query.verification import Checked

CACHE_BYTES = 64 << 20
LARGEST_KEPT = 8 << 20
Proof: TypeAlias = bytes


@dataclass(frozen=True)
class Receipt:
    """Where the answer comes from.

    `index`: the cut of the timeline that all tables without a version of their own were read at; None if each was
    read at its own newest state, and `fresh` says why. `snapshots`: by table, or `table@version`. `objects` and
    `proofs` (index -> tlog-proof file) are there when the query was verified. `searched`: which version of
    each vector table was searched.
    """

    index: int | None
    checkpoint_size: int | None
    checkpoint_root: str | None
    snapshots: dict[str, str | None]
    route: Route
    fresh: str | None = None
    cached: bool = False
    requests: int = 0
    bytes: int = 0
    verified: bool = False
    objects: tuple[Checked, ...] = ()
    proofs: dict[int, Proof] = field(default_factory=dict)
    searched: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Of a query that was not verified: what `as_dict` made of its receipt."""
        return cls(**{**record, "route": Route(record["route"])})

    def as_dict(self) -> dict[str, Any]:
        """For JSON: proofs are text files already."""
        record: dict[str, Any] = {
            "index": self.index,
            "checkpoint_size": self.checkpoint_size,
            "checkpoint_root": self.checkpoint_root,
            "snapshots": self.snapshots,
            "route": str(self.route),
            "cached": self.cached,
            "requests": self.requests,
            "bytes": self.bytes,
            "verified": self.verified,
        }
        if self.fresh is not None:
            record["fresh"] = self.fresh
        if self.searched:
            record["searched"] = self.searched
        if self.verified:
            record["objects"] = [
                {"path": one.path, "length": one.length, "sha256": one.sha256, "index": one.index}
                for one in self.objects
            ]
            record["proofs"] = {str(index): proof.decode() for index, proof in sorted(self.proofs.items())}
        return record


class Answer:
    """The rows, streamed once. `table()` collects them; a second look at either is an error of the caller."""

    def __init__(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], receipt: Receipt, explanation: Explanation
    ) -> None:
        self.schema = schema
        self.receipt = receipt
        self.explanation = explanation
        self._batches: Iterator[pa.RecordBatch] | None = batches

    @property
    def route(self) -> Route:
        return self.receipt.route

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches as they come. What goes wrong on the way is raised here."""
        if self._batches is None:
            raise RuntimeError("this answer was read already: run the query again")
        given, self._batches = self._batches, None
        return given

    def table(self) -> pa.Table:
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)


class ResultCache:
    """Answers by all they depend on: text, parameters, snapshots, roles. Never stale, only forgotten."""

    def __init__(self, budget: int = CACHE_BYTES) -> None:
        self._budget = budget
        self._kept: OrderedDict[Hashable, tuple[pa.Table, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> pa.Table | None:
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, key: Hashable, table: pa.Table) -> None:
        size = table.nbytes + 1024
        if size > LARGEST_KEPT:
            return
        with self._lock:
            if key in self._kept:
                return
            self._kept[key] = (table, size)
            self._bytes += size
            while self._bytes > self._budget:
                self._bytes -= self._kept.popitem(last=False)[1][1]

    def filling(self, key: Hashable, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; when all have passed and are small, they are kept."""
        seen: list[pa.RecordBatch] | None = []
        size = 0
        for batch in batches:
            size += batch.nbytes
            if seen is not None:
                seen = [*seen, batch] if size <= LARGEST_KEPT else None
            yield batch
        if seen is not None:
            self.keep(key, pa.Table.from_batches(seen, schema=schema))
