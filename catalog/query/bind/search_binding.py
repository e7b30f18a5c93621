"""Binds a statement's search operators: finds the vector table, value, filter and limit of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from catalog.core.errors import Denied, Invalid
from catalog.query.bind.binding import Binding, BoundTable
from catalog.query.run.engine import Parameters, parameters_by_name
from catalog.query.run.search import SEARCH_DATABASE, Search, Searches, VectorRanking, VectorTableVersion, is_text
from catalog.query.sql.dialect import DIALECT
from catalog.query.sql.search_operators import SearchOperator, folded
from catalog.query.sql.statement import Statement

EMBEDDING_COLUMN = "embedding"
"""The name in queries for the vectors of a table that has only one vector table."""
MAX_NEAREST = 10_000


def bind(
    statement: Statement,
    binding: Binding,
    parameters: Parameters,
    ranking: Callable[[], VectorRanking] | None,
    rules_of: Callable[[str], Any],
) -> Searches:
    """Resolves each operator to its vector table. NotFound or Invalid, with what to do, when there is none."""
    if not statement.searches:
        return Searches()
    if ranking is None:
        raise Invalid("this lake has no vector tables to search: <->, @@ and text_score need them")
    tables = ranking()
    refs = {ref.start: ref for ref in statement.refs}
    values = parameters_by_name(parameters)
    searches: list[Search] = []
    for number, operator in enumerate(statement.searches):
        ref = refs[operator.ref_start]
        bound, name = binding.of(ref), binding.names[ref]
        version = _find(tables, name, bound, operator)
        function = f"{SEARCH_DATABASE}_{number}"
        searches.append(_search(operator, function, name, bound, version, values, rules_of(name)))
    return Searches(tables, tuple(searches))


def _find(ranking: VectorRanking, table: str, bound: BoundTable, operator: SearchOperator) -> VectorTableVersion | None:
    relation = bound.relation
    column: str | None = operator.column
    if operator.kind == "distance" and column == EMBEDDING_COLUMN and EMBEDDING_COLUMN not in relation.arrow.names:
        column = None
    elif column not in relation.arrow.names:
        raise Invalid(f"{table} has no column {column}: write {EMBEDDING_COLUMN} <-> … or name the embedded column")
    if relation.snapshot_id is None:
        return None
    uuid = str(relation.metadata.table_uuid)
    version: VectorTableVersion = ranking.find(table, uuid, column, relation.snapshot_id)
    return version


def _search(
    operator: SearchOperator,
    name: str,
    table: str,
    bound: BoundTable,
    version: VectorTableVersion | None,
    values: Mapping[str, Any],
    rules: Any,
) -> Search:
    arrow = bound.relation.arrow
    key = version.key if version is not None else tuple(arrow.names[:1])
    if not set(key) <= set(arrow.names):
        raise Invalid(
            f"the key of {table} was renamed after its vector table was created: drop and recreate the vector table"
        )
    masked = set((rules.columns if rules is not None else None) or ())
    if masked & {*key, operator.column, version.column if version is not None else operator.column}:
        raise Denied(
            f"{table}.{operator.column} or the table's key is masked for you: it cannot be searched", subject=table
        )
    where, has_unchecked = _where(operator, arrow, version, values)
    nearest = operator.nearest
    limit, k = 0, None
    if nearest is not None:
        count = _row_count(nearest.limit, values)
        offset = 0 if nearest.offset is None else _row_count(nearest.offset, values)
        if count is not None and offset is not None and count + offset <= MAX_NEAREST:
            limit, k = count, max(count + offset, 1)
    prefiltered = not (operator.has_other_filters or has_unchecked or (rules is not None and rules.row_filter))
    behind = version is not None and version.snapshot_id != bound.relation.snapshot_id
    prefiltered = prefiltered and not behind  # rows may have been deleted since that version
    if not prefiltered and not operator.outermost:
        k = None  # the number of rows that pass a subquery's filters is not known, so all rows are compared
    if behind:
        where = None  # the vector table's copies of the columns may be outdated
    return Search(operator, name, bound, key, version, _query_value(operator, values), where, k, limit, prefiltered)


def _query_value(operator: SearchOperator, values: Mapping[str, Any]) -> str | tuple[float, ...]:
    node: Any = operator.argument
    if isinstance(node, exp.Literal):
        return str(node.this)
    if isinstance(node, exp.Array):
        return tuple(float(item.sql()) for item in node.expressions)
    value = _parameter(node, values)
    if isinstance(value, str):
        return value
    if operator.kind != "distance":
        raise Invalid(f"words to search for must be text: parameter {node.sql(DIALECT)} is {type(value).__name__}")
    try:
        return tuple(map(float, value))
    except (TypeError, ValueError):
        raise Invalid(f"<-> needs a text or a vector: parameter {node.sql(DIALECT)} is neither") from None


def _parameter(node: exp.Expression, values: Mapping[str, Any]) -> Any:
    name = str(node.this.this)
    if name not in values:
        raise Invalid(f"parameter ${name} has no value: pass it with the query")
    return values[name]


def _row_count(node: exp.Expression, values: Mapping[str, Any]) -> int | None:
    """A LIMIT or OFFSET that is a literal or a parameter; else None."""
    count = _parameter(node, values) if isinstance(node, exp.Parameter) else node.this
    try:
        return int(count) if isinstance(node, exp.Parameter | exp.Literal) else None
    except (TypeError, ValueError):
        return None


def _where(
    operator: SearchOperator, arrow: pa.Schema, version: VectorTableVersion | None, values: Mapping[str, Any]
) -> tuple[str | None, bool]:
    """The conditions that the vector table can check, in Lance's SQL; and whether some are left unchecked."""
    checked, has_unchecked = list[str](), False
    for condition in operator.conditions:
        columns = {folded(column.this) for column in condition.find_all(exp.Column)}
        copy = condition.copy()
        for parameter in list(copy.find_all(exp.Parameter)):
            value = _parameter(parameter, values)
            if value is None or isinstance(value, str | int | float):
                parameter.replace(exp.convert(value))
        # A column may have been renamed since the vector table copied it.
        is_copied = version is not None and columns <= {*version.columns} & {*arrow.names}
        if not is_copied or not _means_same_in_lance(copy, [arrow.field(column).type for column in columns]):
            has_unchecked = True
            continue
        for column in list(copy.find_all(exp.Column)):
            column.replace(exp.Var(this=f"`{folded(column.this)}`"))  # Lance quotes names with backticks only
        checked.append(f"({copy.sql(dialect=DIALECT)})")
    return " AND ".join(checked) or None, has_unchecked


def _means_same_in_lance(condition: exp.Expression, types: Sequence[pa.DataType]) -> bool:
    """Whether Lance and DuckDB give the condition the same meaning: all its columns and values are texts, booleans,
    or numbers of one type.

    Lance rejects comparing a column with a number of another type. A 64-bit float is compared with one number, and not
    with zero, since the engines differ on `-0.0`; 32-bit floats are not the same number in both engines. In a pattern
    of LIKE the backslash escapes only in Lance.
    """
    literals = list(condition.find_all(exp.Literal))
    if condition.find(exp.Parameter):
        return False
    if condition.find(exp.Like) and any("\\" in literal.this for literal in literals):
        return False
    if all(is_text(type_) for type_ in types):
        return all(literal.is_string for literal in literals) and not condition.find(exp.Boolean)
    if all(pa.types.is_boolean(type_) for type_ in types):
        return not literals
    if any(literal.is_string for literal in literals) or condition.find(exp.Boolean):
        return False
    if all(pa.types.is_signed_integer(type_) for type_ in types):
        maximum = min(2 ** (type_.bit_width - 1) - 1 for type_ in types)
        return all(literal.this.isdecimal() and int(literal.this) <= maximum for literal in literals)
    return len(types) == 1 and pa.types.is_float64(types[0]) and all(float(literal.this) != 0 for literal in literals)
