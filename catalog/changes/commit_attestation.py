"""The attestation of a commit: the digests of the objects that it wrote and, where they can be computed, of its row
changes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.changes.changes_root import changes_of
from catalog.core.errors import LakeError
from catalog.iceberg import ManifestReader, WrittenObject
from catalog.timeline import Attestation, ChangesDigest, ObjectDigest

logger = logging.getLogger(__name__)


def attestation_of(
    table: Table, snapshot: Snapshot, written: Sequence[WrittenObject], manifests: ManifestReader
) -> Attestation:
    """What the writer of a snapshot says of it. `written`: every object of the commit, its manifest list among them."""
    objects = {entry.path: ObjectDigest(*entry) for entry in written}
    manifest_list = objects.pop(snapshot.manifest_list)
    entries = tuple(sorted(objects.values()))
    attestation = Attestation(str(table.metadata.table_uuid), snapshot.snapshot_id, manifest_list, entries)
    return attestation.with_changes(_changes_of(table, snapshot, manifests))


def _changes_of(table: Table, snapshot: Snapshot, manifests: ManifestReader) -> ChangesDigest | None:
    """The commit's row changes. None leaves them to the sequencer."""
    parent = None if snapshot.parent_snapshot_id is None else table.snapshot_by_id(snapshot.parent_snapshot_id)
    if parent is None and snapshot.parent_snapshot_id is not None:
        return None
    schema_id = table.metadata.current_schema_id if snapshot.schema_id is None else snapshot.schema_id
    try:
        return changes_of(table, parent, snapshot, schema_id, manifests=manifests)
    except (LakeError, ClientError, BotoCoreError, OSError) as error:
        logger.warning("changes not attested", extra={"table": ".".join(table.name()), "error": str(error)})
        return None
