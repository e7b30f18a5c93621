"""The same measurements for each engine, on the same rows and S3 endpoint: ours, pyiceberg, deltalake and lancedb.

Each function runs in its own process (see children.py), warms up first, and returns plain numbers.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.children import peak_memory
from bench.object_store import KEYS

THREADS = 50


@dataclass(frozen=True)
class World:
    """Glue's endpoint, the endpoint of the objects, and a bucket there."""

    glue_url: str
    url: str
    bucket: str

    def glue(self) -> Any:
        from pyiceberg.catalog.glue import GlueCatalog

        properties = {"warehouse": f"s3://{self.bucket}/tables"}
        for service, url in (("glue", self.glue_url), ("s3", self.url)):
            properties |= {
                f"{service}.endpoint": url,
                f"{service}.region": KEYS["region"],
                f"{service}.access-key-id": KEYS["access"],
                f"{service}.secret-access-key": KEYS["secret"],
            }
        return GlueCatalog("lake", **properties)

    def delta(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEYS["access"],
            "AWS_SECRET_ACCESS_KEY": KEYS["secret"],
            "AWS_REGION": KEYS["region"],
            "aws_conditional_put": "etag",
        }

    def lance(self) -> Any:
        import lancedb

        options = {
            "endpoint": self.url,
            "allow_http": "true",
            "aws_access_key_id": KEYS["access"],
            "aws_secret_access_key": KEYS["secret"],
            "aws_region": KEYS["region"],
        }
        return lancedb.connect(f"s3://{self.bucket}/lance", storage_options=options)


def ten_rows() -> pa.Table:
    numbers = range(10)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"station {n}" for n in numbers],
            "metres": [n / 2 for n in numbers],
        }
    )


def large(ids: Any, tag: str) -> pa.Table:
    """Rows of four columns, with the same values for every engine."""
    random = np.random.default_rng(len(ids))
    names: Any = pc.binary_join_element_wise(tag, pa.array(ids, pa.int64()).cast(pa.string()), " ")
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": names,
            "metres": pa.array(random.random(len(ids))),
            "station": pa.array(random.integers(0, 1000, len(ids))),
        }
    )


def base(rows: int) -> pa.Table:
    return large(np.arange(rows), "n")


def upsert_source(rows: int, upserted: int) -> pa.Table:
    """The source rows of an upsert: half exist already, spread over the whole table; half are new."""
    existing = np.random.default_rng(1).choice(rows, upserted // 2, replace=False)
    new = np.arange(rows, rows + upserted - upserted // 2)
    return large(np.concatenate([existing, new]), "u")


def _timed(work: Callable[[], Any], times: int) -> list[float]:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds


def _concurrently(work: Callable[[], Any], threads: int, each: int) -> dict[str, Any]:
    """Runs `work` on several threads that start together; failed calls are counted separately."""
    barrier, errors, done = threading.Barrier(threads + 1), list[str](), [0] * threads

    def run(number: int) -> None:
        barrier.wait()
        for _ in range(each):
            try:
                work()
                done[number] += 1
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}"[:200])

    workers = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return {"done": sum(done), "failed": len(errors), "seconds": time.perf_counter() - began, "first_error": errors[:1]}


def _upserted(work: Callable[[pa.Table], Any], count: Callable[[], int], rows: int, upserted: int) -> dict[str, Any]:
    source = upsert_source(rows, upserted)
    pa.default_memory_pool().release_unused()
    cpu = time.process_time()
    with peak_memory() as extra:
        began = time.perf_counter()
        work(source)
        seconds = time.perf_counter() - began
        peak = extra()
    cpu = time.process_time() - cpu
    row_count, expected = count(), rows + upserted - upserted // 2
    if row_count != expected:
        raise AssertionError(f"the table has {row_count} rows after the upsert, expected {expected}")
    return {"seconds": seconds, "cpu_s": cpu, "extra_bytes": peak}


def our_inserts(world: World, times: int) -> list[float]:
    from catalog.tables import Tables

    tables, rows = Tables(world.glue()), ten_rows()
    tables.create("bench.warm", rows.schema)
    _timed(lambda: tables.insert("bench.warm", rows), 3)
    tables.create("bench.ours", rows.schema)
    seconds = _timed(lambda: tables.insert("bench.ours", rows), times)
    assert tables.scan("bench.ours").num_rows == 10 * times
    return seconds


def our_group(world: World, times: int) -> dict[str, Any]:
    from catalog.tables import Tables

    tables, rows = Tables(world.glue()), ten_rows()
    tables.create("bench.group", rows.schema)
    tables.insert("bench.group", rows)
    outcome = _concurrently(lambda: tables.insert("bench.group", rows), times, 1)
    assert tables.scan("bench.group").num_rows == 10 * (times + 1)
    return outcome | {"commits": len(tables.history("bench.group")) - 1}


def iceberg_inserts(world: World, times: int) -> list[float]:
    catalog, rows = world.glue(), ten_rows()
    catalog.create_namespace_if_not_exists("peer")
    warm = catalog.create_table("peer.warm", rows.schema)
    _timed(lambda: warm.append(rows), 3)
    table = catalog.create_table("peer.inserts", rows.schema)
    return _timed(lambda: table.append(rows), times)


def delta_inserts(world: World, times: int, concurrently: bool) -> Any:
    from deltalake import DeltaTable, write_deltalake

    uri, options, rows = f"s3://{world.bucket}/delta/{uuid4().hex}", world.delta(), ten_rows()

    def write() -> None:
        write_deltalake(uri, rows, mode="append", storage_options=options)

    _timed(write, 3)
    if not concurrently:
        return _timed(write, times)
    outcome = _concurrently(write, THREADS, times // THREADS)
    assert DeltaTable(uri, storage_options=options).to_pyarrow_table().num_rows == 10 * (outcome["done"] + 3)
    return outcome


def lance_inserts(world: World, times: int) -> list[float]:
    rows = ten_rows()
    table = world.lance().create_table("inserts", rows)
    _timed(lambda: table.add(rows), 3)
    return _timed(lambda: table.add(rows), times)


# An upsert is measured in a process that has only done a small upsert, for imports and connections: memory freed by an
# insert of a million rows would be reused and not be counted. So `prepare_…` runs in another process.


def prepare_ours(world: World, name: str, mode: Any, rows: int) -> None:
    from catalog.tables import Tables

    tables = Tables(world.glue())
    for table, size in ((name, rows), (f"{name}_warm", 100)):
        tables.create(table, base(1).schema, mode=mode, key=["id"])
        tables.insert(table, base(size))


def our_upsert(world: World, name: str, rows: int, upserted: int) -> dict[str, Any]:
    from catalog.tables import Tables

    tables = Tables(world.glue())
    tables.upsert(f"{name}_warm", upsert_source(100, 10))
    return _upserted(lambda source: tables.upsert(name, source), lambda: tables.scan(name).num_rows, rows, upserted)


def prepare_delta(world: World, name: str, rows: int) -> None:
    from deltalake import write_deltalake

    for table, size in ((name, rows), (f"{name}_warm", 100)):
        write_deltalake(f"s3://{world.bucket}/delta/{table}", base(size), storage_options=world.delta())


def delta_upsert(world: World, name: str, rows: int, upserted: int) -> dict[str, Any]:
    from deltalake import DeltaTable

    def opened(table: str) -> DeltaTable:
        return DeltaTable(f"s3://{world.bucket}/delta/{table}", storage_options=world.delta())

    def merge(table: DeltaTable, source: pa.Table) -> None:
        merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def count() -> int:
        return opened(name).to_pyarrow_table(columns=["id"]).num_rows

    merge(opened(f"{name}_warm"), upsert_source(100, 10))
    table = opened(name)
    return _upserted(lambda source: merge(table, source), count, rows, upserted)


def prepare_iceberg(world: World, name: str, rows: int) -> None:
    catalog = world.glue()
    catalog.create_namespace_if_not_exists("peer")
    for table, size in ((name, rows), (f"{name}_warm", 100)):
        catalog.create_table(f"peer.{table}", base(1).schema).append(base(size))


def iceberg_upsert(world: World, name: str, rows: int, upserted: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    catalog = world.glue()
    catalog.load_table(f"peer.{name}_warm").upsert(upsert_source(100, 10), join_cols=["id"])
    table = catalog.load_table(f"peer.{name}")
    return _upserted(
        lambda source: table.upsert(source, join_cols=["id"]), lambda: table.scan().count(), rows, upserted
    )


def prepare_lance(world: World, name: str, rows: int) -> None:
    db = world.lance()
    for table, size in ((name, rows), (f"{name}_warm", 100)):
        db.create_table(table, base(size))


def lance_upsert(world: World, name: str, rows: int, upserted: int) -> dict[str, Any]:
    db = world.lance()

    def merge(table: Any, source: pa.Table) -> None:
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)

    merge(db.open_table(f"{name}_warm"), upsert_source(100, 10))
    table = db.open_table(name)
    return _upserted(lambda source: merge(table, source), table.count_rows, rows, upserted)
