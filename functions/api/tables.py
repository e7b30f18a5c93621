"""Routes of tables: list, create, describe, change, drop; and read and write their rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.openapi.params import Path, Query

from catalog import Denied, Invalid, NotFound
from catalog.access import Level
from catalog.core.point_in_time import GRAMMAR
from catalog.tables import Column, Drop, Receipt
from functions.api.app import JSON, caller, current_request, lake, respond, respond_cacheable, serve
from functions.api.idempotency import Attempt, commit_token, run_once
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
from functions.api.page_tokens import read_token, write_token
from functions.api.row_formats import ROWS_OUT, plain, read_rows, send_rows

Name = Annotated[str, Path(pattern=NAME, description="`<database>.<table>`")]
Limit = Annotated[int, Query(ge=1, le=1000, description="at most this many")]
Page = Annotated[str | None, Query(max_length=4096, description="`next` of the page before")]
AsOf = Annotated[
    str | None, Query(min_length=1, max_length=256, description=f"the point in time: {GRAMMAR}; default: now")
]
MAX_ROWS = 100_000
MAX_CELLS = 16 << 20
"""Rows times columns of one write: 128 MB of numbers."""
SURE_ROWS = 1000


def authorize(level: Level, table: str) -> str:
    """Returns the table if the caller has the level for it. Denied otherwise; NotFound if it may not even read it."""
    caller().require(level, table)
    return table


@serve("GET /tables", {200: {JSON: TableList}}, tag="tables")
def list_tables(
    database: Annotated[str | None, Query(pattern=r"^[a-z0-9_]{1,128}$")] = None, limit: Limit = 100, page: Page = None
) -> Response[Any]:
    """The tables the caller may read, by name."""
    scope = ["GET /tables", database]
    after = read_token(scope, page) or ""
    try:
        names = lake().tables.list(database)
    except NotFound:
        names = []  # the response must not tell a missing database from one that the caller may not see
    readable = sorted(name for name in caller().readable(names) if name > after)
    following = write_token(scope, readable[limit - 1]) if len(readable) > limit else None
    return respond(TableList(tables=readable[:limit], next=following))


@serve("POST /tables", {201: {JSON: TableOut}}, problems=(403, 409, 413, 415), tag="tables")
def create_table(table: TableIn) -> Response[Any]:
    """Create a table. Needs the role `admin` for its name."""
    if not caller().may(Level.ADMIN, table.name):
        # Before the table is looked up: the response must not disclose whether it exists.
        raise Denied(f"{caller().subject} may not create {table.name}: ask for the role admin", subject=table.name)

    def create(attempt: Attempt) -> TableOut:
        shape: Any = {"mode": table.mode, "key": table.key, "partition": table.partition, "sort": table.sort}
        lake().tables.create(table.name, dict(table.columns), uuid=attempt.id, **shape)
        return described(table.name)

    return run_once(create, 201)


@serve("GET /tables/{t}", {200: {JSON: TableOut}}, tag="tables")
def describe_table(t: Name) -> Response[Any]:
    """Describe a table, by its metadata alone."""
    return respond(described(authorize(Level.READ, t)))


@serve("PATCH /tables/{t}", {200: {JSON: TableOut}}, problems=(403, 409, 413, 415), tag="tables")
def change_table(t: Name, change: TableChange) -> Response[Any]:
    """Change a table's shape: columns, partitions, order, key, mode; all of it or none."""
    authorize(Level.ADMIN, t)
    changes: dict[str, Any] = change.model_dump(exclude_unset=True)
    if not changes:
        raise Invalid("the request changes nothing: send at least one of " + ", ".join(TableChange.model_fields))

    def alter(attempt: Attempt) -> TableOut:
        lake().tables.alter(t, token=attempt.id.hex, **changes)
        return described(t)

    return run_once(alter, 200)


@serve("DELETE /tables/{t}", {204: {}}, problems=(403, 409), tag="tables")
def drop_table(
    t: Name, purge: Annotated[bool, Query(description="also delete its files, permanently")] = False
) -> Response[Any]:
    """Remove a table from the catalog. Its history in the timeline stays."""
    authorize(Level.ADMIN, t)

    def drop(attempt: Attempt) -> None:
        if attempt.noted is None:
            attempt.note(asdict(lake().tables.plan_drop(t)))
        lake().tables.finish_drop(Drop(**attempt.noted), purge=purge)

    return run_once(drop, 204)


@serve("GET /tables/{t}/schemas/{version}", {200: {JSON: SchemaOut}, 304: {}}, tag="tables")
def read_schema(t: Name, version: Annotated[int, Path(ge=0, lt=2**31)]) -> Response[Any]:
    """One version of a table's schema. It never changes: it has an ETag and may be cached."""
    table = lake().tables.load(authorize(Level.READ, t))
    schema = table.schemas().get(version)
    if schema is None:
        raise NotFound(f"{t} has no schema version {version}", subject=t)
    columns = [ColumnOut(name=f.name, type=str(f.field_type), required=f.required, doc=f.doc) for f in schema.fields]
    shown = SchemaOut(table=t, version=version, columns=columns)
    return respond_cacheable(shown.model_dump_json(exclude_none=True), JSON)


@serve("GET /tables/{t}/rows", {200: ROWS_OUT, 303: {JSON: Elsewhere}}, problems=(406,), tag="rows")
def read_table(
    t: Name,
    where: Annotated[str | None, Query(min_length=1, max_length=4000, description="`metres > 5 and sea = 'n'`")] = None,
    columns: Annotated[list[str] | None, Query(max_length=1000)] = None,
    as_of: AsOf = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 1000,
) -> Response[Any]:
    """A table's rows, by default the first thousand. For more than filters and columns use POST /query."""
    authorize(Level.READ, t)
    rows = lake().tables.scan(t, where=where, columns=columns, as_of=as_of, limit=limit + 1)
    return send_rows(rows.slice(0, limit), more=rows.num_rows > limit)


@serve("POST /tables/{t}/rows", {200: {JSON: ReceiptOut}}, problems=(403, 409, 413, 415), tag="rows")
def write_rows(
    t: Name,
    mode: Annotated[Literal["insert", "upsert"], Query()] = "insert",
    key: Annotated[
        list[str] | None, Query(max_length=64, description="for upsert; default: the table's own key")
    ] = None,
) -> Response[Any]:
    """Insert rows, or replace those with the same key: all of them, or none. JSON, Arrow IPC or Parquet.

    With an Idempotency-Key the rows are written once, however often the request is repeated.
    """
    authorize(Level.WRITE, t)
    if key and mode == "insert":
        raise Invalid("`key` needs mode=upsert: an insert does not compare rows")
    rows = read_rows(current_request().media_type, current_request().body)
    _check_cells(t, len(rows))
    token = commit_token()
    if mode == "insert":
        return respond(_receipt(lake().tables.insert(t, rows, token=token)))
    return respond(_receipt(lake().tables.upsert(t, rows, key, token=token)))


@serve("POST /tables/{t}/delete", {200: {JSON: ReceiptOut}}, problems=(403, 409, 413, 415), tag="rows")
def delete_rows(t: Name, which: DeleteIn) -> Response[Any]:
    """Delete the rows that match a filter, or those with the keys in the body."""
    authorize(Level.WRITE, t)
    if (which.where is None) == (which.keys is None):
        raise Invalid("send either `where` or `keys`, and not both")
    return respond(_receipt(lake().tables.delete(t, which.where, keys=which.keys, token=commit_token())))


def _check_cells(table: str, rows: int) -> None:
    """Invalid if the rows would take too much memory in the table: a column that a row lacks takes as much as a value.
    Costs no request that the write does not make."""
    columns = len(lake().tables.table_store.cached(table).schema.fields) if rows > SURE_ROWS else 1
    if rows * columns > MAX_CELLS:
        most = MAX_CELLS // columns
        raise Invalid(f"{rows} rows of {columns} columns are too many at once: send {most} or fewer", subject=table)


def described(name: str) -> TableOut:
    table = lake().tables.describe(name)
    return TableOut(
        name=table.name,
        uuid=table.uuid,
        mode=table.mode,
        key=list(table.key),
        partition=list(table.partition),
        sort=list(table.sort),
        rows=table.rows,
        files=table.files,
        bytes=table.bytes,
        pending_deletes=table.pending_deletes,
        snapshots=table.snapshots,
        snapshot_id=None if table.snapshot_id is None else str(table.snapshot_id),
        committed_ms=table.committed_ms,
        needs_compaction=table.needs_compaction,
        schema_version=lake().tables.table_store.cached(name).metadata.current_schema_id,
        columns=[_column(column) for column in table.columns],
        snapshot_names={tag: str(snapshot) for tag, snapshot in table.tags.items()},
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
