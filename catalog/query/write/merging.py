"""MERGE as one query: the rows that match, those of the source without a match, and those of the target without one.

Each clause is a number, and its values are columns of its own. A row gets the first clause of its kind whose condition
is true. The joins decide what a part of the statement can name: both tables where they match, one where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from catalog.core.errors import Invalid
from catalog.query.run.engine import quote_identifier
from catalog.query.scan.scan_sql import FILE, ROW, engine_type_name
from catalog.query.sql.merge_statement import Matched, Merge, MergeClause
from catalog.query.write.conversion import converted
from catalog.tables import AddressedChange, Addresses

CLAUSE = "strandline_clause"
MERGE_COLUMNS = (CLAUSE, FILE, ROW)
"""The first columns of the query; the values follow."""
_SOURCE, _TARGET = "strandline_source", "strandline_target"


def search_text(statement: Merge, values: Sequence[Sequence[str]] = ()) -> tuple[str, int]:
    """The query, and the offset of the target in it. `values`: the texts of each clause's values."""
    source, target = quote_identifier(statement.source_alias), quote_identifier(statement.alias)
    database, _, table = statement.table.partition(".")
    head = f"WITH {_SOURCE} AS MATERIALIZED (SELECT * FROM {statement.source}\n), {_TARGET} AS (SELECT * FROM "  # noqa: S608
    name = f"{quote_identifier(database)}.{quote_identifier(table)}"
    on = f"ON (\n{statement.condition}\n)"
    joins = {
        Matched.BOTH: f"{_TARGET} AS {target} JOIN {_SOURCE} AS {source} {on}",
        Matched.TARGET_MISSING: f"{_SOURCE} AS {source} ANTI JOIN {_TARGET} AS {target} {on}",
        Matched.SOURCE_MISSING: f"{_TARGET} AS {target} ANTI JOIN {_SOURCE} AS {source} {on}",
    }
    parts = [
        _part(statement, matched, join, target, values)
        for matched, join in joins.items()
        # The first is there without a clause of its kind, too: there a name that both tables have is ambiguous.
        if matched is Matched.BOTH or any(clause.matched is matched for clause in statement.clauses)
    ]
    body = "\nUNION ALL BY NAME\n".join(parts)
    return f"{head}{name}\n)\nSELECT * FROM (\n{body}\n) WHERE {CLAUSE} IS NOT NULL", len(head)


def _part(statement: Merge, matched: Matched, join: str, target: str, values: Sequence[Sequence[str]]) -> str:
    """The SELECT over the rows of one kind."""
    conditions, items = [], []
    for number, clause in enumerate(statement.clauses):
        if clause.matched is not matched:
            continue
        result = "NULL" if clause.action == "NOTHING" else str(number)
        conditions.append(f"WHEN (\n{clause.condition or 'true'}\n) THEN {result}")
        for at, value in enumerate(values[number] if values else clause.values):
            items.append((number, f"(\n{value}\n)", _value_name(number, at)))
    chosen = f"CAST(CASE {' '.join(conditions)} END AS INTEGER)" if conditions else "CAST(NULL AS INTEGER)"
    if matched is Matched.TARGET_MISSING:
        address = f"CAST(NULL AS VARCHAR) AS {FILE}, CAST(NULL AS BIGINT) AS {ROW}"
    else:
        address = f"{target}.{FILE} AS {FILE}, {target}.{ROW} AS {ROW}"
    columns = [f"{chosen} AS {CLAUSE}", address]
    # A value is computed where its clause was chosen only: elsewhere it may be an error.
    columns += [f"CASE WHEN {chosen} = {number} THEN {value} END AS {name}" for number, value, name in items]
    return f"SELECT {', '.join(columns)} FROM {join}"  # noqa: S608


def _value_name(clause: int, at: int) -> str:
    return f"strandline_v{clause}_{at}"


class Merging:
    """One MERGE into a table with this schema. `columns`: the table's, in order."""

    def __init__(self, statement: Merge, schema: Schema, columns: Sequence[str]) -> None:
        self._statement, self._schema = statement, schema
        self._columns = [self._names(clause, columns) for clause in statement.clauses]

    def _names(self, clause: MergeClause, columns: Sequence[str]) -> list[str]:
        """The table's columns that a clause writes, by the names that it gives."""
        if clause.columns is None:
            names = list(columns)
        else:
            by_name = {name.lower(): name for name in columns}
            for name in clause.columns:
                if name.lower() not in by_name:
                    table = self._statement.table
                    raise Invalid(f"{table} has no column {name}; it has {', '.join(columns)}", subject=table)
            names = [by_name[name.lower()] for name in clause.columns]
        if len(set(names)) < len(names):
            raise Invalid(f"a column is named twice after {clause.matched.value} … {clause.action}")
        if len(names) != len(clause.values):
            raise Invalid(f"{len(names)} columns are inserted here, and VALUES has {len(clause.values)}")
        return names

    def search(self) -> tuple[str, int]:
        """The query for clauses and values, each value with the type that its expression has."""
        values = [
            [self._typed(value, column) for value, column in zip(clause.values, names, strict=True)]
            for clause, names in zip(self._statement.clauses, self._columns, strict=True)
        ]
        return search_text(self._statement, values)

    def _typed(self, value: str, column: str) -> str:
        """NULL has no type of its own, and would get one in UNION."""
        if value.strip().upper() != "NULL":
            return value
        return f"CAST(NULL AS {engine_type_name(self._schema.find_field(column).field_type)})"

    def prefix(self, types: Sequence[pa.DataType]) -> str:
        """The beginning of the query that gives values the types of their columns. `types`: those that they have."""
        items = list(MERGE_COLUMNS)
        for (name, column), type_ in zip(self._value_columns(), types, strict=True):
            items.append(f"{converted(name, type_, self._schema.find_field(column).field_type, column)} AS {name}")
        return f"SELECT {', '.join(items)} FROM (\n"  # noqa: S608

    def _value_columns(self) -> list[tuple[str, str]]:
        """The columns of the query after the first, in its order: by kind of row, then by clause."""
        return [
            (_value_name(number, at), column)
            for matched in Matched
            for number, clause in enumerate(self._statement.clauses)
            if clause.matched is matched
            for at, column in enumerate(self._columns[number])
        ]

    def changes(self, rows: pa.Table) -> tuple[list[AddressedChange], pa.Table | None]:
        """What happens to which rows. Invalid if two rows of the source would change one of the target."""
        changes, inserted = list[AddressedChange](), list[pa.Table]()
        for number, clause in enumerate(self._statement.clauses):
            chosen = rows.filter(pc.equal(rows[CLAUSE], pa.scalar(number, pa.int32())))
            if not chosen.num_rows:
                continue
            values = None
            if self._columns[number]:
                names = [_value_name(number, at) for at in range(len(self._columns[number]))]
                values = chosen.select(names).rename_columns(self._columns[number])
            if clause.action == "INSERT":
                assert values is not None
                inserted.append(values)
            else:
                changes.append(AddressedChange(Addresses.of(chosen[FILE], chosen[ROW]), values))
        Addresses.union([change.addresses for change in changes]).check_distinct(self._statement.table)
        return changes, pa.concat_tables(inserted, promote_options="permissive") if inserted else None
