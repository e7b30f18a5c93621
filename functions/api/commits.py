"""Routes of history: a table's leaves in the timeline, one leaf, its proof; and named snapshots."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Annotated, Any
from urllib.parse import parse_qsl

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query
from pyiceberg.table.refs import SnapshotRefType

from catalog import Denied, Invalid, NotFound
from catalog.access import Level
from catalog.changes import KeySet, sequence_at
from catalog.core.logs import correlation_id
from catalog.core.point_in_time import FEED_GRAMMAR, SnapshotId
from catalog.merkle import proof as proof_file
from catalog.timeline import Leaf
from functions.api.app import JSON, TEXT, caller, current_request, lake, respond, respond_cacheable, serve
from functions.api.idempotency import Attempt, run_once
from functions.api.models import WORD, AnswerIn, CommitList, CommitOut, SnapshotIn, SnapshotList, SnapshotOut, TableName
from functions.api.page_tokens import read_token, write_token
from functions.api.tables import Limit, Name, Page, authorize

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
    since: Annotated[
        str | None, Query(min_length=1, max_length=256, description=f"only leaves after this position: {FEED_GRAMMAR}")
    ] = None,
    limit: Limit = 100,
    page: Page = None,
) -> Response[Any]:
    """A table's leaves in the timeline, oldest first and without gaps."""
    authorize(Level.READ, t)
    scope = ["GET /tables/{t}/commits", t, since]
    after = read_token(scope, page)
    if after is None:
        after = -1 if since is None else sequence_at(lake().timeline, lake().tables.load(t), since)
    try:
        leaves = list(islice(lake().timeline.commits_since(t, int(after)), limit + 1))
    except NotFound:
        lake().tables.load(t)  # raises NotFound if there is no table; otherwise it is not sequenced yet
        leaves = []
    following = write_token(scope, leaves[limit - 1][1].sequence) if len(leaves) > limit else None
    return respond(CommitList(commits=[_commit(index, leaf) for index, leaf in leaves[:limit]], next=following))


@serve("GET /commits/{id}", {200: {JSON: CommitOut}, 304: {}}, problems=(422,), tag="history")
def read_commit(id: CommitId) -> Response[Any]:
    """One leaf of the timeline, verified against the signed checkpoint. It never changes."""
    index = _find(id)
    return respond_cacheable(_commit(index, lake().timeline.commit(index)).model_dump_json(exclude_none=True), JSON)


@serve("GET /commits/{id}/proof", {200: {"text/plain": None}, 304: {}}, problems=(422,), tag="history")
def prove_commit(id: CommitId) -> Response[Any]:
    """The proof that the commit is in the timeline, as a c2sp.org/tlog-proof@v1 file.

    It contains the leaf, and is verified offline with the public key alone. A later request may return a proof against
    a later checkpoint.
    """
    index, timeline = _find(id), lake().timeline
    entry = timeline.commit(index).encode()
    proof = proof_file.write(replace(proof_file.read(timeline.proof(index)), extra=entry))
    return respond_cacheable(proof.decode(), TEXT, "private, no-cache")


@serve("GET /tables/{t}/rows/{key}/proof", {200: {"text/plain": None}, 304: {}}, problems=(422,), tag="history")
def prove_row(
    t: Name,
    key: Annotated[
        str, Path(min_length=3, max_length=4096, description="the row's key, form-encoded: `id=4711`, `a=1&b=2`")
    ],
    at: Annotated[
        str | None, Query(min_length=1, max_length=256, description="an index of the timeline or a time; default: now")
    ] = None,
    values: Annotated[bool, Query(description="whether the proof shows the row, and not only its digest")] = True,
) -> Response[Any]:
    """The proof that a table had a row of this key at a point in time, or had none: a c2sp.org/tlog-proof@v1 file.

    It is verified offline with the public key, the table, the key and the point (`strandline proof verify`).
    """
    authorize(Level.READ, t)
    try:
        columns = parse_qsl(key, keep_blank_values=True, strict_parsing=True, max_num_fields=100)
    except ValueError:
        raise Invalid(f"{key!r} is not a key: write it as column=value, several joined by &") from None
    if len(dict(columns)) != len(columns):
        raise Invalid(f"{key!r} has a column twice")
    proof = lake().prove_row(t, dict(columns), at, values=values)
    return respond_cacheable(proof.write().decode(), TEXT, "private, no-cache")


@serve("POST /tables/{t}/rows/proof", {200: {"text/plain": None}}, problems=(422,), tag="history")
def prove_answer(t: Name, asked: AnswerIn) -> Response[Any]:
    """The proof of all rows that a table had of some keys at a point in time: a c2sp.org/tlog-proof@v1 file.

    The keys are every combination of the columns' values and ranges, at most 1,000. It is verified offline with the
    public key, the table, the keys and the point (`strandline proof verify`).
    """
    authorize(Level.READ, t)
    ranges = {column: (first, last) for column, (first, last) in asked.ranges.items()}
    proof = lake().prove_answer(t, KeySet(asked.keys, ranges), asked.at, values=asked.values)
    return Response(status_code=200, content_type=TEXT, body=proof.write().decode())


@serve("GET /snapshots", {200: {JSON: SnapshotList}}, tag="history")
def list_snapshots(
    table: Annotated[TableName | None, Query(description="only snapshots of this table")] = None,
    name: Annotated[str | None, Query(pattern=WORD, description="the cut of the whole lake with this name")] = None,
    limit: Limit = 100,
    page: Page = None,
) -> Response[Any]:
    """Named snapshots, table by table; `limit` counts tables. With `name`: one cut through all tables."""
    if name is not None:
        if table is not None:
            raise Invalid("send either `table` for the names of a table, or `name` for a cut of the lake, and not both")
        if not caller().roles:
            raise NotFound(f"no index of the timeline is named {name!r}")
        return respond(SnapshotList(snapshots=[SnapshotOut(name=name, index=lake().timeline.named(name))]))
    scope = ["GET /snapshots", table]
    after = read_token(scope, page) or ""
    names = [authorize(Level.READ, table)] if table else caller().readable(lake().tables.list())
    tables = sorted(table_name for table_name in names if table_name > after)
    snapshots = [snapshot for table_name in tables[:limit] for snapshot in _tags(table_name)]
    following = write_token(scope, tables[limit - 1]) if len(tables) > limit else None
    return respond(SnapshotList(snapshots=snapshots, next=following))


@serve(
    "POST /snapshots",
    {201: {JSON: SnapshotOut}, 202: {JSON: SnapshotOut}},
    problems=(403, 409, 413, 415, 422),
    tag="history",
)
def name_snapshot(snapshot: SnapshotIn) -> Response[Any]:
    """Name a snapshot of a table, which keeps it from expiring; or a cut of the whole lake, which takes a moment (202).

    Without an index in the request, the newest published one is named; the response has it.
    """
    if snapshot.table is None:
        if snapshot.snapshot_id is not None:
            raise Invalid("`snapshot_id` needs `table`: snapshot ids are of one table")
        return run_once(lambda _: _name_cut(snapshot), 202)
    if snapshot.index is not None:
        raise Invalid("`index` names a cut of the whole lake: leave out `table`")
    table = authorize(Level.WRITE, snapshot.table)

    def name(attempt: Attempt) -> SnapshotOut:
        snapshot_id = attempt.noted if snapshot.snapshot_id is None else int(snapshot.snapshot_id)
        if snapshot_id is None:
            # The current one: recorded, because it may be another when the request is repeated.
            snapshot_id = lake().tables.load(table).metadata.current_snapshot_id
            attempt.note(snapshot_id)
        as_of = None if snapshot_id is None else SnapshotId(int(snapshot_id))
        named = lake().tables.snapshot(table, snapshot.name, as_of=as_of)
        return SnapshotOut(name=snapshot.name, table=table, snapshot_id=str(named.snapshot_id))

    return run_once(name, 201)


def _name_cut(snapshot: SnapshotIn) -> SnapshotOut:
    """Requires write access to every table, since every table is in the cut."""
    if not caller().may(Level.WRITE, "*"):
        raise Denied(f"{caller().subject} may not name a cut of the whole lake: ask for the role writer:*")
    sender = correlation_id() or current_request().request_id
    index = lake().name_index(snapshot.name, snapshot.index, correlation_id=sender)
    return SnapshotOut(name=snapshot.name, index=index)


def _tags(table: str) -> list[SnapshotOut]:
    try:
        refs = lake().tables.load(table).metadata.refs
    except NotFound:
        return []  # dropped meanwhile
    tags = {name: ref for name, ref in refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG}
    return [SnapshotOut(name=name, table=table, snapshot_id=str(ref.snapshot_id)) for name, ref in sorted(tags.items())]


def _find(id: str) -> int:
    """The leaf's index. NotFound also if the caller may not read its table."""
    missing = NotFound(f"there is no commit {id} that you may read", subject=id)
    try:
        if id.startswith("snapshot-"):
            index, leaf = lake().timeline.find(int(id.removeprefix("snapshot-")))
        else:
            index, leaf = int(id), lake().timeline.commit(int(id))
    except NotFound:
        raise missing from None
    if not caller().may(Level.READ, leaf.table):
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
