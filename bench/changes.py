"""The figures of change capture: row digests, the changes root, and a feed that is verified as it is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import tables_peers as peers
from bench.children import alone
from bench.harness import Figure, p50, stopwatch, suite
from bench.object_store import object_store
from bench.timeline_world import ORIGIN, cloud

REPEATS = 5


@suite("changes")
def changes(quick: bool) -> Iterator[Figure]:
    yield from alone(_digests, 100_000 if quick else 1_000_000)
    with cloud() as running, object_store(running) as store:
        yield from _feed(peers.World(running.url, store.url, store.bucket()), 10_000 if quick else 100_000)


def ten_columns(rows: int) -> pa.Table:
    """What tables hold: numbers, text, times, a decimal, a flag, and nulls among them. Fields carry Iceberg's ids."""
    random = np.random.default_rng(7)
    numbers = pa.array(np.arange(rows))
    names: Any = pc.binary_join_element_wise("station", pc.cast(numbers, pa.string()), " ")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    cents = [Decimal(cent).scaleb(-2) for cent in range(1000)]
    columns: dict[str, Any] = {
        "id": numbers,
        "name": names,
        "region": pa.array(["north", "south", "east", "west", None]).take(pa.array(random.integers(0, 5, rows))),
        "metres": pa.array(random.random(rows)),
        "pressure": pa.array(random.random(rows), mask=random.random(rows) < 0.1),
        "count": pa.array(random.integers(0, 1 << 31, rows), pa.int32()),
        "at": pa.array(np.arange(rows) * 1000 + int(start.timestamp() * 1e6), pa.timestamp("us", "UTC")),
        "day": pa.array([(start + timedelta(days=n)).date() for n in range(365)]).take(
            pa.array(random.integers(0, 365, rows))
        ),
        "price": pa.array(cents, pa.decimal128(9, 2)).take(pa.array(random.integers(0, 1000, rows))),
        "open": pa.array(random.random(rows) < 0.5),
    }
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(number)})
        for number, (name, column) in enumerate(columns.items(), 1)
    ]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _digests(rows: int) -> list[Figure]:
    """Per CPU second: on two cores the same work takes half the time, and counts the same."""
    from catalog.changes.digest import row_digests
    from catalog.changes.feed import ChangeSet, Commit
    from catalog.changes.hashing import root
    from catalog.changes.records import changes_schema, leaf_hashes, records

    table = ten_columns(rows)
    structs = pa.StructArray.from_arrays(
        [column.combine_chunks() for column in table.columns], fields=list(table.schema)
    )
    nothing = pa.nulls(rows, structs.type)
    given = pa.Table.from_arrays([pa.array(["INSERT"] * rows), nothing, structs], schema=changes_schema(table.schema))
    commit = Commit("bench.t", "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d", 1, None, 0)
    digests, digests_wall = _cpu(lambda: row_digests(table))
    block = records(given, ["id"])
    roots, roots_wall = _cpu(lambda: root(leaf_hashes(block)))
    whole, whole_wall = _cpu(lambda: ChangeSet.of(commit, table.schema, ["id"], given))

    def figure(name: str, cpu: float, wall: float, target: float | None = 1_000_000) -> Figure:
        detail: dict[str, object] = {"wall_rows_per_s": round(rows / wall)}
        return Figure(f"{name}, {rows:,} rows", rows / cpu, "rows/CPU s", target, "higher", detail)

    return [
        figure("row digests, ten columns", digests, digests_wall),
        figure("changes root over their records", roots, roots_wall),
        figure("whole change set: digests of rows and keys, records, root", whole, whole_wall),
    ]


def _cpu(work: Callable[[], Any]) -> tuple[float, float]:
    """CPU and wall seconds, the least of several: what disturbs only ever adds."""
    found = []
    work()
    for _ in range(REPEATS):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.process_time() - cpu, time.perf_counter() - began))
    return min(found)


def _feed(world: peers.World, rows: int) -> Iterator[Figure]:
    """An upsert of so many rows, half of them new, read back as its changes: with proof and without."""
    from catalog.changes import changes as read
    from catalog.changes import from_ipc, to_ipc, verify
    from catalog.changes.feed import ChangeSet
    from catalog.merkle.checkpoint import Checkpoint
    from catalog.merkle.note import Ed25519Signer
    from catalog.merkle.proof import ProofFile, write
    from catalog.merkle.tree import leaf_hash
    from catalog.tables.manager import Tables
    from catalog.timeline.leaf import Leaf

    tables, signer = Tables(world.glue()), Ed25519Signer.generate(ORIGIN)
    tables.create("bench.feed", peers.base(1).schema, mode="mor", key=["id"])
    first = tables.insert("bench.feed", peers.base(2 * rows))
    tables.upsert("bench.feed", peers.given(2 * rows, rows))
    table = tables.load("bench.feed")

    def signed(found: ChangeSet) -> ChangeSet:
        """In a timeline of one leaf: the cost of checking a proof grows with its logarithm only."""
        from hashlib import sha256

        assert found.schema_json is not None
        leaf = Leaf(
            table=found.commit.table,
            table_uuid=found.commit.table_uuid,
            snapshot_id=found.commit.snapshot_id,
            parent_id=found.commit.parent_id,
            sequence=2,
            committed_ms=found.commit.committed_ms,
            sequenced_ms=found.commit.committed_ms,
            operation="overwrite",
            ref="main",
            schema_sha256=sha256(found.schema_json).hexdigest(),
            metadata_sha256="b2" * 32,
            manifest_list_sha256="c3" * 32,
            content_root="d4" * 32,
            content_count=2,
            changes_root=found.root.hex(),
            changes_count=found.count,
        ).encode()
        note = Checkpoint(ORIGIN, 1, leaf_hash(leaf)).sign([signer])
        return found.with_evidence(leaf, write(ProofFile(0, (), note)), 0)

    reading, checking, receiving = [], [], []
    for _ in range(REPEATS):
        with stopwatch() as seconds:
            (found,) = read(table, first.snapshot_id)
        reading.append(seconds())
        assert len(found) == rows
        proven = signed(found)
        with stopwatch() as seconds:
            verify(proven, signer.verifier_key)
        checking.append(seconds())
        data = to_ipc(proven)
        with stopwatch() as seconds:
            from_ipc(data)
        receiving.append(seconds())
    ratio = (p50(reading) + p50(checking)) / p50(reading)
    detail = {"read_s": round(p50(reading), 3), "verify_s": round(p50(checking), 3)}
    detail |= {"verified_rows_per_s": round(rows / p50(checking)), "decode_ipc_s": round(p50(receiving), 3)}
    yield Figure(f"feed of {rows:,} changes read and verified / read", ratio, "x", 2, detail=detail)
