"""A client that asks for a part of a feed is not given a smaller one by the server."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from catalog.changes import ChangeSet, to_ipc
from strandline import Unverified
from strandline.feed_reader import FeedReader
from tests.worlds.forged_log import SIGNER, UUID, ForgedTable, honest

KEY = str(SIGNER.verifier_key)


@dataclass
class Sent:
    changes: ChangeSet

    def to_bytes(self) -> bytes:
        return to_ipc(self.changes)


def read(sent: list[ChangeSet], since: str | int | None = None, until: str | int | None = None) -> None:
    reader = FeedReader(KEY, UUID, since, None, until=until)
    for changes in sent:
        reader.verify(Sent(changes))  # type: ignore[arg-type]
    reader.finish()


@pytest.fixture
def table() -> ForgedTable:
    return honest((3, 5, 7, 4))


def at(table: ForgedTable, number: int) -> str:
    return f"snapshot:{table.sets[number][0].commit.snapshot_id}"


def test_what_was_asked_for_is_accepted(table: ForgedTable) -> None:
    feed = table.feed()
    read(feed)
    read(feed[1:], at(table, 0), at(table, 3))
    read(feed[1:3], at(table, 0), at(table, 2))
    read(feed[1:], "sequence:1")
    read([], at(table, 3), at(table, 3))
    read(feed[2:], 5)


def test_a_feed_that_begins_later_than_asked_is_refused(table: ForgedTable) -> None:
    feed = table.feed()
    for since in (at(table, 0), "sequence:1", None):
        with pytest.raises(Unverified):
            read(feed[2:], since)


def test_a_feed_that_ends_before_the_snapshot_asked_for_is_refused(table: ForgedTable) -> None:
    feed = table.feed()
    for sent in (feed[:2], feed[:1], []):
        with pytest.raises(Unverified, match="left out"):
            read(sent, None, at(table, 2))
    with pytest.raises(Unverified, match="left out"):
        read(feed[1:2], at(table, 0), at(table, 3))
