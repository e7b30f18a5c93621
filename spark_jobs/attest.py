"""`attest`: computes the digests of large commits on many machines and stages them as attestations.

Without an attestation, the sequencer reads every byte of such a commit itself. It still checks the metadata of a staged
one, and computes again whatever does not match.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
from pydantic import Field
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.snapshots import Snapshot

from catalog import NotFound, Settings, Unverified, open_lake
from catalog.timeline import DIGEST_CHUNK_BYTES, Attestation, ObjectDigest
from spark_jobs.arguments import TABLE
from spark_jobs.job import Arguments, Context, Job, run

_DIGEST_COLUMNS: dict[str, Any] = {"path": pa.string(), "length": pa.int64(), "sha256": pa.string()}
_DIGEST_TYPE = "path string, length bigint, sha256 string"


class AttestArguments(Arguments):
    table: str = Field(pattern=TABLE)
    snapshot_id: int | None = Field(default=None, description="default: every snapshot without an attestation")


def attest(context: Context, arguments: AttestArguments) -> Mapping[str, Any]:
    table = context.lake.tables.load(arguments.table)
    uuid = str(table.metadata.table_uuid)
    snapshots = [s for s in table.metadata.snapshots if arguments.snapshot_id in (None, s.snapshot_id)]
    if not snapshots and arguments.snapshot_id is not None:
        raise NotFound(f"{arguments.table} has no snapshot {arguments.snapshot_id}", subject=arguments.table)
    staged: dict[str, int] = {}
    for snapshot in snapshots:
        if context.lake.attestations.staged(uuid, snapshot.snapshot_id) is not None:
            continue
        with context.stage(f"snapshot {snapshot.snapshot_id}") as stage:
            attestation = _attestation(context, uuid, snapshot, table.io)
            context.lake.attestations.stage(attestation)
            entries = attestation.entries
            stage.rows, stage.bytes = len(entries), sum(entry.length for entry in entries)
            staged[str(snapshot.snapshot_id)] = len(entries)
    return {"staged": staged}


def _attestation(context: Context, uuid: str, snapshot: Snapshot, io: Any) -> Attestation:
    """The driver reads the metadata, Spark's workers the data files. Memory: 4 MiB for each file in progress."""
    lengths: dict[str, int] = {}
    for manifest in snapshot.manifests(io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        lengths[manifest.manifest_path] = manifest.manifest_length
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                lengths[entry.data_file.file_path] = entry.data_file.file_size_in_bytes
    spark, tasks = context.spark, context.spark.sparkContext.defaultParallelism * 4
    paths = spark.createDataFrame([*lengths.items(), (snapshot.manifest_list, -1)], "path string, length bigint")
    hashed = paths.repartition(tasks).mapInArrow(partial(_hash, context.lake.settings), _DIGEST_TYPE).collect()
    entries = {row.path: ObjectDigest(row.path, row.length, row.sha256) for row in hashed}
    manifest_list = entries.pop(snapshot.manifest_list)
    for path, length in lengths.items():
        if entries[path].length != length:
            raise Unverified(f"{path} has {entries[path].length} bytes, but its manifest says {length}", subject=path)
    return Attestation(uuid, snapshot.snapshot_id, manifest_list, tuple(sorted(entries.values())))


def _hash(settings: Settings, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    s3 = open_lake(settings).s3
    for batch in batches:
        digests = []
        for path in batch.column("path").to_pylist():
            url, digest, length = urlparse(str(path)), sha256(), 0
            body = s3.get_object(Bucket=url.netloc, Key=url.path.lstrip("/"))["Body"]
            for chunk in body.iter_chunks(DIGEST_CHUNK_BYTES):
                digest.update(chunk)
                length += len(chunk)
            digests.append({"path": path, "length": length, "sha256": digest.hexdigest()})
        yield pa.RecordBatch.from_pylist(digests, schema=pa.schema(_DIGEST_COLUMNS))


JOB = Job("attest", AttestArguments, attest)

if __name__ == "__main__":
    sys.exit(run(JOB))
