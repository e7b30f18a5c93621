"""Lineage as OpenLineage run events: the snapshots that a job read and wrote. The job's report contains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID, uuid5

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
VERSION_FACET = "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json"
PRODUCER = "urn:strandline"
_RUNS = UUID("6f2b5a52-3f0e-4c57-9c0e-1f5b6a0a7d11")

Event = Literal["START", "COMPLETE", "FAIL", "ABORT"]


@dataclass(frozen=True)
class Dataset:
    """A table at a snapshot; None: the table had no snapshot."""

    table: str
    snapshot_id: int | None


def run_event(
    kind: Event,
    at: float,
    run_id: str,
    job: str,
    bucket: str,
    inputs: Sequence[Dataset],
    outputs: Sequence[Dataset],
) -> dict[str, Any]:
    """One event. OpenLineage requires a UUID for a run: it is derived from our run id, the same for all its events."""
    return {
        "eventType": kind,
        "eventTime": datetime.fromtimestamp(at, UTC).isoformat(),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": str(uuid5(_RUNS, run_id))},
        "job": {"namespace": f"s3://{bucket}", "name": job},
        "inputs": [_dataset(dataset, bucket) for dataset in inputs],
        "outputs": [_dataset(dataset, bucket) for dataset in outputs],
    }


def _dataset(dataset: Dataset, bucket: str) -> dict[str, Any]:
    value: dict[str, Any] = {"namespace": f"s3://{bucket}", "name": dataset.table, "facets": {}}
    if dataset.snapshot_id is not None:
        value["facets"]["version"] = {
            "_producer": PRODUCER,
            "_schemaURL": VERSION_FACET,
            "datasetVersion": str(dataset.snapshot_id),
        }
    return value
