"""Looks at tables in their catalog and says which leaves the timeline lacks. Writes only attestations.

Tables are looked at side by side; what is found is put in order by the names asked for, so that a run over
many tables gives one order of leaves however fast each answered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from catalog.errors import Invalid, LakeError, NotFound
from catalog.summary import ROWS_DIGEST, TRANSACTION_PREFIX
from catalog.timeline import keys
from catalog.timeline.attest import Attestation, Attestations, Changed, ChangesOf
from catalog.timeline.away import explained
from catalog.timeline.leaf import MAIN, MOVES_OF_MAIN, Leaf
from catalog.timeline.moves import Landing, MetadataFile, Move, TableState, dropped, moves
from catalog.timeline.ordering import arrange, joined
from catalog.timeline.store import Database
from catalog.timeline.vector_moves import VectorHead, VectorObjects, head_key, is_vectors, vector_leaves

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LATEST_MS = 9_999_999_999_999  # as many digits as any time to come will have, for 260 years

WORKERS = 8
TURNS = 5
"""How often tables are read again because transactions were met in others; then the rest waits for the next look."""


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
class _Look:
    """One table as it was found, and its next moves, all of them. `leaves` come after."""

    name: str
    uuid: str
    table: Table
    file: MetadataFile
    state: TableState | None
    known: set[int]
    bearers: list[str]
    moves: list[Move]
    after: TableState
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def transactions(self) -> dict[str, Landing]:
        return {move.transaction.id: move.transaction for move in self.moves if move.transaction is not None}

    def until(self, held: set[str]) -> TableState:
        """The state before the first of the transactions that are held back."""
        return moves(self.name, self.table.metadata, self.file, self.state, self.known, held)[1]


@dataclass
class Survey:
    """One look. `failed`: the names that could not be looked at, and why; the others do not suffer for it.

    `unfinished`: tables that a transaction still holds; whoever wrote it may be gone.
    """

    database: Database
    catalog: Catalog
    attestations: Attestations
    now_ms: int
    changes: ChangesOf = lambda table, since, until, schema_id: None
    failed: dict[str, LakeError] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)
    _states: dict[str, TableState] = field(default_factory=dict)
    _tables: dict[str, Table | None] = field(default_factory=dict)

    def look(self, names: Sequence[str]) -> list[Finding]:
        """The findings for the tables that moved. A table that is gone from the catalog has moved, too.

        Per table: GetTable and its metadata file, and if that is not the one last seen, an attestation for each
        new snapshot. The other tables of a transaction that is met are looked at as well. Per vector table: its
        head, and the manifest of each new version.
        """
        with ThreadPoolExecutor(WORKERS) as pool:
            tables = [name for name in dict.fromkeys(names) if not is_vectors(name)]
            looks, findings, waiting = self._look_at(tables, pool)
            for look in list(looks.values()):
                try:
                    with explained(look.name):
                        look.leaves = self._leaves(look, pool)
                except LakeError as error:
                    self.failed[look.name] = error
                    waiting |= look.transactions.keys()
                    del looks[look.name]
            vectors = map(self._vectors, [name for name in dict.fromkeys(names) if is_vectors(name)])
            return [*findings, *self._ordered(looks, waiting), *(found for some in vectors for found in some)]

    def _look_at(self, names: list[str], pool: ThreadPoolExecutor) -> tuple[dict[str, _Look], list[Finding], set[str]]:
        """What there is to say of each table, the drops, and the transactions that are not complete yet.

        A table that was read before its transaction was met elsewhere may have been read before its part was
        staged: it is read again. So whoever has no branch of the transaction then, has landed or is gone.
        """
        looks, findings = dict[str, _Look](), list[Finding]()
        read, met = dict[str, int](), dict[str, tuple[int, Landing]]()
        wanted, turn = names, 0
        while wanted and turn < TURNS:
            turn += 1
            self._tables |= dict(zip(wanted, pool.map(self._load, wanted), strict=True))
            read |= dict.fromkeys(wanted, turn)
            # Those that exist come first: a renamed table is then known by its new name before its old one,
            # which nobody bears any more, is looked at.
            for name in sorted(wanted, key=lambda name: self._tables[name] is None):
                if (before := looks.pop(name, None)) is not None:
                    self._states.pop(before.uuid)
                if name not in self.failed:
                    self._look_into(name, looks, findings)
            for look in looks.values():
                met |= {id_: (turn, landing) for id_, landing in look.transactions.items() if id_ not in met}
            wanted = [
                name
                for name in dict.fromkeys(name for _, landing in met.values() for name in landing.tables)
                if any(self._stale(name, read, *meeting, looks) for meeting in met.values())
            ]
        waiting = {
            id_
            for id_, (_, landing) in met.items()
            if any(name in wanted or name in self.failed or self._holds(name, id_) for name in landing.tables)
        }
        self.unfinished = [name for name in self._tables if self._holds(name, "")]
        return looks, findings, waiting

    def _stale(self, name: str, read: dict[str, int], turn: int, landing: Landing, looks: dict[str, _Look]) -> bool:
        """Whether the table is to be read (again) to know what became of its part of the transaction."""
        mine = name in looks and landing.id in looks[name].transactions
        return name in landing.tables and not mine and name not in self.failed and read.get(name, 0) <= turn

    def _holds(self, name: str, transaction: str) -> bool:
        table = self._tables.get(name)
        wanted = TRANSACTION_PREFIX + transaction
        refs = table.metadata.refs if table is not None else ()
        return any(ref == wanted or (not transaction and ref.startswith(wanted)) for ref in refs)

    def _look_into(self, name: str, looks: dict[str, _Look], findings: list[Finding]) -> None:
        table = self._tables[name]
        try:
            with explained(name):
                dropped, look = (self._gone(name), None) if table is None else self._moved(name, table)
        except LakeError as error:
            self.failed[name] = error
            return
        findings += dropped
        self._states |= {finding.uuid: finding.state for finding in dropped if finding.state}
        if look is not None:
            looks[name] = look
            self._states[look.uuid] = look.after

    def _ordered(self, looks: dict[str, _Look], waiting: set[str]) -> list[Finding]:
        """The leaves of all tables in their order, cut into pieces where transactions join them."""
        order, held = arrange({name: look.moves for name, look in looks.items()}, waiting)
        last = {piece.table: at for at, piece in enumerate(order)}
        found, at = list[Finding](), 0
        while at < len(order):
            pieces = order[at : at + (len(order[at].group) or 1)]
            leaves = [looks[piece.table].leaves[piece.start : piece.end] for piece in pieces]
            if pieces[0].group:
                leaves = [[leaf] for leaf in joined([leaf for (leaf,) in leaves])]
            for offset, (piece, made) in enumerate(zip(pieces, leaves, strict=True), at):
                look, after, news = looks[piece.table], None, None
                if last[piece.table] == offset:
                    after = look.after if held.isdisjoint(look.transactions) else look.until(held)
                    news = None if look.bearers[-1:] == [look.uuid] else (*look.bearers, look.uuid)
                found.append(Finding(look.name, look.uuid, tuple(made), after, news))
            at += len(pieces)
        return found

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

    def _moved(self, name: str, table: Table) -> tuple[list[Finding], _Look | None]:
        uuid = str(table.metadata.table_uuid)
        state = self._state(uuid)
        found = list[Finding]()
        bearers = self._bearers(name)
        if bearers and bearers[-1] != uuid:  # dropped and made anew under the same name
            found += self._drop(name, bearers[-1])
        seen = state is not None and not state.dropped and not state.held and state.name == name
        if state is not None and seen and state.metadata_location == table.metadata_location:
            return found, None
        file = MetadataFile.read(table.metadata_location, table.io)
        ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        stored = self.database.get_many([keys.snapshot(id_, uuid) for id_ in ids])
        known = {id_ for id_, value in zip(ids, stored, strict=True) if value is not None}
        made, after = moves(name, table.metadata, file, state, known)
        return found, _Look(name, uuid, table, file, state, known, bearers, made, after)

    def _leaves(self, look: _Look, pool: ThreadPoolExecutor) -> list[Leaf]:
        """The leaf of each move, with the attestation of each snapshot and the changes of each move of main."""
        table, metadata = look.table, look.table.metadata
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}

        def changed(since: int | None, until: Snapshot, schema_id: int | None) -> Changed | None:
            if since is not None and since not in by_id:
                return None  # it expired: what changed since then cannot be known any more
            under = metadata.current_schema_id if schema_id is None else schema_id
            return self.changes(table, None if since is None else by_id[since], until, under)

        def attest(snapshot: Snapshot) -> Attestation:
            return self.attestations.load(
                look.uuid,
                snapshot,
                table.io,
                lambda: changed(snapshot.parent_snapshot_id, snapshot, snapshot.schema_id),
            )

        def compare(move: Move) -> Changed | None:
            if move.ref != MAIN or move.operation not in MOVES_OF_MAIN or move.snapshot_id not in by_id:
                return None
            return changed(move.parent_id, by_id[move.snapshot_id], None)

        attested = pool.map(attest, [move.snapshot for move in look.moves if move.snapshot is not None])
        compared = pool.map(compare, look.moves)
        attestations = {attestation.snapshot_id: attestation for attestation in attested}
        first = look.after.sequence - len(look.moves)
        leaves = [
            _leaf(look.name, look.uuid, look.file.sha256, first + offset, move, attestations, changes)
            for offset, (move, changes) in enumerate(zip(look.moves, compared, strict=True))
        ]
        if look.transactions:
            for leaf in leaves:
                leaf.encode()  # what cannot be stored is found before others are joined with it
        return leaves

    def _vectors(self, name: str) -> list[Finding]:
        """A vector table's next leaves, by its head; it is gone with its head."""
        objects, found = VectorObjects(self.attestations.s3, self.attestations.bucket), list[Finding]()
        try:
            try:
                data = objects.read(head_key(name))
            except NotFound:
                return self._gone(name)
            head, bearers = VectorHead.parse(data, name), self._bearers(name)
            if bearers and bearers[-1] != head.uuid:  # dropped and made anew
                found += self._drop(name, bearers[-1])
            leaves, after = vector_leaves(
                name,
                objects.location(head_key(name)),
                head,
                self._state(head.uuid),
                lambda offered: objects.attested(name, offered),
                self.now_ms,
            )
        except LakeError as error:
            self.failed[name] = error
            return []
        news = None if bearers[-1:] == [head.uuid] else (*bearers, head.uuid)
        return [*found, Finding(name, head.uuid, tuple(leaves), after, news)] if leaves else found

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
    changed: Changed | None = None,
) -> Leaf:
    attestation = None if move.snapshot is None else attested[move.snapshot.snapshot_id]
    if attestation is not None:
        changed = attestation.changed
    leaf = Leaf(
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
        changes_root=changed.root if changed else None,
        changes_count=changed.count if changed else None,
    )
    return _with_rows_digest(leaf, move.snapshot)


def _with_rows_digest(leaf: Leaf, snapshot: Snapshot | None) -> Leaf:
    """What a rewrite says of its rows in its summary. Deep verification counts them again.

    Left out where a long name leaves no room for it: a table must not be kept from the timeline by its own proof.
    """
    said = snapshot.summary[ROWS_DIGEST] if snapshot is not None and snapshot.summary is not None else None
    if leaf.operation != "replace" or said is None or not _SHA256.fullmatch(said):
        return leaf
    with suppress(Invalid):
        replace(leaf, rows_digest=said, sequenced_ms=_LATEST_MS).encode()
        return replace(leaf, rows_digest=said)
    return leaf
