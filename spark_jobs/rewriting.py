"""Data files rewritten with proof: read once, digested on the way, written, digested again, and only then committed.

Stands on the same parts as Iceberg's own rewrite action, which has no place to look at the rows in between. Until the
commit nothing of it can be seen, so a rewrite that would change a row never happened.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import DataFrame, Observation, SparkSession

from catalog.changes.multiset import RowsDigest
from catalog.errors import Conflict, Unverified
from catalog.lake import Lake
from catalog.summary import ROWS_COUNT, ROWS_DIGEST
from spark_jobs.proof import digest, digest_files, seen, watched
from spark_jobs.session import CATALOG

_LOST_RACE = ("CommitFailedException", "ValidationException")


@dataclass(frozen=True)
class Task:
    """One data file to be read: Iceberg's own task, and what planning asks of it."""

    java: Any
    path: str
    bytes: int
    rows: int
    deletes: tuple[str, ...]
    partition: str

    @classmethod
    def of(cls, java: Any) -> Task:
        file = java.file()
        deletes = tuple(delete.location() for delete in java.deletes())
        partition = f"{file.specId()} {file.partition()}"
        return cls(java, file.location(), file.fileSizeInBytes(), file.recordCount(), deletes, partition)


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
        self._spark, self._lake, self._name = spark, lake, table
        self._iceberg = lake.tables.load(table).schema()
        self._schema = schema_to_pyarrow(self._iceberg, include_field_ids=True)
        self._jvm: Any = spark._jvm
        java_session = spark._jsparkSession
        self._table = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java_session, f"{CATALOG}.{table}")
        snapshot = self._table.currentSnapshot()
        self.snapshot_id: int | None = None if snapshot is None else snapshot.snapshotId()
        self._sequence = 0 if snapshot is None else snapshot.sequenceNumber()

    def tasks(self) -> list[Task]:
        """Every data file of the snapshot with the deletes that apply to it."""
        if self.snapshot_id is None:
            return []
        found, files = [], self._table.newScan().useSnapshot(self.snapshot_id).ignoreResiduals().planFiles()
        try:
            walk = files.iterator()
            while walk.hasNext():
                found.append(Task.of(walk.next()))
        finally:
            files.close()
        return found

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
            for file in files:
                self._table.io().deleteFile(file.location())
            raise
        size = sum(file.fileSizeInBytes() for file in files)
        return Rewritten(snapshot_id, before, len(group), len(files), size, len(merged))

    def _write(
        self,
        group: Sequence[Task],
        target_bytes: int,
        reorder: Callable[[DataFrame], DataFrame],
        reads_twice: bool,
    ) -> tuple[RowsDigest, list[Any]]:
        total = sum(task.bytes for task in group)
        share = total // self._spark.sparkContext.defaultParallelism + 1
        observed = Observation()
        with self._staged([task.java for task in group]) as name:
            reader = self._spark.read.format("iceberg").option("file-open-cost", "0")
            rows = reader.option("split-size", str(min(target_bytes, max(share, 8 << 20)))).load(name)
            before = digest(rows, self._schema) if reads_twice else None
            flowing = watched(rows, self._schema, observed) if before is None else rows
            writer = reorder(flowing).write.format("iceberg").mode("append")
            writer = writer.option("target-file-size-bytes", str(target_bytes)).option("distribution-mode", "none")
            writer = writer.option("fanout-enabled", "true").option("output-spec-id", str(self._table.spec().specId()))
            writer.save(name)
            files = list(
                self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get().fetchNewFiles(self._table, name)
            )
        return before or seen(observed), files

    def _digest_of(self, files: Sequence[Any]) -> RowsDigest:
        """Of files that no snapshot has yet, read back from the store, and not by the engine that wrote them."""
        named = [(file.location(), str(file.format()), file.specId()) for file in files]
        return digest_files(self._spark, self._lake.settings, self._name, self._iceberg, named)

    def _commit(self, group: Sequence[Task], files: Sequence[Any], deletes: Sequence[Any], found: RowsDigest) -> int:
        update = self._table.newRewrite().validateFromSnapshot(self.snapshot_id)
        for task in group:
            update.deleteFile(task.java.file())
        for delete in deletes:
            update.deleteFile(delete)
        for file in files:
            update.addFile(file)
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

    def _finished_deletes(self, group: Sequence[Task], every: Sequence[Task]) -> list[Any]:
        """The delete files that concern none but the group's files: they go with them."""
        mine = {task.path for task in group}
        others = {delete for task in every if task.path not in mine for delete in task.deletes}
        found = {d.location(): d for task in group for d in task.java.deletes() if d.location() not in others}
        return list(found.values())

    def _staged(self, tasks: Sequence[Any]) -> _Staged:
        return _Staged(self._jvm, self._table, tasks)


class _Staged:
    """Tasks under a name that Spark reads like a table, for the length of the block."""

    def __init__(self, jvm: Any, table: Any, tasks: Sequence[Any]) -> None:
        self._name, self._table, self._tasks = str(uuid.uuid4()), table, tasks
        self._manager = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
        self._coordinator = jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        # By its field: the cache's `get` is one name for two methods, and py4j finds neither.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        field = loader.loadClass("org.apache.iceberg.spark.SparkTableCache").getDeclaredField("INSTANCE")
        field.setAccessible(True)
        self._cache = field.get(None)
        self._list = jvm.java.util.ArrayList()

    def __enter__(self) -> str:
        for task in self._tasks:
            self._list.append(task)
        self._cache.add(self._name, self._table)
        self._manager.stageTasks(self._table, self._name, self._list)
        return self._name

    def __exit__(self, *_: Any) -> None:
        self._manager.removeTasks(self._table, self._name)
        self._coordinator.clearRewrite(self._table, self._name)
        self._cache.remove(self._name)
