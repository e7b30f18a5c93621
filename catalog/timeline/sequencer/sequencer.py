"""The sequencer: the only writer of the timeline. It detects table events, appends their leaves and publishes the tree.

`_run` is the flow, top to bottom: publish what an earlier run left unpublished, detect, write one batch, publish and
announce. All state is in the database, so a crash at any step is recovered by running again; there is no other
recovery.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from pyiceberg.catalog import Catalog

from catalog.core.aws_errors import translate_errors
from catalog.core.errors import LakeError, Unverified
from catalog.core.events import AdvanceWatermark, EventBus, NameIndex, PutMeta, TableMoved
from catalog.iceberg import listed_tables
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.prefix_map import PrefixMap
from catalog.merkle.tiles import WIDTH
from catalog.timeline.log import store_keys
from catalog.timeline.log.frontier import Frontier
from catalog.timeline.log.head import Head, stored_leaves, stored_tile
from catalog.timeline.log.keyring import Keyring
from catalog.timeline.log.leaf import Leaf
from catalog.timeline.log.publisher import CHECKPOINT_PATH, PublishedCheckpoint, Publisher, text_of
from catalog.timeline.log.signer import Signer
from catalog.timeline.log.store import COMPACT_AT, StoreLocation, StoreWriter, count_wal_files
from catalog.timeline.log.table_map import TableMap
from catalog.timeline.sequencer.attestation import Attestations, ComputeChanges
from catalog.timeline.sequencer.batch import Batch, events_of
from catalog.timeline.sequencer.detection import Detection, NewLeaves
from catalog.timeline.sequencer.row_state import ComputeState
from catalog.timeline.sequencer.sweep import runs_of, tables_to_inspect
from catalog.timeline.sequencer.vector_events import VectorObjects

SequencerRequest = TableMoved | NameIndex | AdvanceWatermark | PutMeta


@dataclass
class SequencerResult:
    """What a run did. A request that is not in `failed` is served, durable and published."""

    leaves: list[tuple[int, Leaf]] = field(default_factory=list)
    """The new leaves with their indexes."""
    size: int = 0
    failed: dict[int, LakeError] = field(default_factory=dict)
    """The position of a refused request -> the reason. The other requests were served."""
    unfinished: list[str] = field(default_factory=list)
    """The inspected tables that still have a transaction's branch."""
    complete: bool = True
    """Whether a sweep inspected every table that it had to."""

    def add(self, later: SequencerResult) -> None:
        """Adds the result of a later run. Failures keep their order, not their positions."""
        self.leaves += later.leaves
        self.size = later.size
        self.failed |= dict(enumerate(later.failed.values(), len(self.failed)))
        self.unfinished += later.unfinished


@dataclass(frozen=True)
class _OpenLog:
    """The open database, and the log's state as of its last flush. Kept between runs to save reading it again."""

    db: StoreWriter
    head: Head
    frontier: Frontier
    tables: TableMap
    keyring: Keyring
    published: PublishedCheckpoint
    announced: int
    """The size up to which commits have been announced."""


class Sequencer:
    """Keeps the database open across runs. After any error it closes it, and the next run opens it again.

    With the database open, a run of n leaves over t tables costs one PUT to the database, n / 256 * 2 PUTs and at
    most four more for tiles and checkpoint, one Sign and t / 10 PutEvents, besides inspecting the tables.
    """

    def __init__(
        self,
        location: StoreLocation,
        catalog: Catalog,
        publisher: Publisher,
        attestations: Attestations,
        signer: Signer,
        bus: EventBus,
        compute_changes: ComputeChanges | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        compute_state: ComputeState | None = None,
    ) -> None:
        """`compute_changes` computes a changes_root that the writer did not attest; None: such leaves have none.

        `compute_state` computes the digest and map of a table's rows after each leaf; None: leaves have none.
        """
        self._location = location
        self._catalog = catalog
        self._publisher = publisher
        self._attestations = attestations
        self._signer = signer
        self._bus = bus
        self._compute_changes = compute_changes
        self._compute_state = compute_state
        self._clock_ms = clock_ms
        self._log: _OpenLog | None = None
        self._lock = threading.Lock()

    def catch_up(self, tables: Iterable[str]) -> SequencerResult:
        """Appends a leaf for every snapshot and reference move that the timeline lacks, oldest first.

        Idempotent. Raises Unavailable, Fenced or Conflict when it should be run again: nothing is acknowledged then,
        though it may have been written. A table that cannot be sequenced is in `failed`; the others are sequenced.
        """
        return self.handle([TableMoved(table=table) for table in tables])

    def sweep(self, stop: Callable[[], bool] = lambda: False) -> SequencerResult:
        """Catches up every table whose metadata file is not the one in the timeline, and every vector table.

        Costs one request per hundred tables that did not change. Ends early, between two runs of SWEPT_TOGETHER
        tables, when `stop` returns true: the result is then not `complete`, and the next sweep does the rest.
        """
        listed = listed_tables(self._catalog)
        vector_tables = VectorObjects(self._attestations.s3, self._attestations.bucket).names()
        with self._exclusive():
            outdated = tables_to_inspect(self._open().db, listed)
        swept = SequencerResult()
        for run, names in enumerate(runs_of([*outdated, *vector_tables])):
            if run and stop():
                return replace(swept, complete=False)
            swept.add(self.catch_up(names))
        return swept

    def handle(self, requests: Sequence[SequencerRequest]) -> SequencerResult:
        """Serves requests from the sequencer's queue, all in one batch."""
        with self._exclusive():
            return self._run(requests, [])

    def append(self, leaves: Sequence[Leaf]) -> SequencerResult:
        """Appends the given leaves, for measurements and for rebuilding a timeline. Invalid if one cannot be appended.

        Changes only `sequenced_ms` and `map_root`, which depend on the batch.
        """
        with self._exclusive():
            return self._run([], leaves)

    def compact(self) -> None:
        """Merges the database's files, collects its garbage, and removes superseded partial tiles."""
        with self._exclusive():
            self._compact(self._publish_and_announce(self._open(), Batch()))

    def maintain(self, may_compact: Callable[[], bool] = lambda: True) -> int | None:
        """Keeps the database's files few, and so its opening short, whatever its age. Call it after a run.

        Every FLUSH_AFTER batches it flushes, with about five requests, and compacts if COMPACT_AT files of level 0
        have piled up and it may. Returns the number of files in the write-ahead log then, otherwise None.
        """
        with self._exclusive():
            if self._log is None or not self._log.db.is_flush_due:
                return None
            if self._log.db.flush() >= COMPACT_AT and may_compact():
                self._compact(self._log)
            return count_wal_files(self._attestations.s3, self._attestations.bucket)

    def _compact(self, log: _OpenLog) -> None:
        # Compaction closes the database and opens it again. Another sequencer may have appended in between, and what
        # this process knew of the log before is then out of date: to append to it would fork the tree.
        db = log.db.compact()
        try:
            loaded = self._load(db)
        except BaseException:
            db.close()
            raise
        self._log = log = replace(loaded, announced=max(loaded.announced, log.announced))
        pruned = store_keys.unpack(log.db.get(store_keys.PRUNED) or store_keys.pack(0))[0]
        now_pruned = self._publisher.prune(pruned, log.published.size)
        if now_pruned != pruned:
            log.db.write([(store_keys.PRUNED, store_keys.pack(now_pruned))])

    def close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.db.close()

    def _run(self, requests: Sequence[SequencerRequest], leaves: Sequence[Leaf]) -> SequencerResult:
        # An earlier run may have stopped after its flush. Publish what is durable before adding anything.
        log = self._publish_and_announce(self._open(), Batch())

        moved = [request for request in requests if isinstance(request, TableMoved)]
        now_ms = self._clock_ms()
        detection = Detection(
            log.db, self._catalog, self._attestations, now_ms, self._compute_changes, self._compute_state
        )
        new_leaves = detection.detect([request.table for request in moved])
        # A crash up to here has written attestations at most. The next run reads them and finds them correct.

        if leaves:
            new_leaves = [NewLeaves("", "", tuple(leaves))]
        batch = Batch()
        sequenced_ms = max(now_ms, log.head.sequenced_ms + 1)  # ascends even if the clock goes back
        tables, rejected = batch.add_leaves(new_leaves, log.head.size, sequenced_ms, log.tables)
        if leaves and rejected:
            raise next(iter(rejected.values()))
        size = log.head.size + len(batch.leaves)
        failed = self._add_requests(requests, batch, size, log.db, detection.failed | rejected)

        if batch.puts or batch.deletes:
            appended = self._append_to_tree(log, batch, tables, sequenced_ms) if batch.leaves else log
            # Atomic. After a crash during the write the batch is either stored or not, and the next run handles both
            # like a crash just after or just before it. If another sequencer took over, this raises Fenced and
            # nothing below runs.
            log.db.write(batch.puts.items(), batch.deletes)
            log = appended
        elif len(moved) < len(requests):
            # A request is refused, or finds nothing to do, by what this process knows of the log. If another sequencer
            # took over, that is out of date: this raises Fenced, and the request is served again.
            log.db.write([(store_keys.HEAD, log.head.encode())])
        self._log = self._publish_and_announce(log, batch, {request.table: request.correlation_id for request in moved})
        return SequencerResult(batch.leaves, log.head.size, failed, detection.unfinished)

    def _add_requests(
        self,
        requests: Sequence[SequencerRequest],
        batch: Batch,
        size: int,
        db: StoreWriter,
        table_errors: Mapping[str, LakeError],
    ) -> dict[int, LakeError]:
        """Adds the requests to the batch. Returns position -> error for each that failed. `size`: of the new tree."""
        failed = dict[int, LakeError]()
        for position, request in enumerate(requests):
            if isinstance(request, TableMoved):
                if request.table in table_errors:
                    failed[position] = table_errors[request.table]
                continue
            try:
                batch.add_request(request, size, db, self._signer)
            except LakeError as error:
                failed[position] = error
        return failed

    def _append_to_tree(self, log: _OpenLog, batch: Batch, tables: TableMap, sequenced_ms: int) -> _OpenLog:
        """Adds the tree with the batch's leaves, and its checkpoint, to the batch. Returns the log after the flush.

        The checkpoint is signed before the flush and stored by it, so a durable head always has a checkpoint to
        publish, without another signature or write. Until the flush the signature exists in this process only: if
        the batch is not stored, nobody sees it, so no two different checkpoints of one size become visible.
        """
        frontier, tiles = log.frontier.grow(batch.encoded)
        root = frontier.tree.root()
        with translate_errors("the signer"):
            keyring, keys_note = log.keyring.with_signer(self._signer, frontier.size)
            note = Checkpoint(self._signer.name, frontier.size, root).sign([self._signer])
        head = Head(frontier.size, root.hex(), sequenced_ms, note.decode(), log.announced)
        batch.add_tree(tiles, head, keys_note)
        return replace(log, head=head, frontier=frontier, tables=tables, keyring=keyring)

    def _publish_and_announce(
        self, log: _OpenLog, batch: Batch, correlations: Mapping[str, str] | None = None
    ) -> _OpenLog:
        """Publishes what is durable and not yet published, then announces what is published and not yet announced.

        Both steps may repeat what a run did that stopped before it could record it: publishing then finds its
        objects in place, and an event is sent a second time.
        """
        head, published, announced = log.head, log.published, log.announced
        if published.size < head.size or self._publisher.lacks_cosignatures(published):
            keys_note = log.db.get(store_keys.KEYS) if log.keyring.keys[-1][0] > published.size else None
            with translate_errors("the published timeline"):
                published = self._publisher.publish(
                    published,
                    head.size,
                    head.checkpoint.encode(),
                    lambda tile: batch.tiles.get(tile) or stored_tile(log.db, tile),
                    keys_note,
                )
        if announced < head.size:
            leaves = batch.leaves
            if not leaves or leaves[0][0] != announced:
                leaves = stored_leaves(log.db, announced, head.size)
            with translate_errors("the event bus"):
                self._bus.announce(events_of(leaves, head.size, correlations or {}))
            # Stored with the next batch. A crash before that makes the next run announce these commits again.
            announced = head.size
        return replace(log, published=published, announced=announced)

    def _open(self) -> _OpenLog:
        """The open log. Opening it takes about 20 requests and fences any other sequencer that has it open."""
        if self._location.is_outdated:  # its credentials were refreshed: the open database will soon be refused
            self.close()
            self._location = self._location.renewed()
        if self._log is None:
            db = StoreWriter.open(self._location)
            try:
                self._log = self._load(db)
            except BaseException:
                db.close()
                raise
        return self._log

    def _load(self, db: StoreWriter) -> _OpenLog:
        """Reads the log's state. Unverified when tree, head and published checkpoint contradict each other."""
        head = Head.decode(db.get(store_keys.HEAD))
        last_bundle = head.size - head.size % WIDTH
        entries = [value for _, value in db.scan(store_keys.leaf(last_bundle), store_keys.leaf(head.size))]
        frontier = Frontier.load(head.size, lambda tile: stored_tile(db, tile), entries)
        if frontier.tree.root().hex() != head.root:
            raise Unverified("the timeline's stored tree does not have the root that its head states", subject="head")
        tables = self._load_tables(db, head, entries)
        note = db.get(store_keys.KEYS)
        keyring = Keyring() if note is None else Keyring.stored(note)
        with translate_errors(CHECKPOINT_PATH):
            published = self._publisher.published()
        self._check_published(published, db, head, keyring)
        return _OpenLog(db, head, frontier, tables, keyring, published, head.announced)

    def _load_tables(self, db: StoreWriter, head: Head, entries: Sequence[bytes]) -> TableMap:
        """The map of tables, in one scan; Unverified unless its root is the one that the last leaf states."""
        rows = db.scan(b"map/", store_keys.after(b"map/"))
        tables = TableMap.load(PrefixMap({key.removeprefix(b"map/"): value for key, value in rows}))
        if head.size:
            last = Leaf.decode(entries[-1] if entries else db.get(store_keys.leaf(head.size - 1)) or b"")
            if last.map_root != tables.root:
                raise Unverified(
                    "the timeline's stored map of tables does not have the root that its last leaf states",
                    subject="map",
                )
        return tables

    def _check_published(self, published: PublishedCheckpoint, db: StoreWriter, head: Head, keyring: Keyring) -> None:
        """Raises unless the published checkpoint is one that this timeline signed, of its present size or less."""
        if published.size > head.size:
            # Either another sequencer took over after we opened the database, in which case this write raises
            # Fenced; or the database has lost what was published, and nothing may be appended to it.
            db.write([(store_keys.HEAD, head.encode())])
            raise Unverified(
                f"the published checkpoint has {published.size} leaves, the database only {head.size}: "
                "it was replaced by an older one; restore it before anything is sequenced",
                subject=CHECKPOINT_PATH,
            )
        if published.size:
            if text_of(published.note) != text_of(db.get(store_keys.checkpoint(published.size)) or b""):
                raise Unverified(
                    f"the published checkpoint of size {published.size} is not the one this timeline signed",
                    subject=CHECKPOINT_PATH,
                )
            keyring.open(published.note, self._signer.name)  # only the text is compared: witnesses add cosignatures

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One run at a time. Closes the database after an error: what the open handle shows is then unknown."""
        with self._lock:
            try:
                yield
            except BaseException:
                self.close()
                raise
