"""The result of a query: Arrow rows, and a receipt that states which snapshots they were computed from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pyarrow as pa

from catalog.query.plan.routing import Explanation, Route
from catalog.query.scan.verified_io import Evidence, VerifiedObject

if TYPE_CHECKING:  # these load the engine, which a process that only supervises workers does not need
    from catalog.query.bind.binding import Binding
    from catalog.query.plan.planning import Plan
    from catalog.query.scan.parquet_objects import Traffic

CACHE_BYTES = 64 << 20
MAX_ENTRY_BYTES = 8 << 20
Proof: TypeAlias = bytes


@dataclass(frozen=True)
class QueryReceipt:
    """What an answer was computed from.

    `index`: the index of the timeline at which all tables without an AS OF of their own were read; None if each was
    read at its newest snapshot, and then `fresh` is the reason. `snapshots`: snapshot ids by table, or by
    `table@point-in-time`. `objects` and `proofs` (index -> tlog-proof file) are set when the query was verified.
    `searched`: the version of each vector table that was searched.
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
    objects: tuple[VerifiedObject, ...] = ()
    proofs: dict[int, Proof] = field(default_factory=dict)
    searched: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Reads back what `as_dict` wrote."""
        objects = tuple(VerifiedObject(**entry) for entry in record.get("objects", ()))
        proofs = {int(index): proof.encode() for index, proof in record.get("proofs", {}).items()}
        return cls(**{**record, "route": Route(record["route"]), "objects": objects, "proofs": proofs})

    def as_dict(self) -> dict[str, Any]:
        """As JSON. Proof files are text and are included as they are."""
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
                {"path": verified.path, "length": verified.length, "sha256": verified.sha256, "index": verified.index}
                for verified in self.objects
            ]
            record["proofs"] = {str(index): proof.decode() for index, proof in sorted(self.proofs.items())}
        return record


def binding_receipt(binding: Binding, route: Route) -> QueryReceipt:
    """The receipt of a query that has not read anything yet."""
    snapshots = {
        name if as_of is None else f"{name}@{as_of}": None
        if table.snapshot is None
        else str(table.snapshot.snapshot_id)
        for (name, as_of), table in binding.tables.items()
    }
    checkpoint = binding.checkpoint
    if checkpoint is None:
        return QueryReceipt(None, None, None, snapshots, route, binding.fresh)
    return QueryReceipt(binding.index, checkpoint.size, checkpoint.root.hex(), snapshots, route)


def plan_receipt(plan: Plan, traffic: Traffic, evidence: Evidence | None) -> QueryReceipt:
    """The receipt of a query that ran in this process; `evidence` if it was verified."""
    receipt = binding_receipt(plan.binding, plan.explanation.route)
    searched = plan.searches.receipt()
    receipt = replace(receipt, requests=traffic.requests, bytes=traffic.bytes, searched=searched)
    if evidence is None:
        return receipt
    return replace(receipt, verified=True, objects=tuple(evidence.objects), proofs=dict(evidence.proofs))


class Answer:
    """The rows, streamed once: call either `batches()` or `table()`, and only one time."""

    def __init__(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], receipt: QueryReceipt, explanation: Explanation
    ) -> None:
        self.schema = schema
        self.receipt = receipt
        self.explanation = explanation
        self._batches: Iterator[pa.RecordBatch] | None = batches

    @property
    def route(self) -> Route:
        return self.receipt.route

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Record batches as they are computed; errors of the running query are raised from this iterator."""
        if self._batches is None:
            raise RuntimeError("this answer was read already: run the query again")
        batches, self._batches = self._batches, None
        return batches

    def table(self) -> pa.Table:
        return pa.Table.from_batches(list(self.batches()), schema=self.schema)


class ResultCache:
    """Results by everything they depend on: text, parameters, snapshots, roles. Entries are evicted, never stale."""

    def __init__(self, budget: int = CACHE_BYTES) -> None:
        self._budget = budget
        self._entries: OrderedDict[Hashable, tuple[pa.Table, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> pa.Table | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, table: pa.Table) -> None:
        size = table.nbytes + 1024
        if size > MAX_ENTRY_BYTES:
            return
        with self._lock:
            if key in self._entries:
                return
            self._entries[key] = (table, size)
            self._bytes += size
            while self._bytes > self._budget:
                self._bytes -= self._entries.popitem(last=False)[1][1]

    def store_when_complete(
        self, key: Hashable, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The same batches; stores them after the last one if together they are small enough."""
        collected: list[pa.RecordBatch] | None = []
        size = 0
        for batch in batches:
            size += batch.nbytes
            if collected is not None:
                collected = [*collected, batch] if size <= MAX_ENTRY_BYTES else None
            yield batch
        if collected is not None:
            self.put(key, pa.Table.from_batches(collected, schema=schema))
