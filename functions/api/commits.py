"""Commits: a table's history in the timeline, one leaf, its proof; and names for snapshots."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from pyiceberg.table.refs import SnapshotRefType

from catalog.access.roles import Level
from catalog.errors import Denied, Invalid, NotFound
from catalog.events import NameIndex
from catalog.logs import correlation_id
from catalog.merkle import proof as proof_file
from catalog.timeline.leaf import Leaf
from functions.api.app import JSON, TEXT, answer, asked, lake, serve, unchanging
from functions.api.keys import run_once
from functions.api.models import WORD, CommitList, CommitOut, SnapshotIn, SnapshotList, SnapshotOut, TableName
from functions.api.pages import read_token, write_token
from functions.api.tables import Limit, Name, Page, allowed

CommitId = Annotated[
    str,
    Path(
        pattern=r"^([0-9]{1,18}|snapshot-[0-9]{1,19})$",
        description="a leaf's index in the timeline, or `snapshot-<id>` for the leaf that added a snapshot",
    ),
]


@serve("GET /tables/{t}/commits", {200: {JSON: CommitList}}, problems=(422,), tag="history")
def list_commits(
    t: Name,
    since: Annotated[int, Query(ge=-1, lt=2**63, description="only leaves whose sequence is greater")] = -1,
    limit: Limit = 100,
    page: Page = None,
) -> Response[Any]:
    """A table's leaves in the timeline, oldest first and without a gap."""
    allowed(Level.READ, t)
    question = ["GET /tables/{t}/commits", t, since]
    after = read_token(question, page)
    try:
        leaves = list(islice(lake().timeline.commits_since(t, since if after is None else int(after)), limit + 1))
    except NotFound:
        lake().tables.load(t)  # it is there and not sequenced yet; or it is not, and that is the answer
        leaves = []
    following = write_token(question, leaves[limit - 1][1].sequence) if len(leaves) > limit else None
    return answer(CommitList(commits=[_commit(index, leaf) for index, leaf in leaves[:limit]], next=following))


@serve("GET /commits/{id}", {200: {JSON: CommitOut}, 304: {}}, problems=(422,), tag="history")
def read_commit(id: CommitId) -> Response[Any]:
    """One leaf of the timeline, proven against the signed head before it is given. It never changes."""
    index = _find(id)
    return unchanging(_commit(index, lake().timeline.commit(index)).model_dump_json(exclude_none=True), JSON)


@serve("GET /commits/{id}/proof", {200: {"text/plain": None}, 304: {}}, problems=(422,), tag="history")
def prove_commit(id: CommitId) -> Response[Any]:
    """That the commit is in the timeline, as a c2sp.org/tlog-proof@v1 file: checked offline with the public key alone.

    It carries the leaf along. A later request proves the same against a later checkpoint.
    """
    index, timeline = _find(id), lake().timeline
    entry = timeline.commit(index).encode()
    proof = proof_file.write(replace(proof_file.read(timeline.proof(index)), extra=entry))
    return unchanging(proof.decode(), TEXT, "private, no-cache")


@serve("GET /snapshots", {200: {JSON: SnapshotList}}, tag="history")
def list_snapshots(
    table: Annotated[TableName | None, Query(description="only this table's")] = None,
    name: Annotated[str | None, Query(pattern=WORD, description="the cut of the whole lake with this name")] = None,
    limit: Limit = 100,
    page: Page = None,
) -> Response[Any]:
    """Named snapshots, table by table; `limit` counts tables. With `name`: one cut through all tables."""
    if name is not None:
        if table is not None:
            raise Invalid("ask for the names of a table, or for one cut of the lake, and not for both")
        if not asked().known().roles:
            raise NotFound(f"nothing in the timeline has the name {name!r}")
        return answer(SnapshotList(snapshots=[SnapshotOut(name=name, index=lake().timeline.named(name))]))
    question = ["GET /snapshots", table]
    after = read_token(question, page) or ""
    names = [allowed(Level.READ, table)] if table else asked().known().readable(lake().tables.list())
    tables = sorted(found for found in names if found > after)
    found = [snapshot for one in tables[:limit] for snapshot in _tags(one)]
    following = write_token(question, tables[limit - 1]) if len(tables) > limit else None
    return answer(SnapshotList(snapshots=found, next=following))


@serve(
    "POST /snapshots",
    {201: {JSON: SnapshotOut}, 202: {JSON: SnapshotOut}},
    problems=(403, 409, 413, 415, 422),
    tag="history",
)
def name_snapshot(snapshot: SnapshotIn) -> Response[Any]:
    """Give a snapshot a name, which keeps it from expiring; or a cut of the whole lake, which is done soon (202)."""
    if snapshot.table is None:
        if snapshot.snapshot_id is not None:
            raise Invalid("a snapshot's id needs its table")
        return run_once(lambda: _name_cut(snapshot), 202)
    if snapshot.index is not None:
        raise Invalid("an index names a cut of the whole lake: leave the table out")
    table = allowed(Level.WRITE, snapshot.table)

    def give() -> SnapshotOut:
        as_of = None if snapshot.snapshot_id is None else int(snapshot.snapshot_id)
        named = lake().tables.snapshot(table, snapshot.name, as_of=as_of)
        return SnapshotOut(name=snapshot.name, table=table, snapshot_id=str(named.snapshot_id))

    return run_once(give, 201)


def _name_cut(snapshot: SnapshotIn) -> SnapshotOut:
    """Every table is in the cut, so it takes somebody who may write to every table."""
    if not asked().known().may(Level.WRITE, "*"):
        raise Denied(f"{asked().known().subject} may not name cuts of the whole lake: that takes writer:*")
    fields = {"name": snapshot.name, "index": snapshot.index}
    lake().ask(NameIndex(**fields, correlation_id=correlation_id() or asked().request_id))
    return SnapshotOut(name=snapshot.name, index=snapshot.index)


def _tags(table: str) -> list[SnapshotOut]:
    try:
        refs = lake().tables.load(table).metadata.refs
    except NotFound:
        return []  # dropped meanwhile
    tags = {name: ref for name, ref in refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG}
    return [SnapshotOut(name=name, table=table, snapshot_id=str(ref.snapshot_id)) for name, ref in sorted(tags.items())]


def _find(id: str) -> int:
    """The leaf's index, if the caller may read its table. Another's commit is one that is not there."""
    missing = NotFound(f"there is no commit {id}, or none that you may read", subject=id)
    try:
        if id.startswith("snapshot-"):
            index, leaf = lake().timeline.find(int(id.removeprefix("snapshot-")))
        else:
            index, leaf = int(id), lake().timeline.commit(int(id))
    except NotFound:
        raise missing from None
    if not asked().known().may(Level.READ, leaf.table):
        raise missing
    return index


def _commit(index: int, leaf: Leaf) -> CommitOut:
    return CommitOut(
        index=index,
        table=leaf.table,
        table_uuid=leaf.table_uuid,
        snapshot_id=None if leaf.snapshot_id is None else str(leaf.snapshot_id),
        parent_id=None if leaf.parent_id is None else str(leaf.parent_id),
        sequence=leaf.sequence,
        committed_ms=leaf.committed_ms,
        sequenced_ms=leaf.sequenced_ms,
        operation=leaf.operation,
        ref=leaf.ref,
        entry=leaf.encode().decode(),
    )
