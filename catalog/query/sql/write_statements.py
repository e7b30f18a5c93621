"""Parses statements that write: INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER and DROP TABLE, and BEGIN … COMMIT.

Parses only where a statement's parts begin and end. Each part is text of a SELECT that a query runs later, with the
caller's rights and under the rules of `catalog.query.sql.statement`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import Invalid
from catalog.query.sql.column_types import column_type
from catalog.query.sql.dialect import DIALECT
from catalog.query.sql.limits import check_bytes, check_tokens, check_tree, refuse_recursion
from catalog.query.sql.merge_statement import Merge, parse_merge
from catalog.query.sql.statement_tokens import (
    alias_at,
    assignments,
    checked_name,
    clauses_of,
    closing_bracket,
    is_query,
    split_at,
    table_at,
    text_of,
    top_level,
)

_WORDS = ("ALTER", "BEGIN", "COMMIT", "CREATE", "DELETE", "DROP", "INSERT", "MERGE", "ROLLBACK", "START", "TRUNCATE",
          "UPDATE", "UPSERT", "REPLACE")  # fmt: skip
_WRITE = re.compile(rf"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*(?:{'|'.join(_WORDS)})\b", re.IGNORECASE | re.DOTALL)
MAX_STATEMENTS = 100


def is_write(sql: str) -> bool:
    """Whether the text begins as a statement that writes does. Linear in the text."""
    return _WRITE.match(sql[: 64 << 10]) is not None


@dataclass(frozen=True)
class Insert:
    """`columns`: those that the rows of `source` have, in their order; None for all of the table's."""

    table: str
    columns: tuple[str, ...] | None
    source: str
    word: str = "INSERT"


@dataclass(frozen=True)
class Delete:
    table: str
    alias: str
    others: str | None
    where: str | None
    word: str = "DELETE"


@dataclass(frozen=True)
class Update:
    """`values`: the new value of each column, as text of an expression."""

    table: str
    alias: str
    values: dict[str, str]
    others: str | None
    where: str | None
    word: str = "UPDATE"


@dataclass(frozen=True)
class Create:
    """`source`: the SELECT of CREATE TABLE … AS, which gives the columns; otherwise `schema` does."""

    table: str
    if_not_exists: bool
    schema: pa.Schema | None
    key: tuple[str, ...]
    source: str | None
    word: str = "CREATE TABLE"


@dataclass(frozen=True)
class Alter:
    table: str
    change: dict[str, Any] = field(default_factory=dict)
    word: str = "ALTER TABLE"


@dataclass(frozen=True)
class Drop:
    table: str
    if_exists: bool
    word: str = "DROP TABLE"


RowStatement = Insert | Delete | Update | Merge
WriteStatement = RowStatement | Create | Alter | Drop


@dataclass(frozen=True)
class WriteText:
    """One statement, or the statements of a `transaction`, between BEGIN and COMMIT, which change rows only."""

    statements: list[WriteStatement]
    transaction: bool


def parse_writes(sql: str) -> WriteText:
    """Invalid for anything else than a statement that writes, or a transaction of such."""
    check_bytes(sql)
    try:
        tokens = list(sqlglot.tokenize(sql, read=DIALECT))
    except TokenError as error:
        raise Invalid(f"the statement cannot be parsed: {str(error).splitlines()[0]}") from None
    check_tokens(tokens)
    parts = split_at(tokens)
    if not parts:
        raise Invalid("the statement is empty: write one")
    words = [part[0].text.upper() for part in parts]
    if words[0] in ("BEGIN", "START"):
        return WriteText(_transaction(sql, parts, words), transaction=True)
    if len(parts) > 1:
        raise Invalid(f"there are {len(parts)} statements: send one at a time, or write BEGIN; …; COMMIT")
    return WriteText([_statement(sql, parts[0])], transaction=False)


def _transaction(sql: str, parts: Sequence[Sequence[Token]], words: Sequence[str]) -> list[WriteStatement]:
    if words[-1] not in ("COMMIT", "END"):
        raise Invalid("the transaction does not end with COMMIT: send BEGIN; …; COMMIT as one text")
    for word, part in ((words[0], parts[0]), (words[-1], parts[-1])):
        if [token.text.upper() for token in part[1:]] not in ([], ["TRANSACTION"]):
            raise Invalid(f"{word} takes no options here: write BEGIN; …; COMMIT")
    if len(parts) > MAX_STATEMENTS:
        raise Invalid(f"the transaction has more than {MAX_STATEMENTS} statements")
    statements = [_statement(sql, part) for part in parts[1:-1]]
    for statement in statements:
        if not isinstance(statement, RowStatement):
            raise Invalid(
                f"{statement.word} cannot be in a transaction, which has INSERT, UPDATE, DELETE and MERGE only"
            )
    return statements


def _statement(sql: str, tokens: Sequence[Token]) -> WriteStatement:
    word = tokens[0].text.upper()
    if word == "INSERT":
        return _insert(sql, tokens)
    if word == "DELETE":
        return _delete(sql, tokens)
    if word == "UPDATE":
        return _update(sql, tokens)
    if word == "MERGE":
        return parse_merge(sql, tokens)
    if word in ("CREATE", "ALTER", "DROP"):
        return _shape(sql, tokens)
    hints = {
        "COMMIT": "send BEGIN; …; COMMIT as one text",
        "ROLLBACK": "a transaction is one text from BEGIN to COMMIT: what is not sent is not done",
        "TRUNCATE": "write DELETE FROM <table>",
    }
    raise Invalid(
        f"{word} is not supported: {hints.get(word, 'write INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER or DROP')}"
    )


def _insert(sql: str, tokens: Sequence[Token]) -> Insert:
    if len(tokens) < 4 or tokens[1].text.upper() != "INTO":
        raise Invalid("write INSERT INTO <database>.<table> [(columns)] VALUES … or SELECT …")
    table, at = table_at(tokens, 2)
    columns: tuple[str, ...] | None = None
    if at < len(tokens) and tokens[at].token_type == TokenType.L_PAREN and not is_query(tokens[at + 1 :]):
        end = closing_bracket(tokens, at)
        names = tokens[at + 1 : end]
        if not names or any(token.token_type != TokenType.COMMA for token in names[1::2]) or len(names) % 2 == 0:
            raise Invalid("the columns after INSERT INTO <table> are names, separated by commas")
        columns = tuple(token.text for token in names[::2])
        at = end + 1
    rest = tokens[at:]
    if not is_query(rest):
        raise Invalid("INSERT INTO <table> is followed by VALUES or a SELECT")
    top = [rest[number].text.upper() for number in top_level(rest)]
    if "RETURNING" in top or ("CONFLICT" in top and "ON" in top):
        raise Invalid("RETURNING and ON CONFLICT are not supported: an insert compares no rows; use an upsert by key")
    return Insert(table, columns, text_of(sql, rest))


def _delete(sql: str, tokens: Sequence[Token]) -> Delete:
    if len(tokens) < 3 or tokens[1].token_type != TokenType.FROM:
        raise Invalid("write DELETE FROM <database>.<table> [USING …] WHERE …")
    table, at = table_at(tokens, 2)
    alias, at = alias_at(tokens, at, table)
    parts = clauses_of(sql, tokens[at:], ("USING", "WHERE"))
    return Delete(table, alias, parts.get("USING"), parts.get("WHERE"))


def _update(sql: str, tokens: Sequence[Token]) -> Update:
    table, at = table_at(tokens, 1)
    alias, at = alias_at(tokens, at, table)
    parts = clauses_of(sql, tokens[at:], ("SET", "FROM", "WHERE"))
    if "SET" not in parts:
        raise Invalid("write UPDATE <database>.<table> SET column = value [FROM …] WHERE …")
    values = assignments(parts["SET"])
    return Update(table, alias, values, parts.get("FROM"), parts.get("WHERE"))


def _shape(sql: str, tokens: Sequence[Token]) -> Create | Alter | Drop:
    """CREATE, ALTER and DROP TABLE, by sqlglot's tree."""
    text = text_of(sql, tokens)
    try:
        with refuse_recursion():
            tree: Any = sqlglot.parse_one(text, read=DIALECT)
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        raise Invalid(f"the statement cannot be parsed: {details.get('description', 'it is not valid SQL')}") from None
    check_tree(tree)
    word = tokens[0].text.upper()
    if str(tree.args.get("kind") or "").upper() != "TABLE" or isinstance(tree, exp.Command):
        raise Invalid(f"{word} is for tables here: write {word} TABLE <database>.<table> …")
    if isinstance(tree, exp.Create):
        return _create(text, tokens, tree)
    if isinstance(tree, exp.Alter):
        return Alter(_tree_name(tree.this), _alteration(tree))
    tables = list(tree.find_all(exp.Table))
    if tree.args.get("cascade") or tree.args.get("constraints") or len(tables) != 1:
        raise Invalid("DROP TABLE takes one table: write DROP TABLE [IF EXISTS] <database>.<table>")
    return Drop(_tree_name(tables[0]), bool(tree.args.get("exists")))


def _create(text: str, tokens: Sequence[Token], tree: Any) -> Create:
    if tree.args.get("replace") or tree.args.get("properties"):
        raise Invalid(
            "CREATE TABLE takes columns, PRIMARY KEY and AS SELECT: for partitions, order and mode use "
            "`strandline table create`; OR REPLACE and TEMPORARY are not supported"
        )
    name = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    table, exists = _tree_name(name), bool(tree.args.get("exists"))
    if tree.expression is not None and not isinstance(tree.this, exp.Schema):
        start = next(number for number in top_level(tokens) if tokens[number].token_type == TokenType.ALIAS)
        source = tokens[start + 1 :]
        if not is_query(source):
            raise Invalid("CREATE TABLE … AS is followed by a SELECT")
        offset = tokens[0].start
        return Create(table, exists, None, (), text[source[0].start - offset :])
    if not isinstance(tree.this, exp.Schema) or tree.expression is not None:
        raise Invalid("write CREATE TABLE <database>.<table> (column type, …), or AS SELECT …, and not both")
    fields: list[Any] = []
    key: list[str] = []
    for part in tree.this.expressions:
        if isinstance(part, exp.PrimaryKey):
            key += [column.name for column in part.expressions]
        elif isinstance(part, exp.ColumnDef) and part.args.get("kind") is not None:
            fields.append(_field(part, key))
        else:
            raise Invalid(f"{part.sql(DIALECT)} is not supported in CREATE TABLE: write columns and PRIMARY KEY (…)")
    return Create(table, exists, pa.schema(fields), tuple(key), None)


def _field(column: exp.ColumnDef, key: list[str]) -> Any:
    nullable = True
    for constraint in column.args.get("constraints") or ():
        kind = constraint.args.get("kind")
        if isinstance(kind, exp.PrimaryKeyColumnConstraint):
            key.append(column.name)
        elif isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        else:
            raise Invalid(f"{constraint.sql(DIALECT)} is not supported: a column has a type, NOT NULL and PRIMARY KEY")
    return pa.field(column.name, column_type(column.args["kind"]), nullable)


def _alteration(tree: Any) -> dict[str, Any]:
    actions: list[Any] = tree.args.get("actions") or []
    if len(actions) != 1 or tree.args.get("exists"):
        raise Invalid("ALTER TABLE makes one change: ADD COLUMN, DROP COLUMN, RENAME COLUMN or ALTER COLUMN … TYPE")
    action = actions[0]
    if isinstance(action, exp.ColumnDef) and not action.args.get("constraints") and not action.args.get("exists"):
        return {"add": {action.name: column_type(action.args["kind"])}}
    is_drop = isinstance(action, exp.Drop) and str(action.args.get("kind")).upper() == "COLUMN"
    if is_drop and not (action.args.get("exists") or action.args.get("cascade")):
        columns = list(action.find_all(exp.Column))
        if len(columns) == 1:
            return {"drop": [columns[0].name]}
    if isinstance(action, exp.RenameColumn):
        return {"rename": {action.this.name: action.args["to"].name}}
    if isinstance(action, exp.AlterColumn) and action.args.get("dtype") is not None and not action.args.get("using"):
        return {"promote": {action.this.name: column_type(action.args["dtype"])}}
    raise Invalid("ALTER TABLE makes one change: ADD COLUMN, DROP COLUMN, RENAME COLUMN or ALTER COLUMN … TYPE")


def _tree_name(node: Any) -> str:
    if not isinstance(node, exp.Table) or not node.db or node.catalog:
        raise Invalid("name the table with its database: write <database>.<table>")
    return checked_name(f"{node.db.lower()}.{node.name.lower()}")
