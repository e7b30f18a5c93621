"""Versions of a table's metadata, and the one step that makes the next: Glue's compare-and-swap.

`Catalogue.commit` sends one metadata file and one UpdateTable. It copies no metadata and writes each snapshot's
JSON once per process, so a commit costs the same with ten snapshots as with ten thousand.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog.glue import GlueCatalog, _construct_table_input
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from catalog.errors import Invalid, LakeError, NotFound, Unavailable
from catalog.refusals import explain, explained
from catalog.tables.fileio import CommitIO, ObjectIO

logger = logging.getLogger(__name__)

KEPT_METADATA = 64
KEPT_JSON = 20_000
LOADS = 3


class Lost(Exception):
    """The compare-and-swap did not take this commit. `certain`: it never will, so its files may be deleted.

    Not certain means that no answer came and the commit is not to be seen: the request may still be under way.
    Planning again is safe either way, because two requests for one version cannot both win.
    """

    def __init__(self, table: str, *, certain: bool, location: str, added: set[int]) -> None:
        super().__init__(table)
        self.certain = certain
        self._location, self._added = location, added

    def landed_in(self, version: Version) -> bool:
        """Whether the commit is in the table's history after all: by its metadata file or its snapshot."""
        seen = {version.location, *(log.metadata_file for log in version.metadata.metadata_log)}
        return self._location in seen or any(version.metadata.snapshot_by_id(added) for added in self._added)


@dataclass(frozen=True)
class Version:
    """A table as its catalog pointed to it at one moment. `entry` is Glue's own record, with its VersionId."""

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
        """What rows must fit: the same schema id means another schema in a table made anew under the name."""
        return self.uuid, self.metadata.current_schema_id

    def head(self, branch: str = MAIN_BRANCH) -> Snapshot | None:
        """The branch's newest snapshot; main's while the branch does not exist."""
        return self.metadata.snapshot_by_name(branch) or self.metadata.current_snapshot()

    def paths(self) -> LocationProvider:
        return load_location_provider(self.metadata.location, self.properties)


class Catalogue:
    """The Glue catalog as the tables use it. Safe to share between threads."""

    def __init__(self, catalog: GlueCatalog) -> None:
        self.catalog = catalog
        self.io = ObjectIO(catalog.properties)
        self._known: dict[str, Version] = {}
        self._metadata: OrderedDict[str, TableMetadata] = OrderedDict()
        self._json: OrderedDict[tuple[str, int, int | None], str] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, name: str) -> Version:
        """The table as it is now: one GetTable, and one GET if its metadata file was not seen before."""
        for _ in range(LOADS):
            try:
                return self._load(name)
            except FileNotFoundError:
                # Deleted between GetTable and GET: somebody committed more often than old metadata is kept.
                continue
        raise Unavailable(f"the metadata of {name} moves faster than it can be read: try again", subject=name)

    def _load(self, name: str) -> Version:
        database, table = split_name(name)
        try:
            with explained(name):
                entry = self.catalog._get_glue_table(database_name=database, table_name=table)
                location = entry.get("Parameters", {}).get("metadata_location")
                if not location:
                    raise NotFound(f"{name} is in the catalog, but is no Iceberg table", subject=name)
                version = Version(name, self._read_metadata(location), location, dict(entry))
                self._known[name] = version
                return version
        except (NoSuchTableError, NoSuchNamespaceError):
            raise NotFound(f"there is no table {name}: create it first", subject=name) from None

    def known(self, name: str) -> Version:
        """The table as this process last saw it, without a request; good enough to check rows against early."""
        return self._known.get(name) or self.load(name)

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def table(self, version: Version) -> Table:
        """The version as pyiceberg's own Table, for reading."""
        return Table(split_name(version.name), version.metadata, version.location, self.io, self.catalog)

    def commit(self, version: Version, updates: Sequence[TableUpdate], io: CommitIO) -> Version:
        """Makes the next version, or raises Lost. Two requests, and two more when it must look what happened.

        A crash before UpdateTable leaves objects nobody refers to; a crash after it leaves a finished commit.
        """
        metadata = self._applied(version, updates)
        number = self.catalog._parse_metadata_version(version.location) + 1
        location = version.paths().new_table_metadata_file_location(number)
        io.send(location, self._encoded(metadata))
        database, table = split_name(version.name)
        entry = _construct_table_input(
            table_name=table,
            metadata_location=location,
            properties=metadata.properties,
            metadata=metadata,
            glue_table={**version.entry, "Parameters": dict(version.entry["Parameters"])},  # type: ignore[arg-type]
            prev_metadata_location=version.location,
        )
        with explained(version.name):
            io.settle()
        io.published = True
        try:
            self.catalog.glue.update_table(
                DatabaseName=database,
                TableInput=entry,
                SkipArchive=True,
                VersionId=version.entry["VersionId"],
            )
        except (ClientError, BotoCoreError) as error:
            self._look(
                version,
                location,
                {u.snapshot.snapshot_id for u in updates if isinstance(u, AddSnapshotUpdate)},
                error,
            )
        self._keep(location, metadata)
        self._delete_old(version, metadata)
        committed = self._known[version.name] = Version(version.name, metadata, location, {})
        return committed

    def _look(self, version: Version, location: str, added: set[int], error: ClientError | BotoCoreError) -> None:
        """Returns if the commit did land. The SDK repeats requests whose answer is lost, so even a refusal for
        a stale version may be the echo of our own success.
        """
        refused = isinstance(error, ClientError) and error.response["Error"]["Code"] in (
            "ConcurrentModificationException",
            "EntityNotFoundException",
        )
        try:
            now = self.load(version.name)
        except NotFound:
            raise
        except LakeError as unseen:
            raise Unavailable(
                f"{version.name}: a commit was sent and no answer came, nor can the table be read: whether it "
                "landed is unknown; repeat the call with the same token, which writes once at most",
                subject=version.name,
            ) from unseen
        lost = Lost(version.name, certain=refused, location=location, added=added)
        if lost.landed_in(now):
            logger.info("a commit landed although its answer was lost", extra={"table": version.name})
            return
        if (
            not refused
            and isinstance(error, ClientError)
            and error.response["ResponseMetadata"]["HTTPStatusCode"] < 500
        ):
            raise explain(error, version.name) from error
        raise lost from error

    def _applied(self, version: Version, updates: Sequence[TableUpdate]) -> TableMetadata:
        metadata, context = version.metadata, _TableMetadataUpdateContext()
        for update in updates:
            metadata = _apply_table_update(update, metadata, context)
        log = [*metadata.metadata_log, _log_entry(version)]
        keep = int(version.properties.get("write.metadata.previous-versions-max", 100))
        # Trimmed by half when it is twice as long, so that old files are deleted many to the request.
        log = log[-keep:] if len(log) >= 2 * keep else log
        changed: dict[str, Any] = {"metadata_log": log}
        if metadata.last_updated_ms == version.metadata.last_updated_ms:
            changed["last_updated_ms"] = version.metadata.last_updated_ms + 1
        return metadata.model_copy(update=changed)

    def _encoded(self, metadata: TableMetadata) -> bytes:
        """The metadata file. A snapshot never changes but for its parent's expiry, so its JSON is kept."""
        uuid = str(metadata.table_uuid)
        parts = [self._snapshot_json(uuid, snapshot) for snapshot in metadata.snapshots]
        rest = metadata.model_copy(update={"snapshots": []}).model_dump_json(exclude_none=True)
        # Inside a JSON string the quotes would be escaped: the text below can only be the field itself.
        return rest.replace('"snapshots":[]', f'"snapshots":[{",".join(parts)}]', 1).encode()

    def _snapshot_json(self, uuid: str, snapshot: Snapshot) -> str:
        key = (uuid, snapshot.snapshot_id, snapshot.parent_snapshot_id)
        found = self._json.get(key)
        if found is None:
            found = snapshot.model_dump_json(exclude_none=True)
            with self._lock:
                self._json[key] = found
                if len(self._json) > KEPT_JSON:
                    self._json.popitem(last=False)
        return found

    def _read_metadata(self, location: str) -> TableMetadata:
        with self._lock:
            if location in self._metadata:
                self._metadata.move_to_end(location)
                return self._metadata[location]
        metadata = FromInputFile.table_metadata(self.io.new_input(location))
        self._keep(location, metadata)
        return metadata

    def _keep(self, location: str, metadata: TableMetadata) -> None:
        with self._lock:
            self._metadata[location] = metadata
            if len(self._metadata) > KEPT_METADATA:
                self._metadata.popitem(last=False)

    def _delete_old(self, version: Version, metadata: TableMetadata) -> None:
        """Best effort: the commit stands already, and a metadata file too many harms nobody."""
        if version.properties.get("write.metadata.delete-after-commit.enabled") != "true":
            return
        kept = {log.metadata_file for log in metadata.metadata_log}
        gone = [log.metadata_file for log in version.metadata.metadata_log if log.metadata_file not in kept]
        try:
            if gone:
                self.io.store.delete(gone)
        except (ClientError, BotoCoreError) as error:
            logger.warning("old metadata stays", extra={"table": version.name, "error": str(error)})


def _log_entry(version: Version) -> MetadataLogEntry:
    return MetadataLogEntry(metadata_file=version.location, timestamp_ms=version.metadata.last_updated_ms)


def split_name(name: str) -> tuple[str, str]:
    """`sales.orders` -> database and table."""
    database, dot, table = name.partition(".")
    if not (database and dot and table) or "." in table:
        raise Invalid(f"{name!r} is no table name: write <database>.<table>", subject=name)
    return database, table
