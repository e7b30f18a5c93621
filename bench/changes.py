"""Change capture: row digests, the changes root, and a feed that is read and verified."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import tables_peers as peers
from bench.children import in_child
from bench.harness import Figure, p50, stopwatch, suite
from bench.object_store import object_store
from bench.timeline_world import ORIGIN, cloud

if TYPE_CHECKING:
    from catalog.changes import ChangeSet
    from catalog.merkle.note import Ed25519Signer

REPEATS = 5


@suite("changes")
def changes(quick: bool) -> Iterator[Figure]:
    yield from in_child(_digests, 100_000 if quick else 1_000_000)
    with cloud() as running, object_store(running) as store:
        yield from _feed(peers.World(running.url, store.url, store.bucket()), 10_000 if quick else 100_000)


def ten_columns(rows: int) -> pa.Table:
    """Numbers, text, times, a decimal and a boolean, with nulls. Fields have Iceberg field ids."""
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
    """Rates per CPU second, which do not depend on the number of cores."""
    from catalog.changes import ChangeSet
    from catalog.changes.change_set import CommitHeader
    from catalog.changes.digest import row_digests
    from catalog.changes.hashing import root
    from catalog.changes.records import changes_schema, leaf_hashes, records

    table = ten_columns(rows)
    structs = pa.StructArray.from_arrays(
        [column.combine_chunks() for column in table.columns], fields=list(table.schema)
    )
    nothing = pa.nulls(rows, structs.type)
    inserts = pa.Table.from_arrays([pa.array(["INSERT"] * rows), nothing, structs], schema=changes_schema(table.schema))
    commit = CommitHeader("bench.t", "6f0e5bd4-6a4f-4d5e-9c1b-0d2f3a4b5c6d", 1, None, 0)
    digests, digests_wall = _cpu(lambda: row_digests(table))
    block = records(inserts, ["id"])
    roots, roots_wall = _cpu(lambda: root(leaf_hashes(block)))
    change_set, change_set_wall = _cpu(lambda: ChangeSet.of(commit, table.schema, ["id"], inserts))

    def figure(name: str, cpu: float, wall: float, target: float | None = 1_000_000) -> Figure:
        detail: dict[str, object] = {"wall_rows_per_s": round(rows / wall)}
        return Figure(f"{name}, {rows:,} rows", rows / cpu, "rows/CPU s", target, "higher", detail)

    return [
        figure("row digests, ten columns", digests, digests_wall),
        figure("changes root over their records", roots, roots_wall),
        figure("whole change set: digests of rows and keys, records, root", change_set, change_set_wall),
    ]


def _cpu(work: Callable[[], Any]) -> tuple[float, float]:
    """CPU and wall seconds, the minimum of several runs: other load on the machine only adds time."""
    times = []
    work()
    for _ in range(REPEATS):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        times.append((time.process_time() - cpu, time.perf_counter() - began))
    return min(times)


def _feed(world: peers.World, rows: int) -> Iterator[Figure]:
    """Upserts `rows` rows, half of them new, and reads the changes back, with verification and without."""
    from catalog.changes import changes as read
    from catalog.changes import from_ipc, to_ipc, verify
    from catalog.merkle.note import Ed25519Signer
    from catalog.tables import Tables

    tables, signer = Tables(world.glue()), Ed25519Signer.generate(ORIGIN)
    tables.create("bench.feed", peers.base(1).schema, mode="mor", key=["id"])
    first = tables.insert("bench.feed", peers.base(2 * rows))
    tables.upsert("bench.feed", peers.upsert_source(2 * rows, rows))
    table = tables.load("bench.feed")
    reading, verifying, decoding = [], [], []
    for _ in range(REPEATS):
        with stopwatch() as seconds:
            (change_set,) = read(table, first.snapshot_id)
        reading.append(seconds())
        assert len(change_set) == rows
        proven = _with_proof(change_set, signer)
        with stopwatch() as seconds:
            verify(proven, signer.verifier_key)
        verifying.append(seconds())
        data = to_ipc(proven)
        with stopwatch() as seconds:
            from_ipc(data)
        decoding.append(seconds())
    ratio = (p50(reading) + p50(verifying)) / p50(reading)
    detail = {"read_s": round(p50(reading), 3), "verify_s": round(p50(verifying), 3)}
    detail |= {"verified_rows_per_s": round(rows / p50(verifying)), "decode_ipc_s": round(p50(decoding), 3)}
    yield Figure(f"feed of {rows:,} changes read and verified / read", ratio, "x", 2, detail=detail)


def _with_proof(change_set: ChangeSet, signer: Ed25519Signer) -> ChangeSet:
    """The change set with its leaf and a proof in a timeline of one leaf: verification costs only log n more."""
    from catalog.merkle.checkpoint import Checkpoint
    from catalog.merkle.proof import ProofFile, write
    from catalog.merkle.tree import leaf_hash
    from catalog.timeline import Leaf

    assert change_set.schema_json is not None
    leaf = Leaf(
        table=change_set.commit.table,
        table_uuid=change_set.commit.table_uuid,
        snapshot_id=change_set.commit.snapshot_id,
        parent_id=change_set.commit.parent_id,
        sequence=2,
        committed_ms=change_set.commit.committed_ms,
        sequenced_ms=change_set.commit.committed_ms,
        operation="overwrite",
        ref="main",
        schema_sha256=sha256(change_set.schema_json).hexdigest(),
        metadata_sha256="b2" * 32,
        manifest_list_sha256="c3" * 32,
        content_root="d4" * 32,
        content_count=2,
        changes_root=change_set.root.hex(),
        attested="lake",
        changes_count=change_set.count,
    ).encode()
    note = Checkpoint(ORIGIN, 1, leaf_hash(leaf)).sign([signer])
    return change_set.with_evidence(leaf, write(ProofFile(0, (), note)), 0)
