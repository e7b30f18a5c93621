"""From names to tables: every table of a query at one index of the timeline, under the schema it had there.

A snapshot that this process has seen is found without a request; so is its list of files.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Protocol

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import Invalid, NotFound, Unverified
from catalog.merkle.checkpoint import Checkpoint
from catalog.query.inventory import Inventory
from catalog.query.relations import Relation
from catalog.query.statement import AsOf, TableRef
from catalog.tables.live import LiveFiles
from catalog.tables.manager import Tables
from catalog.tables.versions import Version
from catalog.timeline.leaf import Leaf
from catalog.timeline.moves import MetadataFile
from catalog.timeline.proofs import AsOf as Proven
from catalog.timeline.proofs import Cut, SignedHead, Timeline

KEPT_FILES = 200_000
KEPT_CUTS = 256
LOADS = 8
# Snapshot ids are random 63-bit numbers; no timeline will have this many leaves.
_MOST_LEAVES = 10**15

Key = tuple[str, AsOf | None]
"""A table's full name and the version that this mention of it asks for, if it asks for one of its own."""


class Caller(Protocol):
    """Who asks. Whoever may not read a table is told what is told of one that does not exist."""

    @property
    def roles(self) -> tuple[Any, ...]: ...

    def readable(self, tables: Iterable[str]) -> list[str]: ...


@dataclass(frozen=True)
class Bound:
    """One table of the query. `proven` is the timeline's evidence for its snapshot; None when it was read fresh."""

    relation: Relation
    snapshot: Snapshot | None
    proven: Proven | None


@dataclass(frozen=True)
class Binding:
    """All tables of the query. `index` is None, with the reason, when they were not taken from one cut."""

    index: int | None
    checkpoint: Checkpoint | None
    tables: dict[Key, Bound]
    names: dict[TableRef, str]
    fresh: str | None = None

    def of(self, ref: TableRef) -> Bound:
        return self.tables[self.names[ref], ref.as_of]


class Binder:
    """Resolves names and versions. Safe to share between threads.

    `published`: whether the bucket holds a checkpoint, so that a lost store is told from one never made.
    """

    def __init__(self, tables: Tables, timeline: Callable[[], Timeline], published: Callable[[], bool]) -> None:
        self._tables, self._timeline, self._published = tables, timeline, published
        self._kept: OrderedDict[tuple[str, int], Inventory] = OrderedDict()
        self._hashes: dict[str, dict[str, int]] = {}
        self._cuts: dict[tuple[bytes, AsOf | None, tuple[str, ...]], Cut] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(LOADS, thread_name_prefix="binder")

    def bind(self, refs: Sequence[TableRef], as_of: AsOf | None, fresh: bool, caller: Caller | None) -> Binding:
        """Every mention of a table, at the query's cut or at its own version.

        NotFound names the tables that are near what was asked. With `fresh`, or while the timeline is empty, each
        table is read at its own newest snapshot.
        """
        names = {ref: self._full_name(ref, caller) for ref in refs}
        wanted = {(names[ref], ref.as_of): ref for ref in refs}
        if fresh and as_of is not None:
            raise Invalid("fresh and as_of exclude each other: fresh is each table's own newest state")
        head, reason = (None, "asked for") if fresh else self._head()
        if head is None:
            if as_of is not None and not fresh:
                raise NotFound(f"as of {as_of}: {reason}")
            side_by_side = self._pool.map if len(wanted) > 1 else map
            bounds = side_by_side(lambda key: self._apart(key, caller), wanted)
            tables = dict(zip(wanted, bounds, strict=True))
            return Binding(None, None, tables, names, reason)
        cut = self._cut([name for name, own in wanted if own is None], as_of, head)
        found: dict[Key, Bound] = {}
        for name, own in wanted:
            if own is None:
                found[name, own] = self._at(name, cut.proven.get(name), cut.index, caller)
            else:
                found[name, own] = self._versioned(name, own, caller)
        return Binding(cut.index, head.checkpoint, found, names)

    def suggestions(self, name: str, caller: Caller | None) -> list[str]:
        there = self._readable(caller)
        bare = {full.partition(".")[2]: full for full in there}
        near = get_close_matches(name, there, n=3, cutoff=0.6)
        near += [bare[found] for found in get_close_matches(name.partition(".")[2] or name, bare, n=3, cutoff=0.6)]
        return list(dict.fromkeys(near))[:3]

    def _cut(self, names: Sequence[str], as_of: AsOf | None, head: SignedHead) -> Cut:
        """The tables at one index. What was proven against this very checkpoint is not proven again."""
        if as_of is None:
            as_of = head.checkpoint.size - 1
        key = (head.note, as_of, tuple(names))
        found = self._cuts.get(key)
        if found is None:
            found = self._prove(names, as_of)
            if len(self._cuts) >= KEPT_CUTS:
                self._cuts = {}
            self._cuts[key] = found
        return found

    def _prove(self, names: Sequence[str], as_of: AsOf | None) -> Cut:
        timeline = self._timeline()
        if isinstance(as_of, datetime):
            return timeline.cut(names, time_ms=int(as_of.timestamp() * 1000))
        if isinstance(as_of, str):
            return timeline.cut(names, name=as_of)
        if as_of is not None and as_of >= _MOST_LEAVES:
            raise Invalid(f"{as_of} is a snapshot of one table: write it as `FROM t VERSION AS OF {as_of}`")
        return timeline.cut(names, index=as_of)

    def _head(self) -> tuple[SignedHead | None, str | None]:
        """The newest checkpoint, or why there is none."""
        try:
            return self._timeline().head(), None
        except NotFound:
            return None, "the timeline has no leaf yet"
        except Unverified:
            if self._published():
                raise
            return None, "the lake has no timeline yet"  # neither its store nor a checkpoint was ever written

    def _at(self, name: str, proven: Proven | None, index: int, caller: Caller | None) -> Bound:
        if proven is None:
            self._load(name, caller)  # NotFound, if there is none at all
            raise NotFound(
                f"{name} was not in the timeline at index {index}: it may not be sequenced yet; wait for that, or "
                "ask for it fresh",
                subject=name,
            )
        return self._bound(name, proven.snapshot_id, proven)

    def _versioned(self, name: str, own: AsOf, caller: Caller | None) -> Bound:
        version = self._load(name, caller)
        timeline = self._timeline()
        if isinstance(own, datetime):
            return self._bound_to(name, timeline.as_of(name, time_ms=int(own.timestamp() * 1000)))
        if isinstance(own, str):
            tagged = version.metadata.refs.get(own)
            if tagged is not None:
                return self._bound(name, tagged.snapshot_id, None)
            cut = timeline.cut([name], name=own)
            return self._at(name, cut.proven.get(name), cut.index, caller)
        if own >= _MOST_LEAVES:
            return self._bound(name, own, None)
        return self._bound_to(name, timeline.as_of(name, index=own))

    def _bound_to(self, name: str, proven: Proven) -> Bound:
        return self._bound(name, proven.snapshot_id, proven)

    def _apart(self, key: Key, caller: Caller | None) -> Bound:
        """Without a cut: the table's own newest snapshot, or its own version by tag or snapshot id."""
        name, own = key
        version = self._load(name, caller)
        if own is None:
            return self._made(version, version.metadata.current_snapshot(), version.schema, None)
        if isinstance(own, str) and own in version.metadata.refs:
            return self._bound(name, version.metadata.refs[own].snapshot_id, None)
        if isinstance(own, int) and own >= _MOST_LEAVES:
            return self._bound(name, own, None)
        raise NotFound(f"{name} as of {own}: only the timeline knows, and nothing is sequenced yet", subject=name)

    def _bound(self, name: str, snapshot_id: int | None, proven: Proven | None) -> Bound:
        version = self._tables.catalogue.known(name)
        found = self._find(version, snapshot_id, proven)
        if found is None:
            version = self._tables.catalogue.load(name)
            found = self._find(version, snapshot_id, proven)
        if found is None:
            raise NotFound(
                f"{name} has no snapshot {snapshot_id} any more: it expired, or the table was made anew; ask for "
                "a later version",
                subject=name,
            )
        return self._made(version, found[0], found[1], proven)

    def _find(
        self, version: Version, snapshot_id: int | None, proven: Proven | None
    ) -> tuple[Snapshot | None, Schema] | None:
        """The snapshot and its schema in this version of the table; None if the version does not have them."""
        metadata = version.metadata
        snapshot = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
        if (snapshot is None) != (snapshot_id is None) or (proven is not None and proven.table_uuid != version.uuid):
            return None
        if proven is not None:
            stated = Leaf.decode(dict(proven.evidence.leaves)[proven.stated_at]).schema_sha256
            if stated is not None:
                schema_id = self._schema_ids(version).get(stated)
                return None if schema_id is None else (snapshot, _schema(metadata, schema_id))
        schema_id = snapshot.schema_id if snapshot is not None and snapshot.schema_id is not None else None
        return snapshot, _schema(metadata, metadata.current_schema_id if schema_id is None else schema_id)

    def _schema_ids(self, version: Version) -> dict[str, int]:
        """The schemas a metadata file holds, by the digest that leaves state."""
        found = self._hashes.get(version.location)
        if found is None:
            read = MetadataFile.read(version.location, self._tables.catalogue.io)
            found = {digest: schema_id for schema_id, digest in read.schemas.items()}
            if len(self._hashes) > 1000:
                self._hashes = {}
            self._hashes[version.location] = found
        return found

    def _made(self, version: Version, snapshot: Snapshot | None, schema: Schema, proven: Proven | None) -> Bound:
        inventory = self._inventory(version, snapshot)
        snapshot_id = snapshot.snapshot_id if snapshot else None
        return Bound(Relation(version.name, version.metadata, schema, snapshot_id, inventory), snapshot, proven)

    def _inventory(self, version: Version, snapshot: Snapshot | None) -> Inventory:
        key = (version.uuid, snapshot.snapshot_id if snapshot else 0)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        live = LiveFiles.of(self._tables.catalogue.io, self._tables.committer.manifests, snapshot, version.name)
        made = Inventory(live.data, live.manifests, version.metadata.specs())
        with self._lock:
            self._kept[key] = made
            while sum(map(len, self._kept.values())) > KEPT_FILES and len(self._kept) > 1:
                self._kept.popitem(last=False)
        return made

    def _full_name(self, ref: TableRef, caller: Caller | None) -> str:
        if ref.database is not None:
            name = f"{ref.database}.{ref.table}"
            if caller is None or caller.readable([name]):
                return name
            raise self._unknown(name, caller)
        found = [full for full in self._readable(caller) if full.partition(".")[2] == ref.table]
        if len(found) > 1:
            raise Invalid(f"{ref.table} is in several databases: write {' or '.join(sorted(found))}")
        if not found:
            raise self._unknown(ref.table, caller)
        return found[0]

    def _load(self, name: str, caller: Caller | None) -> Version:
        try:
            return self._tables.catalogue.load(name)
        except NotFound:
            raise self._unknown(name, caller) from None

    def _unknown(self, name: str, caller: Caller | None) -> NotFound:
        near = self.suggestions(name, caller)
        hint = f": did you mean {' or '.join(near)}?" if near else ": `strandline table list` shows those there are"
        whose = ", or none that you may read" if caller is not None else ""
        return NotFound(f"there is no table {name}{whose}{hint}", subject=name)

    def _readable(self, caller: Caller | None) -> list[str]:
        there = self._tables.list()
        return there if caller is None else caller.readable(there)


def _schema(metadata: TableMetadata, schema_id: int) -> Schema:
    return next(schema for schema in metadata.schemas if schema.schema_id == schema_id)
