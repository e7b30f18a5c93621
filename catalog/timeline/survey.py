"""Looks at tables in their catalog and says which leaves the timeline lacks. Writes only attestations.

Tables are looked at side by side; what is found is put in order by the names asked for, so that a run over
many tables gives one order of leaves however fast each answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from catalog.errors import LakeError
from catalog.timeline import keys
from catalog.timeline.attest import Attestation, Attestations
from catalog.timeline.away import explained
from catalog.timeline.leaf import Leaf
from catalog.timeline.moves import MetadataFile, Move, TableState, dropped, moves
from catalog.timeline.store import Database

T = TypeVar("T")
WORKERS = 8


@dataclass(frozen=True)
class Finding:
    """What one table's next leaves are, but for the time they are sequenced at; and its state after them."""

    name: str
    uuid: str
    leaves: tuple[Leaf, ...]
    state: TableState | None = None
    bearers: tuple[str, ...] | None = None
    """The uuids that bore the name, this one last, when that is news."""


@dataclass
class Survey:
    """One look. `failed`: the names that could not be looked at, and why; the others do not suffer for it."""

    database: Database
    catalog: Catalog
    attestations: Attestations
    now_ms: int
    failed: dict[str, LakeError] = field(default_factory=dict)
    _states: dict[str, TableState] = field(default_factory=dict)

    def look(self, names: Sequence[str]) -> list[Finding]:
        """The findings for the tables that moved. A table that is gone from the catalog has moved, too.

        Per table: GetTable and its metadata file, and if that is not the one last seen, the file's bytes once
        more and an attestation for each new snapshot.
        """
        unique = list(dict.fromkeys(names))
        with ThreadPoolExecutor(WORKERS) as pool:
            tables = dict(zip(unique, pool.map(self._load, unique), strict=True))
            findings = list[Finding]()
            # Those that exist come first: a renamed table is then known by its new name before its old one,
            # which nobody bears any more, is looked at.
            for name in sorted(unique, key=lambda name: tables[name] is None):
                if name in self.failed:
                    continue
                table = tables[name]
                try:
                    with explained(name):
                        found = self._gone(name) if table is None else self._moved(name, table, pool)
                except LakeError as error:
                    self.failed[name] = error
                    continue
                findings += found
                self._states |= {finding.uuid: finding.state for finding in found if finding.state}
        return findings

    def living(self) -> list[str]:
        """The names of all tables that the timeline believes to be there."""
        rows = list(self.database.scan(b"uuid/", keys.after(b"uuid/")))
        last = {key.removeprefix(b"uuid/").decode(): keys.unpack_uuids(value)[-1] for key, value in rows}
        states = {name: self._state(uuid) for name, uuid in last.items()}
        return [name for name, state in states.items() if state and state.name == name and not state.dropped]

    def _load(self, name: str) -> Table | None:
        try:
            with explained(name):
                try:
                    return self.catalog.load_table(name)
                except (NoSuchTableError, NoSuchNamespaceError):
                    return None
        except LakeError as error:
            self.failed[name] = error
            return None

    def _moved(self, name: str, table: Table, pool: ThreadPoolExecutor) -> list[Finding]:
        uuid = str(table.metadata.table_uuid)
        state = self._state(uuid)
        found = list[Finding]()
        bearers = self._bearers(name)
        if bearers and bearers[-1] != uuid:  # dropped and made anew under the same name
            found += self._drop(name, bearers[-1])
        seen = state is not None and not state.dropped and state.name == name
        if state is not None and seen and state.metadata_location == table.metadata_location:
            return found
        file = MetadataFile.read(table.metadata_location, table.io)
        ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        stored = self.database.get_many([keys.snapshot(id_, uuid) for id_ in ids])
        known = {id_ for id_, value in zip(ids, stored, strict=True) if value is not None}
        made, after = moves(name, table.metadata, file, state, known)
        snapshots = [move.snapshot for move in made if move.snapshot is not None]
        attested = pool.map(lambda snapshot: self.attestations.load(uuid, snapshot, table.io), snapshots)
        attestations = {attestation.snapshot_id: attestation for attestation in attested}
        first = after.sequence - len(made)
        leaves = [
            _leaf(name, uuid, file.sha256, first + offset, move, attestations) for offset, move in enumerate(made)
        ]
        news = None if bearers[-1:] == [uuid] else (*bearers, uuid)
        return [*found, Finding(name, uuid, tuple(leaves), after, news)]

    def _gone(self, name: str) -> list[Finding]:
        """A name the catalog does not know: its table was dropped, or renamed, or nobody ever saw it."""
        bearers = self._bearers(name)
        return self._drop(name, bearers[-1]) if bearers else []

    def _drop(self, name: str, uuid: str) -> list[Finding]:
        state = self._state(uuid)
        if state is None or state.dropped or state.name != name:
            return []
        move, after = dropped(state, self.now_ms)
        leaf = _leaf(name, uuid, state.metadata_sha256, state.sequence, move, {})
        return [Finding(name, uuid, (leaf,), after)]

    def _state(self, uuid: str) -> TableState | None:
        if uuid not in self._states:
            stored = self.database.get(keys.state(uuid))
            if stored is None:
                return None
            self._states[uuid] = TableState.decode(stored)
        return self._states[uuid]

    def _bearers(self, name: str) -> list[str]:
        return keys.unpack_uuids(self.database.get(keys.uuids(name)) or b"")


def _leaf(
    name: str,
    uuid: str,
    metadata_sha256: str | None,
    sequence: int,
    move: Move,
    attested: dict[int, Attestation],
) -> Leaf:
    attestation = None if move.snapshot is None else attested[move.snapshot.snapshot_id]
    return Leaf(
        table=name,
        table_uuid=uuid,
        snapshot_id=move.snapshot_id,
        parent_id=move.parent_id,
        sequence=sequence,
        committed_ms=move.committed_ms,
        sequenced_ms=0,
        operation=move.operation,
        ref=move.ref,
        schema_sha256=move.schema_sha256,
        metadata_sha256=metadata_sha256,
        manifest_list_sha256=attestation.manifest_list.sha256 if attestation else None,
        content_root=attestation.content_root if attestation else None,
        content_count=len(attestation.entries) if attestation else 0,
        changes_root=attestation.changes_root if attestation else None,
        changes_count=attestation.changes_count if attestation else None,
    )
