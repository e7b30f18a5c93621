"""Binds table names to snapshots: every table of a query at one index of the timeline, with the schema it had then.

Snapshots and lists of files that this process has loaded before cost no request.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.core.errors import Invalid, NotFound, Unavailable, Unverified
from catalog.core.point_in_time import NamedSnapshot, PointInTime, SnapshotId, TimelineIndex
from catalog.iceberg import LiveFiles
from catalog.merkle.checkpoint import Checkpoint
from catalog.query.plan.file_statistics import FileStatistics
from catalog.query.scan.relations import Relation
from catalog.query.sql.statement import TableRef
from catalog.tables import Tables, TableVersion, named_snapshot_id
from catalog.timeline import AsOf, Cut, Leaf, MetadataFile, SignedHead, Timeline, cut_at, snapshot_at

MAX_CACHED_FILES = 200_000
MAX_CACHED_CUTS = 256
MAX_CACHED_SCHEMA_IDS = 1000
PARALLEL_LOADS = 8
_POLL_S = 0.02

TableKey = tuple[str, PointInTime | None]
"""A table's full name and the point in time of its own AS OF clause; None at the query's cut."""


class QueryCaller(Protocol):
    """Who sends the query. A table that the caller may not read is reported as one that does not exist."""

    @property
    def roles(self) -> tuple[Any, ...]: ...

    def readable(self, tables: Iterable[str]) -> list[str]: ...

    def writable(self, tables: Iterable[str]) -> list[str]: ...


@dataclass(frozen=True)
class BoundTable:
    """One table of the query. `proven` is the timeline's proof of its snapshot; None without one, as for `fresh`."""

    relation: Relation
    snapshot: Snapshot | None
    proven: AsOf | None


@dataclass(frozen=True)
class Binding:
    """All tables of the query. `index` is None when they are not at one cut, and then `fresh` is the reason."""

    index: int | None
    checkpoint: Checkpoint | None
    tables: dict[TableKey, BoundTable]
    names: dict[TableRef, str]
    fresh: str | None = None

    def of(self, ref: TableRef) -> BoundTable:
        return self.tables[self.names[ref], ref.as_of]


class Binder:
    """Resolves table names and points in time. Safe to share between threads.

    `published`: whether the bucket holds a checkpoint, which distinguishes a lost store from one never created.
    """

    def __init__(self, tables: Tables, timeline: Callable[[], Timeline], published: Callable[[], bool]) -> None:
        self._tables, self._timeline, self._published = tables, timeline, published
        self._statistics: OrderedDict[tuple[str, int], FileStatistics] = OrderedDict()
        self._schema_ids_by_location: dict[str, dict[str, int]] = {}
        self._cuts: dict[tuple[bytes, PointInTime, tuple[str, ...]], Cut] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(PARALLEL_LOADS, thread_name_prefix="binder")

    def bind(
        self, refs: Sequence[TableRef], as_of: PointInTime | None, fresh: bool, caller: QueryCaller | None
    ) -> Binding:
        """Binds every table reference, at the query's cut or at its own AS OF.

        NotFound suggests tables with similar names. With `fresh`, or while the timeline is empty, each table is read
        at its newest snapshot.
        """
        names = {ref: self._full_name(ref, caller) for ref in refs}
        keys = list(dict.fromkeys((names[ref], ref.as_of) for ref in refs))
        if fresh and as_of is not None:
            raise Invalid("fresh and as_of exclude each other: fresh reads each table at its newest snapshot")
        head, reason = (None, "fresh was requested") if fresh else self._head()
        if head is None:
            if as_of is not None and not fresh:
                raise NotFound(f"as of {as_of}: {reason}; wait until the table is sequenced, or leave as_of out")
            parallel_map = self._pool.map if len(keys) > 1 else map
            bound = parallel_map(lambda key: self._bind_without_cut(key, caller), keys)
            return Binding(None, None, dict(zip(keys, bound, strict=True)), names, reason)
        cut = self._cut([name for name, own_as_of in keys if own_as_of is None], as_of, head, caller)
        tables: dict[TableKey, BoundTable] = {}
        for name, own_as_of in keys:
            if own_as_of is None:
                tables[name, own_as_of] = self._bind_proven(name, cut.proven.get(name), cut.index, caller)
            else:
                tables[name, own_as_of] = self._bind_as_of(name, own_as_of, caller)
        return Binding(cut.index, head.checkpoint, tables, names)

    def find_table(self, ref: TableRef, caller: QueryCaller | None) -> TableVersion:
        """The table's newest version. NotFound if there is none, or none that the caller may read."""
        return self._load(self._full_name(ref, caller), caller)

    def readable(self, caller: QueryCaller | None) -> list[str]:
        """The names of all tables that the caller may read."""
        return self._readable(caller)

    def load_tables(self, names: Sequence[str]) -> list[TableVersion]:
        """The newest versions of the tables that still exist. One request for each."""

        def load(name: str) -> TableVersion | None:
            try:
                return self._tables.table_store.load(name)
            except NotFound:
                return None  # dropped meanwhile

        return [version for version in self._pool.map(load, names) if version is not None]

    def suggestions(self, name: str, caller: QueryCaller | None) -> list[str]:
        """Up to three readable tables with similar names."""
        tables = self._readable(caller)
        by_table_name = {full.partition(".")[2]: full for full in tables}
        table_name = name.partition(".")[2] or name
        similar = get_close_matches(name, tables, n=3, cutoff=0.6)
        similar += [by_table_name[match] for match in get_close_matches(table_name, by_table_name, n=3, cutoff=0.6)]
        return list(dict.fromkeys(similar))[:3]

    def _cut(
        self, names: Sequence[str], as_of: PointInTime | None, head: SignedHead, caller: QueryCaller | None
    ) -> Cut:
        """The tables at one index. A cut proven against the same checkpoint is cached."""
        if as_of is None:
            as_of = TimelineIndex(head.checkpoint.size - 1)
        if isinstance(as_of, NamedSnapshot):
            self._check_cut_name(names, as_of.name, caller)
        key = (head.note, as_of, tuple(names))
        cut = self._cuts.get(key)
        if cut is None:
            cut = cut_at(self._timeline(), names, as_of)
            if len(self._cuts) >= MAX_CACHED_CUTS:
                self._cuts = {}
            self._cuts[key] = cut
        return cut

    def _check_cut_name(self, names: Sequence[str], name: str, caller: QueryCaller | None) -> None:
        """Invalid when the name is a tag of one of the tables but does not name an index of the timeline."""
        for table in names:
            if self._named_snapshot_id(self._load(table, caller), name) is not None:
                try:
                    self._timeline().named(name)
                except NotFound:
                    raise Invalid(
                        f"{name!r} names a snapshot of {table}, not an index of the timeline: to read only that table "
                        f"at it, write FROM {table} AS OF '{name}'",
                        subject=table,
                    ) from None

    def _named_snapshot_id(self, version: TableVersion, name: str) -> int | None:
        """The snapshot that a tag or branch of the table names; Invalid if the timeline names another one so."""
        return named_snapshot_id(version.name, version.metadata.refs, name, partial(snapshot_at, self._timeline()))

    def wait_for_size(self, size: int, seconds: float) -> None:
        """Waits until this process's reader shows a timeline of that size. Unavailable if it does not in time."""
        deadline = time.monotonic() + seconds
        while (head := self._head()[0]) is None or head.checkpoint.size < size:
            if time.monotonic() > deadline:
                raise Unavailable(f"the timeline's reader has not reached size {size} in {seconds:g} s: try again")
            time.sleep(_POLL_S)

    def _head(self) -> tuple[SignedHead | None, str | None]:
        """The newest checkpoint, or why there is none."""
        try:
            return self._timeline().head(), None
        except NotFound:
            return None, "the timeline has no leaf yet"
        except Unverified:
            if self._published():
                raise
            return None, "the lake has no timeline yet"  # neither its store nor a checkpoint has been written

    def _bind_proven(self, name: str, proven: AsOf | None, index: int, caller: QueryCaller | None) -> BoundTable:
        if proven is None:
            self._load(name, caller)  # NotFound if the table does not exist at all
            raise NotFound(
                f"{name} is not in the timeline at index {index}: it may not be sequenced yet; wait, or query it "
                "with fresh",
                subject=name,
            )
        return self._bind_snapshot(name, proven.snapshot_id, proven)

    def _bind_as_of(self, name: str, as_of: PointInTime, caller: QueryCaller | None) -> BoundTable:
        version = self._load(name, caller)
        if isinstance(as_of, SnapshotId):
            return self._bind_snapshot(name, as_of.id, None)
        snapshot_id = self._named_snapshot_id(version, as_of.name) if isinstance(as_of, NamedSnapshot) else None
        if snapshot_id is not None:
            return self._bind_snapshot(name, snapshot_id, None)
        cut = cut_at(self._timeline(), [name], as_of)
        return self._bind_proven(name, cut.proven.get(name), cut.index, caller)

    def _bind_without_cut(self, key: TableKey, caller: QueryCaller | None) -> BoundTable:
        """Binds to the table's newest snapshot, or to the tag or snapshot id of its own AS OF clause."""
        name, as_of = key
        version = self._load(name, caller)
        if as_of is None:
            return self._bound_table(version, version.metadata.current_snapshot(), version.schema, None)
        if isinstance(as_of, SnapshotId):
            return self._bind_snapshot(name, as_of.id, None)
        if isinstance(as_of, NamedSnapshot) and as_of.name in version.metadata.refs:
            head, _ = self._head()
            ref = version.metadata.refs[as_of.name]
            return self._bind_snapshot(
                name, ref.snapshot_id if head is None else self._named_snapshot_id(version, as_of.name), None
            )
        raise NotFound(
            f"{name} as of {as_of} needs the timeline, and nothing is sequenced yet: wait, or leave AS OF out",
            subject=name,
        )

    def _bind_snapshot(self, name: str, snapshot_id: int | None, proven: AsOf | None) -> BoundTable:
        version = self._tables.table_store.cached(name)
        leaf = self._leaf_of(name, snapshot_id) if proven is None else proven.stated
        match = self._find(version, snapshot_id, proven, leaf)
        if match is None:
            version = self._tables.table_store.load(name)
            match = self._find(version, snapshot_id, proven, leaf)
        if match is None:
            raise NotFound(
                f"{name} no longer has snapshot {snapshot_id}: it expired, or the table was dropped and created again; "
                "query a later point in time",
                subject=name,
            )
        return self._bound_table(version, match[0], match[1], proven)

    def _leaf_of(self, name: str, snapshot_id: int | None) -> Leaf | None:
        """The proven leaf that added the snapshot; None if it is not sequenced yet. Costs a few reads."""
        if snapshot_id is None or self._head()[0] is None:
            return None
        try:
            index, _ = self._timeline().find(snapshot_id, name)
        except (NotFound, Invalid):
            return None  # a verified query refuses the snapshot's objects then
        leaf = self._timeline().commit(index)
        return leaf if (leaf.table, leaf.snapshot_id) == (name, snapshot_id) else None

    def _find(
        self, version: TableVersion, snapshot_id: int | None, proven: AsOf | None, leaf: Leaf | None
    ) -> tuple[Snapshot | None, Schema] | None:
        """The snapshot and its schema in this table version; None if the version does not have them.

        Values are read by field id, so the schema says which column is which: it is the one whose digest the leaf has,
        not the one that the metadata file names.
        """
        metadata = version.metadata
        snapshot = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
        if (snapshot is None) != (snapshot_id is None) or (proven is not None and proven.table_uuid != version.uuid):
            return None
        if leaf is not None:
            digest = leaf.schema_sha256
            if digest is not None:
                schema_id = self._schema_ids(version).get(digest)
                return None if schema_id is None else (snapshot, _schema(metadata, schema_id))
        schema_id = snapshot.schema_id if snapshot is not None and snapshot.schema_id is not None else None
        return snapshot, _schema(metadata, metadata.current_schema_id if schema_id is None else schema_id)

    def _schema_ids(self, version: TableVersion) -> dict[str, int]:
        """The ids of a metadata file's schemas, by the schema digest that leaves state."""
        ids = self._schema_ids_by_location.get(version.location)
        if ids is None:
            metadata = MetadataFile.read(version.location, self._tables.table_store.io)
            ids = {digest: schema_id for schema_id, digest in metadata.schemas.items()}
            if len(self._schema_ids_by_location) > MAX_CACHED_SCHEMA_IDS:
                self._schema_ids_by_location = {}
            self._schema_ids_by_location[version.location] = ids
        return ids

    def _bound_table(
        self, version: TableVersion, snapshot: Snapshot | None, schema: Schema, proven: AsOf | None
    ) -> BoundTable:
        statistics = self._file_statistics(version, snapshot)
        snapshot_id = snapshot.snapshot_id if snapshot else None
        return BoundTable(Relation(version.name, version.metadata, schema, snapshot_id, statistics), snapshot, proven)

    def _file_statistics(self, version: TableVersion, snapshot: Snapshot | None) -> FileStatistics:
        key = (version.uuid, snapshot.snapshot_id if snapshot else 0)
        with self._lock:
            if key in self._statistics:
                self._statistics.move_to_end(key)
                return self._statistics[key]
        live = LiveFiles.of(self._tables.table_store.io, self._tables.committer.manifests, snapshot, version.name)
        statistics = FileStatistics(live.data, live.manifests, version.metadata.specs())
        with self._lock:
            self._statistics[key] = statistics
            while sum(map(len, self._statistics.values())) > MAX_CACHED_FILES and len(self._statistics) > 1:
                self._statistics.popitem(last=False)
        return statistics

    def _full_name(self, ref: TableRef, caller: QueryCaller | None) -> str:
        if ref.database is not None:
            name = f"{ref.database}.{ref.table}"
            if caller is None or caller.readable([name]):
                return name
            raise self._table_not_found(name, caller)
        matches = [full for full in self._readable(caller) if full.partition(".")[2] == ref.table]
        if len(matches) > 1:
            raise Invalid(f"{ref.table} is in several databases: write {' or '.join(sorted(matches))}")
        if not matches:
            raise self._table_not_found(ref.table, caller)
        return matches[0]

    def _load(self, name: str, caller: QueryCaller | None) -> TableVersion:
        try:
            return self._tables.table_store.load(name)
        except NotFound:
            raise self._table_not_found(name, caller) from None

    def _table_not_found(self, name: str, caller: QueryCaller | None) -> NotFound:
        similar = self.suggestions(name, caller)
        hint = f": did you mean {' or '.join(similar)}?" if similar else ": `strandline table list` lists the tables"
        qualifier = ", or none that you may read" if caller is not None else ""
        return NotFound(f"there is no table {name}{qualifier}{hint}", subject=name)

    def _readable(self, caller: QueryCaller | None) -> list[str]:
        tables = self._tables.list()
        return tables if caller is None else caller.readable(tables)


def _schema(metadata: TableMetadata, schema_id: int) -> Schema:
    return next(schema for schema in metadata.schemas if schema.schema_id == schema_id)
