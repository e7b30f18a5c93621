"""Table versions, and the step from one to the next: Glue's compare-and-swap.

`GlueTableStore.commit` sends one metadata file and one UpdateTable. It makes no deep copy of the metadata and encodes
each snapshot once per process, so a commit costs the same with ten snapshots as with ten thousand.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

from catalog.core.aws_errors import is_missing, lost_race, translate_aws_error, translate_aws_errors
from catalog.core.errors import Invalid, LakeError, NotFound, Unavailable
from catalog.iceberg import (
    CommitIO,
    ObjectIO,
    apply_updates,
    get_glue_table,
    glue_table_input,
    metadata_file_number,
)

logger = logging.getLogger(__name__)

CACHED_METADATA = 64
CACHED_SNAPSHOT_JSON = 20_000
LOAD_ATTEMPTS = 3


class CommitLost(Exception):
    """The compare-and-swap did not accept this commit. `certain`: it never will, so its files may be deleted.

    Not certain: no response came and the table does not have the commit, but the request may still be under way.
    Planning again is safe either way, because of two requests for one version at most one succeeds.
    """

    def __init__(self, table: str, *, certain: bool, location: str, added: set[int]) -> None:
        super().__init__(table)
        self.certain = certain
        self._location, self._added = location, added

    def is_in(self, version: TableVersion) -> bool:
        """Whether the table's history has the commit after all: its metadata file or its snapshot."""
        locations = {version.location, *(log.metadata_file for log in version.metadata.metadata_log)}
        return self._location in locations or any(version.metadata.snapshot_by_id(added) for added in self._added)


@dataclass(frozen=True)
class TableVersion:
    """A table as its catalog entry pointed to it at one moment: the metadata file at `location`.

    `entry` is Glue's own record, with its VersionId; empty for a version that was just committed or is not registered.
    """

    name: str
    metadata: TableMetadata
    location: str
    entry: dict[str, Any]

    @property
    def schema(self) -> Schema:
        return self.metadata.schema()

    @property
    def properties(self) -> dict[str, str]:
        return self.metadata.properties

    @property
    def uuid(self) -> str:
        return str(self.metadata.table_uuid)

    @property
    def shape(self) -> tuple[str, int]:
        """Identifies the schema: its id, and the table's uuid, because a new table of the same name reuses ids."""
        return self.uuid, self.metadata.current_schema_id

    def head(self, branch: str = MAIN_BRANCH) -> Snapshot | None:
        """The branch's newest snapshot; main's if the branch does not exist."""
        return self.metadata.snapshot_by_name(branch) or self.metadata.current_snapshot()

    def paths(self) -> LocationProvider:
        return load_location_provider(self.metadata.location, self.properties)


class GlueTableStore:
    """Loads and commits table versions in the Glue catalog. Safe to share between threads."""

    def __init__(self, catalog: GlueCatalog) -> None:
        self.catalog = catalog
        self.io = ObjectIO(catalog.properties)
        self._versions: dict[str, TableVersion] = {}
        self._metadata: OrderedDict[str, TableMetadata] = OrderedDict()
        self._snapshot_json: OrderedDict[tuple[str, int, int | None, str], str] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, name: str) -> TableVersion:
        """The table as it is now: one GetTable, and one GET if its metadata file is not cached."""
        for _ in range(LOAD_ATTEMPTS):
            try:
                return self._load(name)
            except FileNotFoundError:
                # Deleted between GetTable and GET, by as many commits as old metadata files are kept for.
                continue
        raise Unavailable(f"the metadata of {name} changes faster than it can be read: try again", subject=name)

    def _load(self, name: str) -> TableVersion:
        database, table = split_name(name)
        try:
            with translate_aws_errors(name):
                entry = get_glue_table(self.catalog, database, table)
                location = entry.get("Parameters", {}).get("metadata_location")
                if not location:
                    raise NotFound(f"{name} is in the catalog, but is not an Iceberg table", subject=name)
                version = TableVersion(name, self._read_metadata(location), location, entry)
                self._versions[name] = version
                return version
        except (NoSuchTableError, NoSuchNamespaceError):
            raise NotFound(f"there is no table {name}: create it first", subject=name) from None

    def cached(self, name: str) -> TableVersion:
        """The table as this process last loaded or committed it, without a request; for early checks only."""
        return self._versions.get(name) or self.load(name)

    def forget(self, name: str) -> None:
        self._versions.pop(name, None)

    def table(self, version: TableVersion) -> Table:
        """The version as pyiceberg's own Table, for readers."""
        return Table(split_name(version.name), version.metadata, version.location, self.io, self.catalog)

    def commit(self, version: TableVersion, updates: Sequence[TableUpdate], io: CommitIO) -> TableVersion:
        """Commits the next version, or raises CommitLost. Two requests, and two more to read the table after an error.

        A crash before UpdateTable leaves objects that nothing refers to; a crash after it leaves a finished commit.
        """
        metadata = self._next_metadata(version, updates)
        number = metadata_file_number(self.catalog, version.location) + 1
        location = version.paths().new_table_metadata_file_location(number)
        io.send(location, self._encode(metadata))
        database, table = split_name(version.name)
        entry = glue_table_input(
            table_name=table,
            metadata_location=location,
            properties=metadata.properties,
            metadata=metadata,
            glue_table={**version.entry, "Parameters": dict(version.entry["Parameters"])},  # type: ignore[arg-type]
            prev_metadata_location=version.location,
        )
        with translate_aws_errors(version.name):
            io.publish()
        try:
            self.catalog.glue.update_table(
                DatabaseName=database,
                TableInput=entry,
                SkipArchive=True,
                VersionId=version.entry["VersionId"],
            )
        except (ClientError, BotoCoreError) as error:
            added = {u.snapshot.snapshot_id for u in updates if isinstance(u, AddSnapshotUpdate)}
            self._check_committed(version, location, added, error)
        self._cache_metadata(location, metadata)
        self._delete_old(version, metadata)
        committed = self._versions[version.name] = TableVersion(version.name, metadata, location, {})
        return committed

    def _check_committed(
        self, version: TableVersion, location: str, added: set[int], error: ClientError | BotoCoreError
    ) -> None:
        """Returns if the commit succeeded despite the error. The SDK repeats a request whose response was lost, so
        even an error for a stale VersionId may follow our own success.
        """
        refused = lost_race(error) or is_missing(error)
        try:
            current = self.load(version.name)
        except NotFound:
            raise
        except LakeError as load_error:
            raise Unavailable(
                f"{version.name}: a commit was sent, no response came, and the table cannot be read, so whether it "
                "succeeded is unknown: repeat the call with the same token, which commits at most once",
                subject=version.name,
            ) from load_error
        lost = CommitLost(version.name, certain=refused, location=location, added=added)
        if lost.is_in(current):
            logger.info("a commit succeeded although its response was lost", extra={"table": version.name})
            return
        if (
            not refused
            and isinstance(error, ClientError)
            and error.response["ResponseMetadata"]["HTTPStatusCode"] < 500
        ):
            raise translate_aws_error(error, version.name) from error
        raise lost from error

    def _next_metadata(self, version: TableVersion, updates: Sequence[TableUpdate]) -> TableMetadata:
        metadata = apply_updates(version.metadata, updates)
        log = [*metadata.metadata_log, _log_entry(version)]
        keep = int(version.properties.get("write.metadata.previous-versions-max", 100))
        # Halved when it is twice as long as it may be, so that many old files are deleted in one request.
        log = log[-keep:] if len(log) >= 2 * keep else log
        changed: dict[str, Any] = {"metadata_log": log}
        if metadata.last_updated_ms == version.metadata.last_updated_ms:
            changed["last_updated_ms"] = version.metadata.last_updated_ms + 1
        return metadata.model_copy(update=changed)

    def _encode(self, metadata: TableMetadata) -> bytes:
        """The metadata file's bytes. A snapshot changes only when its parent expires, so its JSON is cached."""
        uuid = str(metadata.table_uuid)
        snapshots = [self._encode_snapshot(uuid, snapshot) for snapshot in metadata.snapshots]
        document = metadata.model_copy(update={"snapshots": []}).model_dump_json(exclude_none=True)
        # Quotes inside a JSON string are escaped, so this text can only be the field itself.
        return document.replace('"snapshots":[]', f'"snapshots":[{",".join(snapshots)}]', 1).encode()

    def _encode_snapshot(self, uuid: str, snapshot: Snapshot) -> str:
        # With its manifest list: a transaction that stages again after a lost race uses the same id.
        key = (uuid, snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.manifest_list)
        document = self._snapshot_json.get(key)
        if document is None:
            document = snapshot.model_dump_json(exclude_none=True)
            with self._lock:
                self._snapshot_json[key] = document
                if len(self._snapshot_json) > CACHED_SNAPSHOT_JSON:
                    self._snapshot_json.popitem(last=False)
        return document

    def _read_metadata(self, location: str) -> TableMetadata:
        with self._lock:
            if location in self._metadata:
                self._metadata.move_to_end(location)
                return self._metadata[location]
        metadata = FromInputFile.table_metadata(self.io.new_input(location))
        self._cache_metadata(location, metadata)
        return metadata

    def _cache_metadata(self, location: str, metadata: TableMetadata) -> None:
        with self._lock:
            self._metadata[location] = metadata
            if len(self._metadata) > CACHED_METADATA:
                self._metadata.popitem(last=False)

    def _delete_old(self, version: TableVersion, metadata: TableMetadata) -> None:
        """Deletes metadata files that left the log. Best effort: the commit is done, and a file left does no harm."""
        if version.properties.get("write.metadata.delete-after-commit.enabled") != "true":
            return
        kept = {log.metadata_file for log in metadata.metadata_log}
        old = [log.metadata_file for log in version.metadata.metadata_log if log.metadata_file not in kept]
        try:
            if old:
                self.io.store.delete(old)
        except (ClientError, BotoCoreError) as error:
            logger.warning("old metadata files remain", extra={"table": version.name, "error": str(error)})


def _log_entry(version: TableVersion) -> MetadataLogEntry:
    return MetadataLogEntry(metadata_file=version.location, timestamp_ms=version.metadata.last_updated_ms)


def split_name(name: str) -> tuple[str, str]:
    """`sales.orders` -> database and table."""
    database, dot, table = name.partition(".")
    if not (database and dot and table) or "." in table:
        raise Invalid(f"{name!r} is not a table name: write <database>.<table>", subject=name)
    return database, table
