"""From a statement's search operators to searches that can be run: vector table, value, filter and limit of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from catalog.errors import Denied, Invalid
from catalog.query.binding import Binding, Bound
from catalog.query.engine import Parameters, named
from catalog.query.search_operators import Operator
from catalog.query.searching import PLACE, Ranked, Ranking, Search, Searches, is_text
from catalog.query.statement import DIALECT, Statement

VIRTUAL = "embedding"
"""What the vectors' column is called in a query: the only vector table of the table is meant."""
MOST_NEAREST = 10_000


def bind(
    statement: Statement,
    binding: Binding,
    parameters: Parameters,
    ranking: Callable[[], Ranking] | None,
    rules_of: Callable[[str], Any],
) -> Searches:
    """Each operator with its vector table. NotFound or Invalid, saying what to do, when there is none to ask."""
    if not statement.searches:
        return Searches()
    if ranking is None:
        raise Invalid("this lake has no vector tables to search: <->, @@ and text_score need them")
    tables = ranking()
    mentions = {ref.start: ref for ref in statement.refs}
    values = named(parameters)
    found: list[Search] = []
    for number, operator in enumerate(statement.searches):
        ref = mentions[operator.mention]
        bound, name = binding.of(ref), binding.names[ref]
        at = _find(tables, name, bound, operator)
        found.append(_search(operator, f"{PLACE}_{number}", name, bound, at, values, rules_of(name)))
    return Searches(tables, tuple(found))


def _find(ranking: Ranking, table: str, bound: Bound, operator: Operator) -> Ranked | None:
    relation = bound.relation
    column: str | None = operator.column
    if operator.kind == "distance" and column == VIRTUAL and VIRTUAL not in relation.arrow.names:
        column = None
    elif column not in relation.arrow.names:
        raise Invalid(f"{table} has no column {column}: <-> is asked of {VIRTUAL} or of the embedded column itself")
    if relation.snapshot_id is None:
        return None
    uuid = str(relation.metadata.table_uuid)
    found: Ranked = ranking.find(table, uuid, column, relation.snapshot_id)
    return found


def _search(
    operator: Operator, name: str, table: str, bound: Bound, at: Ranked | None, values: Mapping[str, Any], rules: Any
) -> Search:
    arrow = bound.relation.arrow
    key = at.key if at is not None else tuple(arrow.names[:1])
    if not set(key) <= set(arrow.names):
        raise Invalid(f"the key of {table} was renamed since its vector table was made: drop that and create it anew")
    masked = set((rules.columns if rules is not None else None) or ())
    if masked & {*key, operator.column, at.column if at is not None else operator.column}:
        raise Denied(f"you see {table}.{operator.column} or its key masked: it cannot be searched", subject=table)
    where, rest = _where(operator, arrow, at, values)
    nearest = operator.nearest
    limit, k = 0, None
    if nearest is not None:
        counted = _count(nearest.limit, values)
        skipped = 0 if nearest.offset is None else _count(nearest.offset, values)
        if counted is not None and skipped is not None and counted + skipped <= MOST_NEAREST:
            limit, k = counted, max(counted + skipped, 1)
    closed = not (operator.open or rest or (rules is not None and rules.row_filter))
    behind = at is not None and at.snapshot_id != bound.relation.snapshot_id
    closed = closed and not behind  # rows may be gone since
    if not closed and not operator.root:
        k = None  # how many rows pass is not seen from outside: all are compared
    if behind:
        where = None  # what the vector table knows of the columns may be old
    return Search(operator, name, bound, key, at, _asked(operator, values), where, k, limit, closed)


def _asked(operator: Operator, values: Mapping[str, Any]) -> str | tuple[float, ...]:
    node: Any = operator.argument
    if isinstance(node, exp.Literal):
        return str(node.this)
    if isinstance(node, exp.Array):
        return tuple(float(one.sql()) for one in node.expressions)
    given = _parameter(node, values)
    if isinstance(given, str):
        return given
    if operator.kind != "distance":
        raise Invalid(f"words are text: parameter {node.sql(DIALECT)} is {type(given).__name__}")
    try:
        return tuple(map(float, given))
    except (TypeError, ValueError):
        raise Invalid(f"<-> needs a text or a vector: parameter {node.sql(DIALECT)} is neither") from None


def _parameter(node: exp.Expression, values: Mapping[str, Any]) -> Any:
    name = str(node.this.this)
    if name not in values:
        raise Invalid(f"parameter ${name} is not given")
    return values[name]


def _count(node: exp.Expression, values: Mapping[str, Any]) -> int | None:
    """A LIMIT or OFFSET, if it is plain."""
    given = _parameter(node, values) if isinstance(node, exp.Parameter) else node.this
    try:
        return int(given) if isinstance(node, exp.Parameter | exp.Literal) else None
    except (TypeError, ValueError):
        return None


def _where(
    operator: Operator, arrow: pa.Schema, at: Ranked | None, values: Mapping[str, Any]
) -> tuple[str | None, bool]:
    """The conditions that the vector table checks, in the words Lance knows; and whether some are left over."""
    said, rest = list[str](), False
    for condition in operator.conditions:
        columns = {_plain(column) for column in condition.find_all(exp.Column)}
        copied = condition.copy()
        for parameter in list(copied.find_all(exp.Parameter)):
            value = _parameter(parameter, values)
            if value is None or isinstance(value, str | int | float):
                parameter.replace(exp.convert(value))
        known = at is not None and columns <= {*at.columns} & {*arrow.names}  # it may have been renamed since
        if not known or not _alike(copied, [arrow.field(c).type for c in columns]):
            rest = True
            continue
        for column in list(copied.find_all(exp.Column)):
            column.replace(exp.Var(this=f"`{_plain(column)}`"))  # Lance quotes names with backticks, and nothing else
        said.append(f"({copied.sql(dialect=DIALECT)})")
    return " AND ".join(said) or None, rest


def _plain(column: exp.Column) -> str:
    name: Any = column.this
    return str(name.this) if name.quoted else str(name.this).lower()


def _alike(condition: exp.Expression, kinds: Sequence[pa.DataType]) -> bool:
    """Whether two engines surely read it alike: all columns and values are texts, or truths, or numbers of a kind.

    Lance refuses to compare a column with a number that is not of its type. Floats are compared with a number alone,
    and not with zero, which is one value or two (`-0.0`); those of 32 bits are not the same number everywhere.
    """
    literals = list(condition.find_all(exp.Literal))
    if condition.find(exp.Parameter):
        return False
    if all(is_text(kind) for kind in kinds):
        return all(one.is_string for one in literals) and not condition.find(exp.Boolean)
    if all(pa.types.is_boolean(kind) for kind in kinds):
        return not literals
    if any(one.is_string for one in literals) or condition.find(exp.Boolean):
        return False
    if all(pa.types.is_signed_integer(kind) for kind in kinds):
        most = min(2 ** (kind.bit_width - 1) - 1 for kind in kinds)
        return all(one.this.isdecimal() and int(one.this) <= most for one in literals)
    return len(kinds) == 1 and pa.types.is_float64(kinds[0]) and all(float(one.this) != 0 for one in literals)
