"""Completes erasures that were committed: verifies the table, then deletes the objects that were replaced.

The deletion cannot be undone. It is limited to objects that a record lists whose leaf is in the timeline, that are in
the table's own folders, and that none of the table's snapshots refers to any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import Unverified
from catalog.erasure.preconditions import folders
from catalog.erasure.purge import Purge
from catalog.iceberg import CommitIO
from catalog.tables import History, Tables, TableVersion, check_hold
from catalog.timeline import DONE_SUFFIX, ERASE, KEYS_SUFFIX, Erasure, ErasureRecords, Leaf, Verifier, erasure_key


@dataclass(frozen=True)
class Completion:
    tables: Tables
    verifier: Callable[[], Verifier]
    records: ErasureRecords
    purge: Purge
    step: Callable[[str], None]

    def run(self, table: str, leaves: Sequence[tuple[int, Leaf]]) -> int:
        """Completes every erasure of the table that is not complete. Returns how many versions were deleted.

        Unverified, before anything is deleted, if the table does not verify without the erased rows, or if a record
        lists an object that is not the erasure's to delete.
        """
        version = self.tables.table_store.load(table)
        incomplete = self._incomplete(version.uuid, leaves)
        if not incomplete:
            return 0
        faults = self.verifier().verify_table(table)
        if faults:
            raise Unverified(
                f"without the erased rows, {table} does not verify, so nothing was deleted: {faults[0]}", subject=table
            )
        self.step("verified")
        version = self.tables.table_store.load(table)
        check_hold(version, "erased from")
        self._check_objects(version, incomplete)
        store, deleted = self.tables.table_store.io.store, 0
        for entry in (entry for erasure in incomplete for entry in erasure.objects):
            deleted += self.purge.objects([self.purge.key(entry.path)])
            store.forget(entry.path)
        self.step("purged")
        for folder in folders(version):
            deleted += self.purge.below(self.purge.key(folder), lambda each: not each.is_latest or each.is_marker)
        # Also those of attempts that failed.
        deleted += self.purge.below(erasure_key(version.uuid, ""), lambda each: each.key.endswith(KEYS_SUFFIX))
        for erasure in incomplete:
            done = erasure_key(version.uuid, erasure.id) + DONE_SUFFIX
            with translate_errors(done):
                self.purge.s3.put_object(Bucket=self.purge.bucket, Key=done, Body=b"{}", ContentType="application/json")
        self.step("done")
        return deleted

    def _incomplete(self, uuid: str, leaves: Sequence[tuple[int, Leaf]]) -> list[Erasure]:
        """The erasures that a leaf covers and that are not marked as complete: one LIST, a GET for each of them."""
        names = self.records.names(uuid)
        ids = [name for name in names if "." not in name and name + DONE_SUFFIX not in names]
        covered = {(leaf.content_root, leaf.content_count) for _, leaf in leaves if leaf.operation == ERASE}
        records = [self.records.load(uuid, id_) for id_ in ids]
        return [record for record in records if (record.content_root, record.content_count) in covered]

    def _check_objects(self, version: TableVersion, incomplete: Sequence[Erasure]) -> None:
        live = History.read(version, CommitIO(self.tables.table_store.io)).paths()
        own = folders(version)
        for entry in (entry for erasure in incomplete for entry in erasure.objects):
            if not entry.path.startswith(own):
                what = f"{entry.path} is not below the folders of {version.name}"
            elif entry.path in live:
                what = f"a snapshot of {version.name} refers to {entry.path}"
            else:
                continue
            raise Unverified(f"an erasure's record lists what is not its own, so nothing was deleted: {what}")
