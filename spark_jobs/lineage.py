"""Lineage as OpenLineage's run events: which snapshots went in, which came out. Values only; the job keeps them."""

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
    """A table at a snapshot; None: it had none."""

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
    """One event. The standard wants a UUID for a run: it is derived from ours, the same for all events of the run."""
    return {
        "eventType": kind,
        "eventTime": datetime.fromtimestamp(at, UTC).isoformat(),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": str(uuid5(_RUNS, run_id))},
        "job": {"namespace": f"s3://{bucket}", "name": job},
        "inputs": [_dataset(one, bucket) for one in inputs],
        "outputs": [_dataset(one, bucket) for one in outputs],
    }


def _dataset(one: Dataset, bucket: str) -> dict[str, Any]:
    found: dict[str, Any] = {"namespace": f"s3://{bucket}", "name": one.table, "facets": {}}
    if one.snapshot_id is not None:
        found["facets"]["version"] = {
            "_producer": PRODUCER,
            "_schemaURL": VERSION_FACET,
            "datasetVersion": str(one.snapshot_id),
        }
    return found
