"""The sequencer: puts what happened to the tables into the timeline. There is one, and it is the only writer.

The flow is `_run`, top to bottom: settle what an earlier run left, look at the tables, write one batch,
settle. Nothing is remembered between runs that the database does not say, so a crash anywhere is mended by
running again, and running again is all that recovery is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog

from catalog.errors import LakeError, Unverified
from catalog.events import EventBus, MoveMark, NameIndex, PutMeta, TableMoved
from catalog.merkle.checkpoint import Checkpoint
from catalog.merkle.tiles import ENTRIES, WIDTH
from catalog.timeline import keys
from catalog.timeline.attest import Attestations, ChangesOf
from catalog.timeline.away import explained
from catalog.timeline.batch import Batch, events_of
from catalog.timeline.edge import Edge
from catalog.timeline.head import Head, stored_leaves, stored_tile
from catalog.timeline.keyring import Keyring
from catalog.timeline.leaf import Leaf
from catalog.timeline.publish import CHECKPOINT, Published, Publisher
from catalog.timeline.signer import Signer
from catalog.timeline.store import Fenced, Place, Writer
from catalog.timeline.survey import Finding, Survey
from catalog.timeline.vector_moves import VectorObjects

Request = TableMoved | NameIndex | MoveMark | PutMeta


@dataclass
class Outcome:
    """What a run did. A request that is not in `failed` is done, durable and published."""

    leaves: list[tuple[int, Leaf]] = field(default_factory=list)
    size: int = 0
    failed: dict[int, LakeError] = field(default_factory=dict)
    """The position of a request -> why it was refused, while the others were served."""
    unfinished: list[str] = field(default_factory=list)
    """Tables among those looked at that a transaction still holds."""


@dataclass
class _Open:
    """The open database and what it says: the truth as of the last flush, kept warm between runs."""

    db: Writer
    head: Head
    edge: Edge
    ring: Keyring
    stands: Published
    announced: int


class Sequencer:
    """Holds the database open across runs. Any error lets it go; the next run opens it again.

    Warm, a run of n leaves over t tables is one PUT to the database, n / 256 * 2 and at most four more for
    tiles and checkpoint, one Sign and t / 10 PutEvents, besides looking at the tables.
    """

    def __init__(
        self,
        place: Place,
        catalog: Catalog,
        publisher: Publisher,
        attestations: Attestations,
        signer: Signer,
        bus: EventBus,
        changes: ChangesOf = lambda table, since, until, schema_id: None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._place = place
        self._catalog = catalog
        self._publisher = publisher
        self._attestations = attestations
        self._signer = signer
        self._bus = bus
        self._changes = changes
        self._clock_ms = clock_ms
        self._opened: _Open | None = None
        self._one_at_a_time = threading.Lock()

    def catch_up(self, tables: Iterable[str]) -> Outcome:
        """Every snapshot and reference move that the timeline lacks becomes a leaf, oldest first.

        Idempotent. Raises Unavailable, Fenced or Conflict when it should be run again; then nothing is
        acknowledged, though it may have been done. A table that cannot be sequenced is in `failed` alone.
        """
        return self.handle([TableMoved(table=table) for table in tables])

    def sweep(self) -> Outcome:
        """Catches up every table of the catalog, every vector table, and all that the timeline believes to be there."""
        with explained("the catalog"):
            listed = [
                ".".join(table)
                for namespace in self._catalog.list_namespaces()
                for table in self._catalog.list_tables(namespace)
            ]
        listed += VectorObjects(self._attestations.s3, self._attestations.bucket).names()
        with self._one_at_a_time, self._or_let_go():
            living = Survey(self._open().db, self._catalog, self._attestations, 0).living()
        return self.catch_up(dict.fromkeys([*listed, *living]))

    def handle(self, requests: Sequence[Request]) -> Outcome:
        """Serves requests from the sequencer's queue, all in one batch."""
        with self._one_at_a_time, self._or_let_go():
            return self._run(requests, [])

    def append(self, leaves: Sequence[Leaf]) -> Outcome:
        """Sequences leaves as they are given, but for `sequenced_ms`: for measurements and for rebuilding."""
        with self._one_at_a_time, self._or_let_go():
            return self._run([], leaves)

    def compact(self) -> None:
        """Merges the database's files, collects its garbage, and removes superseded partial tiles."""
        with self._one_at_a_time, self._or_let_go():
            opened = self._open()
            self._settle(opened, Batch())
            opened.db = opened.db.compact()
            first = keys.unpack(opened.db.get(keys.PRUNED) or keys.pack(0))[0]
            done = self._publisher.prune(first, opened.stands.size)
            if done != first:
                opened.db.write([(keys.PRUNED, keys.pack(done))])

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.db.close()

    def _run(self, requests: Sequence[Request], given: Sequence[Leaf]) -> Outcome:
        opened = self._open()
        # An earlier run may have stopped after its flush. What is durable is finished before anything is
        # added.
        self._settle(opened, Batch())

        now_ms = self._clock_ms()
        survey = Survey(opened.db, self._catalog, self._attestations, now_ms, self._changes)
        findings = survey.look([request.table for request in requests if isinstance(request, TableMoved)])
        # A crash up to here has written attestations at most, which the next run finds, right, in their
        # place.

        outcome, batch, head = Outcome(), Batch(), opened.head
        if given:
            findings = [Finding("", "", tuple(given))]
        ms = max(now_ms, head.sequenced_ms + 1)  # never back, whatever the clock does
        size = batch.add_findings(findings, head.size, ms, survey.failed)
        for position, request in enumerate(requests):
            try:
                if isinstance(request, TableMoved):
                    if request.table in survey.failed:
                        raise survey.failed[request.table]
                else:
                    batch.add_request(request, size, opened.db, self._signer)
            except LakeError as error:
                outcome.failed[position] = error

        if batch.puts or batch.deletes:
            edge, ring = opened.edge, opened.ring
            if batch.leaves:
                edge, ring, head = self._add_tree(opened, batch, ms)
            # All or nothing. A crash within leaves either, and the next run cannot tell it from a crash just
            # before or just after. If another sequencer took over, this raises and nothing below happens.
            opened.db.write(batch.puts.items(), batch.deletes)
            opened.edge, opened.ring, opened.head = edge, ring, head
        self._settle(opened, batch, {r.table: r.correlation_id for r in requests if isinstance(r, TableMoved)})
        outcome.leaves, outcome.size, outcome.unfinished = batch.leaves, head.size, survey.unfinished
        return outcome

    def _settle(self, opened: _Open, batch: Batch, correlations: dict[str, str] | None = None) -> None:
        """Publishes what is durable and not yet public, then announces what is public and not yet announced.

        Each step may have been done by a run that stopped before it could say so, and is then done again:
        publishing finds its objects there, and announcing repeats itself.
        """
        head, stands = opened.head, opened.stands
        if stands.size < head.size:
            keys_note = opened.db.get(keys.KEYS) if opened.ring.keys[-1][0] > stands.size else None
            with explained("the published timeline"):
                opened.stands = self._publisher.publish(
                    stands,
                    head.size,
                    head.checkpoint.encode(),
                    lambda tile: batch.tiles.get(tile) or stored_tile(opened.db, tile),
                    keys_note,
                )
        if opened.announced < head.size:
            leaves = batch.leaves
            if not leaves or leaves[0][0] != opened.announced:
                leaves = stored_leaves(opened.db, opened.announced, head.size)
            with explained("the event bus"):
                self._bus.announce(events_of(leaves, head.size, correlations or {}))
            # Remembered in the next batch. Until then a crash makes the next run announce these once more.
            opened.announced = head.size

    def _add_tree(self, opened: _Open, batch: Batch, ms: int) -> tuple[Edge, Keyring, Head]:
        """The tree with the batch's leaves, signed.

        The signature is made before the flush and stored by it, so that the checkpoint of a durable head is
        always there to publish, with no signer and no second write. Until the flush it exists in this process
        only: a batch that is not stored takes its signature along, and no two of one size are ever seen.
        """
        edge, batch.tiles = opened.edge.grow(batch.encoded)
        for tile, contents in batch.tiles.items():
            if tile.level != ENTRIES:
                batch.puts[keys.node(tile.level, tile.index)] = contents
        root = edge.tree.root()
        with explained("the signer"):
            ring, keys_note = opened.ring.with_signer(self._signer, edge.size)
            note = Checkpoint(self._signer.name, edge.size, root).sign([self._signer])
        if keys_note is not None:
            batch.puts[keys.KEYS] = keys_note
        head = Head(edge.size, root.hex(), ms, note.decode(), opened.announced)
        batch.puts[keys.HEAD] = head.encode()
        batch.puts[keys.checkpoint(edge.size)] = note
        return edge, ring, head

    def _open(self) -> _Open:
        """The open database; if it is not open, about 20 requests, and whoever had it open is fenced."""
        if self._opened is None:
            db = Writer.open(self._place)
            try:
                self._opened = self._learn(db)
            except BaseException:
                db.close()
                raise
        return self._opened

    def _learn(self, db: Writer) -> _Open:
        head = Head.decode(db.get(keys.HEAD))
        first = head.size - head.size % WIDTH
        leaves = [value for _, value in db.scan(keys.leaf(first), keys.leaf(head.size))]
        edge = Edge.load(head.size, lambda tile: stored_tile(db, tile), leaves)
        if edge.tree.root().hex() != head.root:
            raise Unverified("the timeline's stored tree does not have the root of its head", subject="head")
        note = db.get(keys.KEYS)
        ring = Keyring() if note is None else Keyring.parse(note)
        with explained(CHECKPOINT):
            stands = self._publisher.published()
        if stands.size > head.size:
            # Either another sequencer took over since we opened, which this write finds out, or the database
            # has lost what was published: then nothing may be added to it.
            db.write([(keys.HEAD, head.encode())])
            raise Unverified(
                f"the published checkpoint has {stands.size} leaves, the database only {head.size}: "
                "it was replaced by an older one; restore it before anything is sequenced",
                subject=CHECKPOINT,
            )
        if stands.size and stands.note != db.get(keys.checkpoint(stands.size)):
            raise Unverified(
                f"the published checkpoint of size {stands.size} is not the one this timeline signed",
                subject=CHECKPOINT,
            )
        return _Open(db, head, edge, ring, stands, head.announced)

    @contextmanager
    def _or_let_go(self) -> Iterator[None]:
        """After an error nobody knows what the open handle shows: the truth is what the next one reads."""
        try:
            yield
        except BaseException:
            self.close()
            raise


__all__ = ["Fenced", "Outcome", "Request", "Sequencer"]
