"""`Writes` runs statements that write. Roles are checked before anything is read, as the API's routes check them.

The SELECT of a statement runs as a query of the caller: with its grants, in a worker where the API uses workers, which
cannot write to a table. It reads each table's newest commit. Then the table API commits what it returned; if rows that
it found were changed meanwhile, the statement runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from uuid import UUID, uuid4

import pyarrow as pa
from pyiceberg.schema import Schema

from catalog.access import Caller, Level
from catalog.core.errors import Conflict, Denied, Invalid, LakeError, NotFound
from catalog.query.run.engine import quote_identifier
from catalog.query.run.results import Answer
from catalog.query.scan.scan_sql import FILE, ROW
from catalog.query.spark.spark_queries import QueryStatus
from catalog.query.sql.column_types import stored_schema
from catalog.query.sql.merge_statement import Merge
from catalog.query.sql.statement import parse
from catalog.query.sql.write_statements import (
    Alter,
    Create,
    Delete,
    Drop,
    Insert,
    RowStatement,
    Update,
    WriteStatement,
    parse_writes,
)
from catalog.query.write.conversion import converted
from catalog.query.write.merging import MERGE_COLUMNS, Merging, search_text
from catalog.tables import AddressedChange, Addresses, StaleRead, Tables, Transaction
from catalog.tables import Drop as PlannedDrop
from catalog.tables import Receipt as CommitReceipt

ATTEMPTS = 5
_SOURCE = "strandline_source"
Ask = Callable[..., Answer | QueryStatus]
"""`Queries.ask` or `QueryWorkers.ask`, with limits and parameters given."""
Reads = dict[str, int | None]
"""Snapshots by table."""
Found = tuple[int | None, list[AddressedChange], pa.Table | None]
"""The snapshot in which rows were found, what happens to them, and the rows to insert."""


class Attempt(Protocol):
    """One attempt at a request, whose `id` all attempts share. `token`: the commit token, None without a key.
    `noted`: what an earlier one was about to do."""

    @property
    def id(self) -> UUID: ...

    @property
    def token(self) -> str | None: ...

    @property
    def noted(self) -> Any: ...

    def note(self, what: Any) -> None: ...


class OnlyAttempt:
    """The attempt at a statement without an idempotency key."""

    def __init__(self) -> None:
        self.id, self.token, self.noted = uuid4(), None, None

    def note(self, what: Any) -> None:
        self.noted = what


@dataclass(frozen=True)
class Written:
    """What a statement did. `snapshot_id` is None if it changed the table's shape, or no row of an empty table."""

    statement: str
    table: str
    rows: int | None
    snapshot_id: str | None = None
    replayed: bool = False


class Writes:
    def __init__(self, tables: Tables, ask: Ask, caller: Caller | None = None) -> None:
        self._tables, self._ask, self._caller = tables, ask, caller

    def run(self, sql: str, attempt: Attempt | None = None) -> list[Written]:
        """Runs one statement, or a transaction, and returns what each statement did.

        Conflict if other writers change the rows at every attempt. With an attempt of a request that was made before,
        it does what that left undone, and nothing twice.
        """
        text = parse_writes(sql)
        statements = text.statements
        attempt = attempt or OnlyAttempt()
        for statement in statements:
            self._authorize(statement)
        if len(statements) == 1 and not isinstance(statements[0], RowStatement):
            return [self._change(statements[0], attempt)]
        rows = [statement for statement in statements if isinstance(statement, RowStatement)]
        _check_reads(rows)
        if attempt.token is not None and (done := self._done(rows, attempt.token, transaction=text.transaction)):
            return done
        for _ in range(ATTEMPTS):
            with suppress(StaleRead):
                if not text.transaction:
                    return [self._write(rows[0], attempt.token)]
                return self._transact(rows, attempt)
        tables = ", ".join(sorted({statement.table for statement in rows}))
        raise Conflict(f"{tables} was changed by others {ATTEMPTS} times while the statement was running: try again")

    def _authorize(self, statement: WriteStatement) -> None:
        if self._caller is None:
            return
        if isinstance(statement, Create):
            if not self._caller.may(Level.ADMIN, statement.table):
                # Before the table is looked up: the response must not disclose whether it exists.
                raise Denied(
                    f"{self._caller.subject} may not create {statement.table}: ask for the role admin",
                    subject=statement.table,
                )
            return
        level = Level.WRITE if isinstance(statement, RowStatement) else Level.ADMIN
        self._caller.require(level, statement.table)

    # The table's shape

    def _change(self, statement: WriteStatement, attempt: Attempt) -> Written:
        if isinstance(statement, Create):
            return self._create(statement, attempt)
        if isinstance(statement, Alter):
            self._tables.alter(statement.table, token=attempt.token, **statement.change)
            return Written(statement.word, statement.table, None)
        assert isinstance(statement, Drop)
        try:
            if attempt.noted is None:
                attempt.note(asdict(self._tables.plan_drop(statement.table)))
            self._tables.finish_drop(PlannedDrop(**attempt.noted))
        except NotFound:
            if not statement.if_exists:
                raise
        return Written(statement.word, statement.table, None)

    def _create(self, statement: Create, attempt: Attempt) -> Written:
        """The SELECT runs first: if it fails, there is no table. If its rows do not fit, the table is dropped again."""
        if attempt.token is not None and (receipt := self._created(statement.table, attempt)) is not None:
            return _written(statement.word, receipt)
        if statement.if_not_exists and self._exists(statement.table, attempt):
            return Written(statement.word, statement.table, 0)
        rows = None if statement.source is None else self._rows(statement.source).table()
        schema = statement.schema if rows is None else stored_schema(rows.schema)
        assert schema is not None
        names = [name.lower() for name in schema.names]
        if len(set(names)) < len(names):
            raise Invalid("two columns of the new table have the same name: rename one with AS")
        self._tables.create(statement.table, schema, key=statement.key, uuid=attempt.id)
        if rows is None or rows.num_rows == 0:
            return Written(statement.word, statement.table, 0)
        try:
            receipt = self._tables.insert(statement.table, rows.cast(schema), token=attempt.token)
        except (Invalid, pa.ArrowException) as error:
            with suppress(LakeError):
                self._tables.finish_drop(self._tables.plan_drop(statement.table), purge=True)
            raise error if isinstance(error, Invalid) else Invalid(f"the rows cannot be stored: {error}") from None
        return _written(statement.word, receipt)

    def _created(self, table: str, attempt: Attempt) -> CommitReceipt | None:
        """What an earlier attempt inserted into the table that it made."""
        assert attempt.token is not None
        if self._exists(table, attempt):
            return None
        with suppress(NotFound):
            return self._tables.receipts(table, [attempt.token]).get(attempt.token)
        return None

    def _exists(self, table: str, attempt: Attempt) -> bool:
        """Whether there is such a table, and none that an earlier attempt made."""
        try:
            return self._tables.load(table).metadata.table_uuid != attempt.id
        except NotFound:
            return False

    # Rows

    def _done(self, statements: Sequence[RowStatement], token: str, *, transaction: bool) -> list[Written]:
        """What an earlier attempt committed; nothing if it did not. Asked before the statement reads: what it read then
        may be gone."""
        done: list[Written] = []
        for number, statement in enumerate(statements):
            own = f"{token}/{number}" if transaction else token
            receipt = self._tables.receipts(statement.table, [own]).get(own)
            if receipt is None:
                if done:  # its commits become visible together: another process is finishing it
                    raise Conflict(f"the transaction is committed and not yet visible in {statement.table}: try again")
                return []
            done.append(_written(statement.word, receipt))
        return done

    def _write(self, statement: RowStatement, token: str | None) -> Written:
        if isinstance(statement, Insert):
            return _written(
                statement.word, self._tables.insert(statement.table, self._inserted(statement), token=token)
            )
        receipt = self._tables.replace_addressed(statement.table, *self._changed(statement), token=token)
        return _written(statement.word, receipt)

    def _changed(self, statement: Delete | Update | Merge, reads: Reads | None = None) -> Found:
        if isinstance(statement, Merge):
            return self._merged(statement, reads)
        return self._found(statement, reads)

    def _transact(self, statements: Sequence[RowStatement], attempt: Attempt) -> list[Written]:
        """One transaction of the lake: all its commits are visible from one leaf on, or none."""
        transaction: Transaction = self._tables.transaction(attempt.token)
        for statement in statements:
            reads: Reads = {}
            if isinstance(statement, Insert):
                transaction.insert(statement.table, self._inserted(statement, reads))
            else:
                transaction.replace_addressed(statement.table, *self._changed(statement, reads))
            for table, snapshot in reads.items():
                self._hold(transaction, table, snapshot, {one.table for one in statements})
        receipts = transaction.commit()
        return [_written(one.word, receipt) for one, receipt in zip(statements, receipts, strict=True)]

    def _hold(self, transaction: Transaction, table: str, snapshot: int | None, written: set[str]) -> None:
        """A table that is only read takes part in the commit with an empty snapshot: that needs the role to write."""
        if table not in written and self._caller is not None and not self._caller.may(Level.WRITE, table):
            raise Denied(
                f"a transaction holds the tables that it reads until it commits, and {self._caller.subject} may not "
                f"write to {table}: ask for the role write, or send the statement that reads it alone",
                subject=table,
            )
        transaction.hold(table, snapshot)

    def _inserted(self, statement: Insert, reads: Reads | None = None) -> pa.Table:
        """The rows to insert, with the types of the table's columns."""
        schema = self._schema(statement.table)
        columns = list(statement.columns or [field.name for field in schema.fields])
        columns = [_column(schema, name, statement.table) for name in columns]
        if len(set(columns)) < len(columns):
            raise Invalid(f"a column is named twice in INSERT INTO {statement.table} (…)")
        types = self._types(statement.source)
        if len(types) != len(columns):
            raise Invalid(f"INSERT INTO {statement.table} takes {len(columns)} columns, and the rows have {len(types)}")
        numbers = [quote_identifier(f"c{number}") for number in range(len(columns))]
        items = [
            f"{converted(number, type_, schema.find_field(name).field_type, name)} AS {quote_identifier(name)}"
            for number, type_, name in zip(numbers, types, columns, strict=True)
        ]
        text = f"SELECT {', '.join(items)} FROM (\n{statement.source}\n) AS {_SOURCE}({', '.join(numbers)})"  # noqa: S608
        return self._rows(text, reads=reads).table()

    def _found(self, statement: Delete | Update, reads: Reads | None) -> Found:
        """The snapshot in which the rows were found, their addresses and their new values."""
        schema = self._schema(statement.table)
        values = statement.values if isinstance(statement, Update) else {}
        columns = [_column(schema, name, statement.table) for name in values]
        text, offset = _search(statement, list(values.values()))
        items = [FILE, ROW]
        if columns:
            for number, (type_, name) in enumerate(zip(self._types(text, offset)[2:], columns, strict=True)):
                value = converted(f"v{number}", type_, schema.find_field(name).field_type, name)
                items.append(f"{value} AS {quote_identifier(name)}")
        prefix = f"SELECT {'' if columns else 'DISTINCT '}{', '.join(items)} FROM (\n"  # noqa: S608
        answer = self._rows(f"{prefix}{text}\n) AS {_SOURCE}", offset + len(prefix), reads)
        rows = answer.table()
        addresses = Addresses.of(rows.column(0), rows.column(1))
        addresses.check_distinct(statement.table)
        change = AddressedChange(addresses, rows.select(columns) if columns else None)
        return _snapshots(answer)[statement.table], [change], None

    def _merged(self, statement: Merge, reads: Reads | None) -> Found:
        """All clauses in one query, so that they see the same rows."""
        schema = self._schema(statement.table)
        merging = Merging(statement, schema, [field.name for field in schema.fields])
        text, offset = merging.search()
        prefix = merging.prefix(self._types(text, offset)[len(MERGE_COLUMNS) :])
        answer = self._rows(f"{prefix}{text}\n) AS {_SOURCE}", offset + len(prefix), reads)
        changes, inserted = merging.changes(answer.table())
        return _snapshots(answer)[statement.table], changes, inserted

    def _schema(self, table: str) -> Schema:
        return self._tables.load(table).schema()

    def _types(self, text: str, offset: int | None = None) -> list[pa.DataType]:
        """The types of a SELECT's columns, without its rows."""
        prefix = "SELECT * FROM (\n"
        answer = self._rows(f"{prefix}{text}\n) LIMIT 0", None if offset is None else offset + len(prefix))
        return list(answer.schema.types)

    def _rows(self, text: str, addressed: int | None = None, reads: Reads | None = None) -> Answer:
        """The answer of a query. `reads` gets the tables that it read as they are now, with their snapshots."""
        try:
            answer = self._ask(text, engine="lambda", fresh=True, caller=self._caller, addressed=addressed)
        except Invalid as error:
            if error.subject != "route":
                raise
            raise Invalid(
                f"the statement reads too much for a function: {error.message.partition(': ')[2].partition(';')[0]}; "
                "narrow it with WHERE and run it in parts, or write it as a Spark job (docs/guide/jobs.md)",
                subject="route",
            ) from None
        assert isinstance(answer, Answer)
        if reads is not None:
            reads |= _snapshots(answer)
        return answer


def _snapshots(answer: Answer) -> Reads:
    """The snapshots of the tables, without those that the text names by AS OF."""
    return {
        table: None if snapshot is None else int(snapshot)
        for table, snapshot in answer.receipt.snapshots.items()
        if "@" not in table
    }


def _search(statement: Delete | Update, values: Sequence[str]) -> tuple[str, int]:
    """The SELECT of the rows' addresses and new values, and the offset of the table in it."""
    alias = quote_identifier(statement.alias)
    items = [f"{alias}.{FILE}", f"{alias}.{ROW}"]
    items += [f"(\n{value}\n) AS v{number}" for number, value in enumerate(values)]
    head = f"SELECT {', '.join(items)} FROM "  # noqa: S608
    others = f", {statement.others}\n" if statement.others else ""
    where = f" WHERE {statement.where}\n" if statement.where else ""
    database, _, table = statement.table.partition(".")
    name = f"{quote_identifier(database)}.{quote_identifier(table)}"
    return f"{head}{name} AS {alias}{others}{where}", len(head)


def _check_reads(statements: Sequence[RowStatement]) -> None:
    """Invalid if a statement of a transaction reads what an earlier one writes: it would not see it."""
    written: set[str] = set()
    for number, statement in enumerate(statements, 1):
        if isinstance(statement, Insert):
            refs = parse(statement.source).refs
        elif isinstance(statement, Merge):
            refs = parse(search_text(statement)[0]).refs
        else:
            values = list(statement.values.values()) if isinstance(statement, Update) else []
            refs = parse(_search(statement, values)[0]).refs
        reads = {ref.written for ref in refs}
        if shared := sorted(table for table in written if table in reads or table.partition(".")[2] in reads):
            raise Invalid(
                f"statement {number} of the transaction reads {shared[0]}, which an earlier one writes: a statement "
                "does not see the rows of others in its transaction; put it into a transaction of its own"
            )
        written.add(statement.table)


def _column(schema: Schema, name: str, table: str) -> str:
    for field in schema.fields:
        if field.name.lower() == name.lower():
            return str(field.name)
    raise Invalid(
        f"{table} has no column {name}; it has {', '.join(field.name for field in schema.fields)}", subject=table
    )


def _written(word: str, receipt: CommitReceipt) -> Written:
    snapshot = None if receipt.snapshot_id is None else str(receipt.snapshot_id)
    return Written(word, receipt.table, receipt.rows, snapshot, receipt.replayed)
