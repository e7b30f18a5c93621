"""Known defects, put back for the time of a run: the simulator must find each. Some it found in the lake itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from catalog.core import aws_clock
from catalog.core.events import NameIndex
from catalog.tables import expiry, transactions
from catalog.tables.committer import Committer
from catalog.tables.glue_store import GlueTableStore
from catalog.timeline.log import store, store_keys
from catalog.timeline.sequencer import sequencer
from catalog.timeline.sequencer.batch import Batch
from tests.simulation.cloud import Cloud

Defect = Callable[[ExitStack, Cloud], None]


def ignore_glue_version(stack: ExitStack, cloud: Cloud) -> None:
    """Glue's VersionId is not compared: of two commits at once, the later one replaces the other."""
    stack.enter_context(patch.object(cloud.glue, "is_current", lambda entry, version: True))


def forget_expired_tokens(stack: ExitStack, cloud: Cloud) -> None:
    """The tokens of expired snapshots are not kept: a repeated request is committed again."""
    stack.enter_context(patch.object(expiry, "keep_tokens", lambda version, expired, io: ([], [])))


def bind_names_late(stack: ExitStack, cloud: Cloud) -> None:
    """A name is given to the index that is newest when the sequencer reads the request."""
    original = Batch.add_request

    def add_request(self: Batch, request: Any, size: int, *more: Any) -> None:
        if isinstance(request, NameIndex):
            request = request.model_copy(update={"index": size - 1})
        original(self, request, size, *more)

    stack.enter_context(patch.object(Batch, "add_request", add_request))


def trust_messages(stack: ExitStack, cloud: Cloud) -> None:
    """Only tables that a message names are inspected: a sweep inspects none."""
    stack.enter_context(patch.object(sequencer, "tables_to_inspect", lambda database, listed: []))


def keep_old_readers(stack: ExitStack, cloud: Cloud) -> None:
    """Compaction deletes what it replaced at once, and a reader that misses a file does not open the database again."""
    stack.enter_context(patch.object(store, "GARBAGE_AGE_MS", 0))
    stack.enter_context(patch.object(store.StoreReader, "_replace", lambda self, handle, error: False))


def compact_with_stale_head(stack: ExitStack, cloud: Cloud) -> None:
    """After a compaction the sequencer goes on with the log as it knew it before. The simulator found it."""

    def compact(self: Any, log: Any) -> None:
        self._log = replace(log, db=log.db.compact())

    stack.enter_context(patch.object(sequencer.Sequencer, "_compact", compact))


def refuse_when_fenced(stack: ExitStack, cloud: Cloud) -> None:
    """A fenced sequencer refuses requests by what it knew before it was fenced. The simulator found it."""
    original = store.StoreWriter.write

    def write(self: Any, puts: Any, deletes: Any = ()) -> None:
        puts = list(puts)
        if [key for key, _ in puts] != [store_keys.HEAD]:
            original(self, puts, deletes)

    stack.enter_context(patch.object(store.StoreWriter, "write", write))


def cache_snapshots_by_id(stack: ExitStack, cloud: Cloud) -> None:
    """A staged snapshot's JSON is cached by its id: after a lost race, that of the first attempt is committed, whose
    files are deleted. The simulator found it."""
    original = GlueTableStore._encode_snapshot

    def encode(self: Any, uuid: str, snapshot: Any) -> str:
        first = self.__dict__.setdefault("_first", {})
        document: str = first.setdefault((uuid, snapshot.snapshot_id, snapshot.parent_snapshot_id), None) or original(
            self, uuid, snapshot
        )
        first[uuid, snapshot.snapshot_id, snapshot.parent_snapshot_id] = document
        return document

    stack.enter_context(patch.object(GlueTableStore, "_encode_snapshot", encode))


def fail_on_expired_files(stack: ExitStack, cloud: Cloud) -> None:
    """A write that is planned while its files expire fails with an error of no kind. The simulator found it."""

    def check(self: Any, version: Any, missing: FileNotFoundError) -> None:
        raise missing

    stack.enter_context(patch.object(Committer, "_check_outdated", check))


def read_without_holding(stack: ExitStack, cloud: Cloud) -> None:
    """A transaction commits although a table has changed since it was read: an update of another writer is lost."""
    stack.enter_context(patch.object(transactions, "check_unchanged", lambda read, current: None))


def believe_the_clock(stack: ExitStack, cloud: Cloud) -> None:
    """A clock that is ahead is not held against AWS's."""
    stack.enter_context(patch.object(aws_clock, "AHEAD_MS", 10**9))


DEFECTS: tuple[Defect, ...] = (
    ignore_glue_version,
    forget_expired_tokens,
    bind_names_late,
    trust_messages,
    keep_old_readers,
    compact_with_stale_head,
    refuse_when_fenced,
    cache_snapshots_by_id,
    fail_on_expired_files,
    read_without_holding,
    believe_the_clock,
)
