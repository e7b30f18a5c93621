"""Data files rewritten with proof: read once, digested on the way, written, digested again, and only then committed.

Stands on the same parts as Iceberg's own rewrite action, which has no place to look at the rows in between. Until the
commit nothing of it can be seen, so a rewrite that would change a row never happened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import DataFrame, Observation, SparkSession

from catalog.changes.multiset import RowsDigest
from catalog.errors import Conflict, Unverified
from catalog.lake import Lake
from catalog.summary import ROWS_COUNT, ROWS_DIGEST
from spark_jobs.java_lists import JavaList
from spark_jobs.proof import digest, digest_files, seen, watched
from spark_jobs.session import CATALOG

_LOST_RACE = ("CommitFailedException", "ValidationException")
_TASK, _SCAN, _FILE = (f"org.apache.iceberg.{name}" for name in ("ContentScanTask", "FileScanTask", "ContentFile"))
_FACTS = ("location", "fileSizeInBytes", "recordCount", "specId", "partition")


@dataclass(frozen=True)
class Task:
    """One data file to be read: its place among Iceberg's own tasks, and what planning asks of it."""

    place: int
    path: str
    bytes: int
    rows: int
    deletes: tuple[str, ...]
    partition: str


@dataclass(frozen=True)
class Rewritten:
    """What a group became: digest of its rows before and after, and the snapshot that has it."""

    snapshot_id: int
    digest: RowsDigest
    files_before: int
    files_after: int
    bytes_after: int
    deletes_merged: int


class Rewriter:
    """Rewrites files of one table at one snapshot."""

    def __init__(self, spark: SparkSession, lake: Lake, table: str) -> None:
        self._spark, self._name = spark, table
        self._loaded = lake.tables.load(table)
        self._schema = schema_to_pyarrow(self._loaded.schema(), include_field_ids=True)
        self._jvm: Any = spark._jvm
        java_session = spark._jsparkSession
        self._table = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java_session, f"{CATALOG}.{table}")
        snapshot = self._table.currentSnapshot()
        self.snapshot_id: int | None = None if snapshot is None else snapshot.snapshotId()
        self._sequence = 0 if snapshot is None else snapshot.sequenceNumber()
        self._tasks = JavaList(spark)

    def tasks(self) -> list[Task]:
        """Every data file of the snapshot with the deletes that apply to it. Reads the manifests."""
        if self.snapshot_id is None:
            return []
        planned = self._table.newScan().useSnapshot(self.snapshot_id).ignoreResiduals().planFiles()
        try:
            self._tasks = JavaList.of(self._spark, planned)
        finally:
            planned.close()
        files, pending = self._tasks.each(_TASK, "file"), self._tasks.each(_SCAN, "deletes")
        paths, sizes, rows, specs, partitions = (files.each(_FILE, name).texts() for name in _FACTS)
        deletes = iter(pending.flat().each(_FILE, "location").texts())
        counts = map(int, pending.each("java.util.List", "size").texts())
        return [
            Task(
                place, path, int(sizes[place]), int(rows[place]), tuple(islice(deletes, count)),
                f"{specs[place]} {partitions[place]}",
            )
            for place, (path, count) in enumerate(zip(paths, counts, strict=True))
        ]  # fmt: skip

    def rewrite(
        self,
        group: Sequence[Task],
        every: Sequence[Task],
        *,
        target_bytes: int,
        reorder: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        reads_twice: bool = False,
    ) -> Rewritten:
        """One group of files, in one commit. `every`: all tasks of the snapshot, to know which deletes are done with.

        `reads_twice`: the reordering runs through its rows more than once, as sorting by range does to sample them; so
        they are digested in a pass of their own.
        Unverified if the rows written are not the rows read, Conflict if somebody deleted from these files meanwhile;
        either way what was written is removed and the table is as it was.
        """
        before, files = self._write(group, target_bytes, reorder, reads_twice)
        try:
            after = self._digest_of(files)
            if after != before:
                raise Unverified(
                    f"rewriting {len(group)} files of {self._name} would change its rows: {before.rows} rows with "
                    f"digest {before.hex[:16]}… became {after.rows} with {after.hex[:16]}…; nothing was committed",
                    subject=self._name,
                )
            merged = self._finished_deletes(group, every)
            snapshot_id = self._commit(group, files, merged, before)
        except BaseException:
            for path in files.each(_FILE, "location").texts():
                self._table.io().deleteFile(path)
            raise
        size = sum(map(int, files.each(_FILE, "fileSizeInBytes").texts()))
        return Rewritten(snapshot_id, before, len(group), len(files), size, len(merged))

    def _write(
        self,
        group: Sequence[Task],
        target_bytes: int,
        reorder: Callable[[DataFrame], DataFrame],
        reads_twice: bool,
    ) -> tuple[RowsDigest, JavaList]:
        total = sum(task.bytes for task in group)
        share = total // self._spark.sparkContext.defaultParallelism + 1
        observed = Observation()
        with _Staged(self._jvm, self._table, self._chosen(group).java) as name:
            reader = self._spark.read.format("iceberg").option("file-open-cost", "0")
            rows = reader.option("split-size", str(min(target_bytes, max(share, 8 << 20)))).load(name)
            before = digest(rows, self._schema) if reads_twice else None
            flowing = watched(rows, self._schema, observed) if before is None else rows
            writer = reorder(flowing).write.format("iceberg").mode("append")
            writer = writer.option("target-file-size-bytes", str(target_bytes)).option("distribution-mode", "none")
            writer = writer.option("fanout-enabled", "true").option("output-spec-id", str(self._table.spec().specId()))
            writer.save(name)
            written = self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get().fetchNewFiles(self._table, name)
            files = JavaList.of(self._spark, written)
        return before or seen(observed), files

    def _chosen(self, group: Sequence[Task]) -> JavaList:
        return self._tasks.at([task.place for task in group])

    def _digest_of(self, files: JavaList) -> RowsDigest:
        """Of files that no snapshot has yet, read back from the store, and not by the engine that wrote them."""
        paths, formats, specs = (files.each(_FILE, name).texts() for name in ("location", "format", "specId"))
        named = list(zip(paths, formats, map(int, specs), strict=True))
        return digest_files(self._spark, self._loaded, self._loaded.schema(), named)

    def _commit(self, group: Sequence[Task], files: JavaList, deletes: JavaList, found: RowsDigest) -> int:
        old = self._chosen(group).each(_TASK, "file")
        sets = self._jvm.java.util.HashSet
        update = self._table.newRewrite().validateFromSnapshot(self.snapshot_id)
        update.rewriteFiles(sets(old.java), sets(deletes.java), sets(files.java), sets())
        # As old as what they replace: a delete committed meanwhile applies to them as well.
        update.dataSequenceNumber(self._sequence)
        update.set(ROWS_DIGEST, found.hex)
        update.set(ROWS_COUNT, str(found.rows))
        try:
            update.commit()
        except Py4JJavaError as error:
            if any(name in str(error) for name in _LOST_RACE):
                raise Conflict(f"{self._name} was changed while its files were rewritten: try again") from None
            raise
        self._table.refresh()
        # Others may have committed since: ours is the newest that carries this digest.
        for snapshot in reversed(list(self._table.snapshots())):
            if snapshot.summary().get(ROWS_DIGEST) == found.hex:
                return int(snapshot.snapshotId())
        raise Conflict(f"the rewrite of {self._name} is not among its snapshots any more")

    def _finished_deletes(self, group: Sequence[Task], every: Sequence[Task]) -> JavaList:
        """The delete files that concern none but the group's files: they go with them."""
        mine = {task.path for task in group}
        others = {delete for task in every if task.path not in mine for delete in task.deletes}
        affected = sorted((task for task in group if task.deletes), key=lambda task: task.place)
        paths = [path for task in affected for path in task.deletes]
        first = {path: place for place, path in reversed(list(enumerate(paths))) if path not in others}
        return self._chosen(affected).each(_SCAN, "deletes").flat().at(first.values())


class _Staged:
    """Tasks under a name that Spark reads like a table, for the length of the block."""

    def __init__(self, jvm: Any, table: Any, tasks: Any) -> None:
        self._name, self._table, self._tasks = str(uuid.uuid4()), table, tasks
        self._manager = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
        self._coordinator = jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        # By its field: the cache's `get` is one name for two methods, and py4j finds neither.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        field = loader.loadClass("org.apache.iceberg.spark.SparkTableCache").getDeclaredField("INSTANCE")
        field.setAccessible(True)
        self._cache = field.get(None)

    def __enter__(self) -> str:
        self._cache.add(self._name, self._table)
        self._manager.stageTasks(self._table, self._name, self._tasks)
        return self._name

    def __exit__(self, *_: Any) -> None:
        self._manager.removeTasks(self._table, self._name)
        self._coordinator.clearRewrite(self._table, self._name)
        self._cache.remove(self._name)
