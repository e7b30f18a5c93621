"""An operator with the signing key and the whole bucket uses an erasure to change what was committed. He is found out.

Each forgery is complete: new objects, a record of them, and an `erase` leaf that the lake's own sequencer signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pytest

from catalog.erasure import replacement
from catalog.erasure.completion import Completion
from catalog.erasure.replacement import SnapshotReplacer, replaced_objects
from catalog.iceberg import Positions
from catalog.tables import history_rewrite
from catalog.tables.file_writer import encode
from catalog.tables.history_rewrite import History, HistoryRewriter, RewrittenHistory
from catalog.timeline import ErasedChange, ErasedRow, Erasure, Replaced
from catalog.timeline.verify.erasures import Erasures, Replacement
from catalog.timeline.verify.objects import ObjectVerification
from catalog.timeline.verify.verifier import Verifier
from infra.local.server import ApiServer
from tests.contract.erasure.test_erasure import SCHEMA, people, small_table
from tests.worlds.changes import World
from tests.worlds.erasure import erase, eraser, make_erasure_world

Twist = Callable[[Erasure], Erasure]
Edit = Callable[[pa.Table], pa.Table]


@pytest.fixture
def world(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = make_erasure_world(server, monkeypatch)
    yield made
    made.close()


@dataclass
class ForgedHistory:
    """Runs the honest rewrite, whose commitments the forger shows, and one whose files he edits, which he commits."""

    history: History
    positions: dict[str, Positions]
    edit: Edit

    def check(self) -> list[int]:
        return HistoryRewriter(self.history, self.positions).check()

    def run(self) -> Any:
        honest = HistoryRewriter(self.history, self.positions).run()
        forged = _Editing(self.history, self.positions)
        forged.edit = self.edit
        return _Forged(*_fields(forged.run()), honest)


def _fields(rewritten: RewrittenHistory) -> tuple[Any, Any, Any]:
    return rewritten.objects, rewritten.positions, rewritten.snapshots


@dataclass(frozen=True)
class _Forged(RewrittenHistory):
    honest: RewrittenHistory


class _Editing(HistoryRewriter):
    edit: Edit

    def _without_rows(self, file: Any, positions: Positions) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(history_rewrite, "encode", lambda rows, codec: encode(self.edit(rows), codec))
            return super()._without_rows(file, positions)


def forge(world: World, monkeypatch: pytest.MonkeyPatch, name: str, edit: Edit, twist: Twist = lambda e: e) -> None:
    """Commits the edited history under the commitments of the honest one, changed by a twist. Deletes nothing."""
    record = SnapshotReplacer._record

    def forged(self: SnapshotReplacer, version: Any, io: Any, leaves: Any, rewritten: Any, reason: str) -> Erasure:
        honest = record(self, version, io, leaves, rewritten.honest, reason)
        return twist(replace(honest, objects=replaced_objects(io, rewritten)))

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotReplacer, "_record", forged)
        patch.setattr(Completion, "run", lambda self, table, leaves: 0)
        patch.setattr(replacement, "HistoryRewriter", lambda history, at: ForgedHistory(history, at, edit))
        eraser(world).erase(name, keys=[{"id": 7}], reason="asked to")
    world.caught_up()


def faults(world: World) -> list[str]:
    return [str(fault) for fault in world.verify().faults]


def renamed(old: str, new: str) -> Edit:
    def edit(rows: pa.Table) -> pa.Table:
        names = [new if value == old else value for value in rows["name"].to_pylist()]
        at = rows.schema.get_field_index("name")
        field = rows.schema.field(at)
        return rows.set_column(at, field, pa.array(names, field.type))

    return edit


def unchanged(rows: pa.Table) -> pa.Table:
    return rows


def test_the_same_way_without_an_edit_is_an_honest_erasure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = small_table(world)
    forge(world, monkeypatch, name, unchanged)
    assert faults(world) == []


@pytest.mark.parametrize(
    "edit",
    [
        renamed("person 5", "somebody else"),
        lambda rows: rows.filter(pa.array([value != "person 5" for value in rows["name"].to_pylist()])),
        lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
        lambda rows: rows.slice(0, 0) if len(rows) > 1 else rows,
    ],
    ids=["another value", "a row less", "a row twice", "all rows less"],
)
def test_no_row_but_the_erased_one_may_differ(world: World, monkeypatch: pytest.MonkeyPatch, edit: Edit) -> None:
    name = small_table(world)
    forge(world, monkeypatch, name, edit)
    assert faults(world)


def test_a_row_cannot_be_changed_by_stating_that_it_was_erased(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change of the row is listed as erased, so that its place is taken; the other row in the file has none."""
    name = small_table(world)
    leaves = [leaf for _, leaf in world.public().commits_since(name)]
    counts = {leaf.sequence: leaf.changes_count for leaf in leaves if leaf.changes_count}

    def twist(erasure: Erasure) -> Erasure:
        taken = {(change.sequence, change.position) for change in erasure.changes}
        more = [
            ErasedChange(sequence, position, "ab" * 32)
            for sequence, count in counts.items()
            for position in range(count or 0)
            if (sequence, position) not in taken
        ]
        return replace(erasure, changes=(*erasure.changes, *more))

    forge(world, monkeypatch, name, renamed("person 5", "somebody else"), twist)
    assert any("changes_root" in fault for fault in faults(world))


def test_a_state_cannot_be_made_up_for_by_listing_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = small_table(world)
    last = [leaf.sequence for _, leaf in world.public().commits_since(name)][-1]
    twist: Twist = lambda erasure: replace(erasure, rows=(*erasure.rows, ErasedRow("cd" * 32, 0, last)))  # noqa: E731
    forge(world, monkeypatch, name, unchanged, twist)
    assert any("state_digest" in fault for fault in faults(world))


def test_what_is_erased_beyond_what_was_asked_for_is_counted_and_shown(world: World) -> None:
    """Nobody can tell why a row was erased; but that it was, how many, and by which leaf, everybody sees."""
    name = small_table(world)
    erase(world, name, keys=[{"id": 7}, {"id": 5}])
    report = world.verify()
    assert report.faults == () and [each.rows for each in report.erased] == [2]


def test_rows_of_many_commits_are_all_counted(world: World) -> None:
    """Each was inserted and deleted by commits of its own, so that main never had two of them."""
    tables, name = world.lake.tables, world.name()
    tables.create(name, SCHEMA, key=["id"])
    tables.insert(name, people(100))
    for id_ in range(4):
        tables.insert(name, people(id_))
        tables.delete(name, f"id = {id_}")
    erase(world, name, where="id < 50")
    (erased,) = world.verify().erased
    assert (erased.rows, erased.changes) == (4, 8)


def test_an_object_is_not_replaced_in_place(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with other rows at the attested path: its manifests and lists stay, so nobody would compute its rows."""
    name = small_table(world)
    s3, bucket = world.client("s3"), world.bucket
    table = world.plain(name)
    (task,) = table.scan(snapshot_id=table.metadata.snapshots[-1].snapshot_id, row_filter="id = 5").plan_files()
    path = task.file.file_path
    data = s3.get_object(Bucket=bucket, Key=path.removeprefix(f"s3://{bucket}/"))["Body"].read()

    def twist(erasure: Erasure) -> Erasure:
        entry = Replaced(
            path, len(data), sha256(data).hexdigest(), path, len(data) + 1, sha256(data + b"x").hexdigest()
        )
        others = tuple(each for each in erasure.objects if each.path != path)
        return replace(erasure, objects=(*others, entry))

    forge(world, monkeypatch, name, unchanged, twist)
    s3.put_object(Bucket=bucket, Key=path.removeprefix(f"s3://{bucket}/"), Body=data + b"x")
    assert any("puts an object where another one was" in fault for fault in faults(world))


def test_an_object_of_a_snapshot_is_not_replaced_by_another_of_its_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The walk finds it, too: a path that a commit attested stands for nothing but itself."""
    name = small_table(world)
    (path, *_) = [task.file.file_path for task in world.plain(name).scan().plan_files()]
    forged = Erasures()
    forged._replacements[path] = Replacement(path, 1, "a", 1, "b", 3)
    monkeypatch.setattr(ObjectVerification, "_erasures", lambda self, uuid: forged)
    assert any("under its own path" in fault for fault in faults(world))


def test_naming_an_earlier_erasure_again_permits_nothing_and_is_no_damage(world: World) -> None:
    """Whoever may set a table's properties must not be able to make its history unverifiable for ever."""
    name = small_table(world)
    first, second = (str(erase(world, name, keys=[{"id": id_}]).erasure) for id_ in (7, 5))
    assert first != second
    world.lake.tables.alter(name, properties={"strandline.erasure": first})
    leaves = [leaf for _, leaf in world.caught_up().commits_since(name)]
    assert [leaf.operation for leaf in leaves][-1] == "erase" and leaves[-1].content_count
    report = world.verify()
    assert report.faults == () and len(report.erased) == 2


def test_an_object_that_was_not_attested_is_not_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = small_table(world)

    def twist(erasure: Erasure) -> Erasure:
        wrong = [entry._replace(sha256="ef" * 32) for entry in erasure.objects]
        return replace(erasure, objects=tuple(Replaced(*entry) for entry in wrong))

    forge(world, monkeypatch, name, unchanged, twist)
    assert faults(world)


def test_without_its_record_or_with_another_an_erasure_is_damage(world: World) -> None:
    name = small_table(world)
    result = erase(world, name, keys=[{"id": 7}])
    s3, uuid = world.client("s3"), str(world.plain(name).metadata.table_uuid)
    key = f"erasures/{uuid}/{result.erasure}"
    record = s3.get_object(Bucket=world.bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=world.bucket, Key=key, Body=record.replace(b"asked to", b"asked by"))
    found = faults(world)
    assert any("no record, or another one" in fault for fault in found)
    assert any("not those that were committed" in fault or "did not add it" in fault for fault in found)
    s3.delete_object(Bucket=world.bucket, Key=key)
    assert faults(world)
    s3.put_object(Bucket=world.bucket, Key=key, Body=record)
    assert faults(world) == []
    new = [entry for entry in Erasure.decode(record).objects if entry.new_path and entry.new_path.endswith(".parquet")]
    path = str(new[0].new_path).removeprefix(f"s3://{world.bucket}/")
    data = s3.get_object(Bucket=world.bucket, Key=path)["Body"].read()
    s3.put_object(Bucket=world.bucket, Key=path, Body=data[:8] + bytes([data[8] ^ 1]) + data[9:])
    assert any("erasure of leaf" in fault for fault in faults(world))


def test_what_nobody_computed_again_is_not_believed(world: World) -> None:
    name = small_table(world)
    erase(world, name, keys=[{"id": 7}])
    full: Verifier = world.another().verifier
    blind = replace(full, recount=None, compute_state=None).verify(deep=True)
    assert any("may be others than were committed" in fault.what for fault in blind.faults)


def test_a_property_alone_erases_nothing(world: World) -> None:
    """A writer names an erasure that has no record: the leaf says that metadata changed."""
    name = world.name()
    world.lake.tables.create(name, SCHEMA, key=["id"])
    world.lake.tables.insert(name, people(1))
    world.caught_up()
    world.lake.tables.alter(name, properties={"strandline.erasure": "0" * 32})
    leaves = [leaf for _, leaf in world.caught_up().commits_since(name)]
    assert leaves[-1].operation == "metadata"
    assert faults(world) == []
