"""Tables: listed, made, described, changed, dropped; and their rows, read and written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from catalog.access.roles import Level
from catalog.errors import Denied, Invalid, NotFound
from catalog.tables.commits import Receipt
from catalog.tables.describe import Column
from functions.api.app import JSON, answer, asked, lake, serve, unchanging
from functions.api.formats import ROWS_OUT, plain, read_rows, send_rows
from functions.api.keys import commit_token, run_once
from functions.api.models import (
    NAME,
    ColumnOut,
    DeleteIn,
    Elsewhere,
    ReceiptOut,
    SchemaOut,
    TableChange,
    TableIn,
    TableList,
    TableOut,
)
from functions.api.pages import read_token, write_token

Name = Annotated[str, Path(pattern=NAME, description="`<database>.<table>`")]
Limit = Annotated[int, Query(ge=1, le=1000, description="at most this many")]
Page = Annotated[str | None, Query(max_length=4096, description="`next` of the page before")]
MAX_ROWS = 100_000


def allowed(level: Level, table: str) -> str:
    asked().known().require(level, table)
    return table


@serve("GET /tables", {200: {JSON: TableList}}, tag="tables")
def list_tables(
    database: Annotated[str | None, Query(pattern=r"^[a-z0-9_]{1,128}$")] = None, limit: Limit = 100, page: Page = None
) -> Response[Any]:
    """The tables the caller may read, by name."""
    question = ["GET /tables", database]
    after = read_token(question, page) or ""
    try:
        names = lake().tables.list(database)
    except NotFound:
        names = []  # a database nobody may see is a database that is not there
    found = sorted(name for name in asked().known().readable(names) if name > after)
    following = write_token(question, found[limit - 1]) if len(found) > limit else None
    return answer(TableList(tables=found[:limit], next=following))


@serve("POST /tables", {201: {JSON: TableOut}}, problems=(403, 409, 413, 415, 422), tag="tables")
def create_table(table: TableIn) -> Response[Any]:
    """Make a table. Needs the role `admin` for its name."""
    if not asked().known().may(Level.ADMIN, table.name):
        # Said before anybody looks whether it exists.
        raise Denied(f"{asked().known().subject} may not make {table.name}: ask for the role", subject=table.name)

    def make() -> TableOut:
        shape: Any = {"mode": table.mode, "key": table.key, "partition": table.partition, "sort": table.sort}
        lake().tables.create(table.name, dict(table.columns), **shape)
        return described(table.name)

    return run_once(make, 201)


@serve("GET /tables/{t}", {200: {JSON: TableOut}}, tag="tables")
def describe_table(t: Name) -> Response[Any]:
    """What a table is and holds, from its metadata alone."""
    return answer(described(allowed(Level.READ, t)))


@serve("PATCH /tables/{t}", {200: {JSON: TableOut}}, problems=(403, 409, 413, 415, 422), tag="tables")
def change_table(t: Name, change: TableChange) -> Response[Any]:
    """Change a table's shape: columns, partitions, order, key, mode; all of it or none."""
    allowed(Level.ADMIN, t)
    wanted: dict[str, Any] = change.model_dump(exclude_unset=True)
    if not wanted:
        raise Invalid("nothing to change: name at least one of " + ", ".join(TableChange.model_fields))

    def alter() -> TableOut:
        lake().tables.alter(t, **wanted)
        return described(t)

    return run_once(alter, 200)


@serve("DELETE /tables/{t}", {204: {}}, problems=(403, 409, 422), tag="tables")
def drop_table(
    t: Name, purge: Annotated[bool, Query(description="delete its files, too, for good")] = False
) -> Response[Any]:
    """Take a table from the catalog. Its history in the timeline stays."""
    allowed(Level.ADMIN, t)
    return run_once(lambda: lake().tables.drop(t, purge=purge), 204)


@serve("GET /tables/{t}/schemas/{version}", {200: {JSON: SchemaOut}, 304: {}}, tag="tables")
def read_schema(t: Name, version: Annotated[int, Path(ge=0, lt=2**31)]) -> Response[Any]:
    """One version of a table's schema. It never changes: it has an ETag and may be kept."""
    table = lake().tables.load(allowed(Level.READ, t))
    schema = table.schemas().get(version)
    if schema is None:
        raise NotFound(f"{t} has no schema {version}", subject=t)
    columns = [ColumnOut(name=f.name, type=str(f.field_type), required=f.required, doc=f.doc) for f in schema.fields]
    return unchanging(SchemaOut(table=t, version=version, columns=columns).model_dump_json(exclude_none=True), JSON)


@serve("GET /tables/{t}/rows", {200: ROWS_OUT, 303: {JSON: Elsewhere}}, problems=(406,), tag="rows")
def read_table(
    t: Name,
    where: Annotated[str | None, Query(min_length=1, max_length=4000, description="`metres > 5 and sea = 'n'`")] = None,
    columns: Annotated[list[str] | None, Query(max_length=1000)] = None,
    as_of: Annotated[str | None, Query(max_length=128, description="a snapshot's id or name")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 1000,
) -> Response[Any]:
    """A table's rows, by default a thousand of them. For more than filters and columns there is POST /query."""
    allowed(Level.READ, t)
    moment: Any = int(as_of) if as_of is not None and as_of.lstrip("-").isdecimal() else as_of
    rows = lake().tables.scan(t, where=where, columns=columns, as_of=moment, limit=limit + 1)
    return send_rows(rows.slice(0, limit), more=rows.num_rows > limit)


@serve("POST /tables/{t}/rows", {200: {JSON: ReceiptOut}}, problems=(403, 409, 413, 415, 422), tag="rows")
def write_rows(
    t: Name,
    mode: Annotated[Literal["insert", "upsert"], Query()] = "insert",
    key: Annotated[
        list[str] | None, Query(max_length=64, description="for upsert; default: the table's own key")
    ] = None,
) -> Response[Any]:
    """Add rows, or replace those with the same key: all of them, or none. JSON, Arrow IPC or Parquet.

    With an Idempotency-Key the rows are written once, however often the request is sent.
    """
    allowed(Level.WRITE, t)
    if key and mode == "insert":
        raise Invalid("a key is for mode=upsert: insert compares nothing")
    rows, token = read_rows(asked().media_type, asked().body), commit_token()
    if mode == "insert":
        return answer(_receipt(lake().tables.insert(t, rows, token=token)))
    return answer(_receipt(lake().tables.upsert(t, rows, key, token=token)))


@serve("POST /tables/{t}/delete", {200: {JSON: ReceiptOut}}, problems=(403, 409, 413, 415, 422), tag="rows")
def delete_rows(t: Name, which: DeleteIn) -> Response[Any]:
    """Delete the rows a filter is true for, or those with the given keys."""
    allowed(Level.WRITE, t)
    if (which.where is None) == (which.keys is None):
        raise Invalid("delete takes either `where` or `keys`")
    return answer(_receipt(lake().tables.delete(t, which.where, keys=which.keys, token=commit_token())))


def described(name: str) -> TableOut:
    found = lake().tables.describe(name)
    return TableOut(
        name=found.name,
        uuid=found.uuid,
        mode=found.mode,
        key=list(found.key),
        partition=list(found.partition),
        sort=list(found.sort),
        rows=found.rows,
        files=found.files,
        bytes=found.bytes,
        pending_deletes=found.pending_deletes,
        snapshots=found.snapshots,
        snapshot_id=None if found.snapshot_id is None else str(found.snapshot_id),
        committed_ms=found.committed_ms,
        needs_compaction=found.needs_compaction,
        schema_version=lake().tables.catalogue.known(name).metadata.current_schema_id,
        columns=[_column(column) for column in found.columns],
        snapshot_names={tag: str(snapshot) for tag, snapshot in found.tags.items()},
    )


def _column(column: Column) -> ColumnOut:
    return ColumnOut(
        name=column.name,
        type=column.type,
        required=column.required,
        doc=column.doc,
        low=plain(column.low),
        high=plain(column.high),
        nulls=column.nulls,
    )


def _receipt(receipt: Receipt) -> ReceiptOut:
    return ReceiptOut(
        table=receipt.table,
        snapshot_id=None if receipt.snapshot_id is None else str(receipt.snapshot_id),
        sequence=receipt.sequence,
        rows=receipt.rows,
        matched=receipt.matched,
        replayed=receipt.replayed,
        mode=receipt.mode,
        reason=receipt.reason,
    )
