"""Rewrites data files with proof: reads and digests the rows, writes them, digests the files, and only then commits.

Uses the same parts as Iceberg's rewrite action, which has no hook to digest the rows in between. Nothing is visible
before the commit, so a rewrite that would change a row has no effect.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyspark.sql import DataFrame, Observation, SparkSession

from catalog import Conflict, Lake, Unavailable, Unverified
from catalog.changes import RowsDigest
from catalog.iceberg import ROWS_COUNT, ROWS_DIGEST, LiveFiles
from catalog.tables import UNIT_PROPERTY
from spark_jobs.carried_deletes import MAX_ROWS, PREFIX_BYTES, CarriedDeletes
from spark_jobs.java_lists import JavaList
from spark_jobs.proof import digest, digest_files, observed_digest, row_digests_of_files, with_digest
from spark_jobs.session import CATALOG

_LOST_RACE = ("CommitFailedException", "ValidationException")
_TASK, _SCAN, _FILE = (f"org.apache.iceberg.{name}" for name in ("ContentScanTask", "FileScanTask", "ContentFile"))
_FILE_GETTERS = ("location", "fileSizeInBytes", "recordCount", "specId", "partition")


@dataclass(frozen=True)
class Task:
    """One data file of the snapshot: its position among Iceberg's tasks, and what planning needs."""

    position: int
    path: str
    bytes: int
    rows: int
    deletes: tuple[str, ...]
    partition: str


@dataclass(frozen=True)
class Rewritten:
    """The result of a rewrite: its snapshot, and the digest of its rows, the same before and after."""

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
        """All data files of the snapshot, with the deletes that apply to each. Reads the manifests."""
        if self.snapshot_id is None:
            return []
        scan = self._table.newScan().useSnapshot(self.snapshot_id).ignoreResiduals().planFiles()
        try:
            self._tasks = JavaList.of(self._spark, scan)
        finally:
            scan.close()
        files, delete_lists = self._tasks.each(_TASK, "file"), self._tasks.each(_SCAN, "deletes")
        paths, sizes, rows, specs, partitions = (files.each(_FILE, name).texts() for name in _FILE_GETTERS)
        deletes = iter(delete_lists.flat().each(_FILE, "location").texts())
        counts = map(int, delete_lists.each("java.util.List", "size").texts())
        return [
            Task(
                position, path, int(sizes[position]), int(rows[position]), tuple(islice(deletes, count)),
                f"{specs[position]} {partitions[position]}",
            )
            for position, (path, count) in enumerate(zip(paths, counts, strict=True))
        ]  # fmt: skip

    def rewrite(
        self,
        group: Sequence[Task],
        tasks: Sequence[Task],
        *,
        target_bytes: int,
        reorder: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        reads_twice: bool = False,
    ) -> Rewritten:
        """Rewrites one group of files in one commit. `tasks`: all tasks of the snapshot, to know which deletes to drop.

        `reads_twice`: `reorder` reads its rows more than once, as a sort by range does to sample them; so they are
        digested in a pass of their own. Rows of these files that are deleted meanwhile are deleted in the new files,
        too. Unverified if the written rows are not the rows read, Conflict if another change cannot be carried over;
        either way the written files are removed and the table is unchanged.
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
            merged = self._finished_deletes(group, tasks)
            try:
                snapshot_id = self._commit(group, files, merged, before)
            except Conflict:
                snapshot_id, before = self._commit_with_deletes(group, files, before)
        except (Conflict, Unverified):  # certainly not committed; after any other error the files may be the table's
            self._delete(files.each(_FILE, "location").texts())
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
        observation = Observation()
        with _Staged(self._jvm, self._table, self._select(group).java) as name:
            reader = self._spark.read.format("iceberg").option("file-open-cost", "0")
            rows = reader.option("split-size", str(min(target_bytes, max(share, 8 << 20)))).load(name)
            before = digest(rows, self._schema) if reads_twice else None
            digested = with_digest(rows, self._schema, observation) if before is None else rows
            writer = reorder(digested).write.format("iceberg").mode("append")
            writer = writer.option("target-file-size-bytes", str(target_bytes)).option("distribution-mode", "none")
            writer = writer.option("fanout-enabled", "true").option("output-spec-id", str(self._table.spec().specId()))
            writer.save(name)
            written = self._jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get().fetchNewFiles(self._table, name)
            files = JavaList.of(self._spark, written)
        return before or observed_digest(observation), files

    def _select(self, group: Sequence[Task]) -> JavaList:
        return self._tasks.at([task.position for task in group])

    def _digest_of(self, files: JavaList) -> RowsDigest:
        """The digest of written files, read back from S3 by Arrow rather than by the engine that wrote them."""
        return digest_files(self._spark, self._loaded, self._loaded.schema(), self._described(files))

    def _described(self, files: JavaList) -> list[tuple[str, str, int]]:
        """Path, format and partition spec of each file."""
        paths, formats, specs = (files.each(_FILE, name).texts() for name in ("location", "format", "specId"))
        return list(zip(paths, formats, map(int, specs), strict=True))

    def _commit(self, group: Sequence[Task], files: JavaList, deletes: JavaList, rows: RowsDigest) -> int:
        old = self._select(group).each(_TASK, "file")
        java_set = self._jvm.java.util.HashSet
        update = self._table.newRewrite().validateFromSnapshot(self.snapshot_id)
        update.rewriteFiles(java_set(old.java), java_set(deletes.java), java_set(files.java), java_set())
        # The sequence number of the replaced files: a delete committed since then applies to the new files as well.
        update.dataSequenceNumber(self._sequence)
        update.set(ROWS_DIGEST, rows.hex)
        update.set(ROWS_COUNT, str(rows.rows))
        try:
            update.commit()
        except Py4JJavaError as error:
            if any(name in str(error) for name in _LOST_RACE):
                raise Conflict(f"{self._name} was changed while its files were rewritten: try again") from None
            raise
        self._table.refresh()
        # Other writers may have committed since: ours is the newest snapshot with this digest.
        for snapshot in reversed(list(self._table.snapshots())):
            if snapshot.summary().get(ROWS_DIGEST) == rows.hex:
                return int(snapshot.snapshotId())
        raise Conflict(f"the rewrite of {self._name} is no longer among its snapshots: it may have expired")

    def _commit_with_deletes(self, group: Sequence[Task], files: JavaList, rows: RowsDigest) -> tuple[int, RowsDigest]:
        """Commits with the deletes that came meanwhile (carried_deletes.py); returns the digest without their rows.

        Conflict for a table whose rows' order is in its files' sequence numbers, which this commit would renew.
        """
        if rows.rows > MAX_ROWS or UNIT_PROPERTY in self._loaded.properties:
            raise Conflict(f"rows of {self._name} were deleted while its files were rewritten: try again")
        snapshot = self._loaded.snapshot_by_id(self.snapshot_id or 0)
        live = LiveFiles.of(self._loaded.io, self._lake.tables.committer.manifests, snapshot, self._name)
        paths = {task.path for task in group}
        old = {file.file.file_path: file for file in live.data if file.file.file_path in paths}
        schema = self._loaded.schema()
        digests = row_digests_of_files(self._spark, self._loaded, schema, self._described(files), PREFIX_BYTES)
        carried = CarriedDeletes(self._loaded, schema, old, self._data_files(files), digests, rows)
        try:
            _, committed, delta = self._lake.tables.committer.write(self._name, carried.plan, notify=_nobody)
        except Conflict as lost:
            if carried.is_refused:
                raise
            raise Unavailable(
                f"{lost.message}; files that no snapshot refers to may remain", subject=self._name
            ) from None
        assert committed is not None
        kept = {file.file_path for file in delta.added}
        self._delete([path for path in files.each(_FILE, "location").texts() if path not in kept])
        return committed.snapshot_id, carried.rows

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._table.io().deleteFile(path)

    def _data_files(self, files: JavaList) -> list[DataFile]:
        """The written files as pyiceberg knows them, with their statistics: through a manifest, which both can read."""
        location = f"{self._table.location()}/metadata/rewrite-{uuid.uuid4()}.avro"
        spec, io = self._table.spec(), self._table.io()
        writer = self._jvm.org.apache.iceberg.ManifestFiles.write(2, spec, io.newOutputFile(location), self.snapshot_id)
        try:
            for file in files.java:
                writer.add(file)
            writer.close()
            length = int(writer.length())
            manifest = ManifestFile.from_args(
                manifest_path=location,
                manifest_length=length,
                partition_spec_id=spec.specId(),
                content=ManifestContent.DATA,
                sequence_number=self._sequence,
                added_snapshot_id=self.snapshot_id,
            )
            return [entry.data_file for entry in manifest.fetch_manifest_entry(self._loaded.io)]
        finally:
            io.deleteFile(location)

    def _finished_deletes(self, group: Sequence[Task], tasks: Sequence[Task]) -> JavaList:
        """The delete files that apply only to files of the group: the rewrite removes them."""
        group_paths = {task.path for task in group}
        others = {delete for task in tasks if task.path not in group_paths for delete in task.deletes}
        affected = sorted((task for task in group if task.deletes), key=lambda task: task.position)
        paths = [path for task in affected for path in task.deletes]
        first = {path: position for position, path in reversed(list(enumerate(paths))) if path not in others}
        return self._select(affected).each(_SCAN, "deletes").flat().at(first.values())


def _nobody(*_: Any) -> None:
    """Announces nothing: the job tells the sequencer of its commits itself."""


class _Staged:
    """Stages tasks under a name that Spark can read as a table, inside a `with` block."""

    def __init__(self, jvm: Any, table: Any, tasks: Any) -> None:
        self._name, self._table, self._tasks = str(uuid.uuid4()), table, tasks
        self._manager = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
        self._coordinator = jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
        # Through the field INSTANCE: SparkTableCache has two methods named `get`, and py4j finds neither.
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
