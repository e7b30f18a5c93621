"""What else may hold erased rows: files that nothing refers to, landed files, results, vector tables. Deletes for good.

Where it cannot be told whether something holds them, or whether it is still needed, it is named and stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog.core import s3_layout
from catalog.core.aws_errors import translate_errors
from catalog.core.errors import NotFound
from catalog.core.events import TableMoved
from catalog.core.sequencer_queue import SequencerQueue
from catalog.erasure.landed_files import LandedFiles
from catalog.erasure.preconditions import folders
from catalog.erasure.purge import ObjectVersion, Purge
from catalog.iceberg import CommitIO
from catalog.tables import History, Tables, TableVersion
from catalog.timeline import vector_table_name

ORPHAN_AGE = timedelta(days=1)
"""Younger objects that nothing refers to may belong to a commit that is being made: no job of the lake runs longer."""


@dataclass
class Deleted:
    """How many versions of objects were deleted; the vector tables that were removed; places to look at."""

    versions: int = 0
    vectors: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Leftovers:
    """`queue`: the sequencer's, which learns of vector tables that were removed."""

    tables: Tables
    purge: Purge
    queue: SequencerQueue | None = None

    def delete(self, table: str, keys: Sequence[Mapping[str, Any]]) -> Deleted:
        """`keys`: of the rows; without them nothing can be told about landed files, and all of them are named."""
        version, deleted = self.tables.table_store.load(table), Deleted()
        self._delete_orphans(version, deleted)
        deleted.versions += self.purge.below(s3_layout.RESULTS)
        hint = schema_to_pyarrow(version.schema, include_field_ids=False)
        versions, remains = LandedFiles(self.purge).erase(table, keys, hint)
        deleted.versions += versions
        deleted.remains += remains
        for name in self._vector_tables(table):
            deleted.remains += self._how_to_create(name)
            # The head first: without it there is no such table, whatever a crash leaves of it.
            deleted.versions += self.purge.objects([f"{s3_layout.VECTORS}{name}.json"])
            deleted.versions += self.purge.below(f"{s3_layout.VECTORS}{name}.lance/")
            if self.queue is not None and self.queue.exists:
                self.queue.send(TableMoved(table=vector_table_name(name)))
            deleted.vectors.append(name)
        return deleted

    def _delete_orphans(self, version: TableVersion, deleted: Deleted) -> None:
        """Data files, manifests and lists of commits that failed. The newest are kept, and named."""
        live = History.read(version, CommitIO(self.tables.table_store.io)).paths()
        keys, before = {self.purge.key(path) for path in live}, datetime.now(UTC) - ORPHAN_AGE

        def is_orphan(each: ObjectVersion) -> bool:
            return each.key not in keys and each.key.endswith((".parquet", ".avro", ".orc", ".puffin"))

        listed = {each: None for folder in folders(version) for each in self.purge.versions(self.purge.key(folder))}
        orphans = [each for each in listed if is_orphan(each)]
        deleted.remains += [
            f"s3://{self.purge.bucket}/{each.key}: nothing refers to it, but it may belong to a commit that is being "
            "made: run the command again tomorrow"
            for each in orphans
            if each.modified > before
        ]
        deleted.versions += self.purge.delete(each for each in orphans if each.modified <= before)

    def _how_to_create(self, name: str) -> list[str]:
        """The command that makes a vector table again as it is; none without a head that says so."""
        key = f"{s3_layout.VECTORS}{name}.json"
        try:
            with translate_errors(key):
                head = json.loads(self.purge.s3.get_object(Bucket=self.purge.bucket, Key=key)["Body"].read())
            columns = "".join(f" --column {column}" for column in head["columns"])
            named = f"{head['table']} {head['column']}{columns} --embedder {head['embedder']}"
        except (NotFound, ValueError, KeyError, TypeError):
            return []
        return [f"the vector table {name} is removed: make it again with `strandline vectors create {named}`"]

    def _vector_tables(self, table: str) -> list[str]:
        prefix = f"{s3_layout.VECTORS}{table}."
        keys = {each.key for each in self.purge.versions(prefix)}
        names = {key.removeprefix(s3_layout.VECTORS).split("/")[0] for key in keys}
        return sorted({name.removesuffix(".json").removesuffix(".lance") for name in names})
