"""Searches whose rows are the answer as they come from the vector table: no engine runs.

    SELECT id, text AS said, embedding <-> $q AS d FROM notes WHERE stars > 3 ORDER BY embedding <-> $q LIMIT 10

The engine would be given just these rows, drop none and leave them in this order. Only that is answered here of which
this is certain: one table, columns that its vector table holds as they are at this snapshot, conditions all of which
it has checked, the nearest first and nothing after that, and no rule between the caller and the table. The engine has
planned the query all the same: what is wrong with it, the names and the types are the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from catalog.query.search_operators import Operator, folded
from catalog.query.searching import DISTANCE, Search, Searches, covered

_PARTS = frozenset({"expressions", "from_", "where", "order", "limit", "offset"})
_NAMED = frozenset({"this", "db", "alias"})


@dataclass(frozen=True)
class Direct:
    """By place in the answer the column of the vector table; and which of the nearest rows are wanted."""

    columns: tuple[str, ...]
    offset: int
    limit: int

    def answer(self, searches: Searches, schema: pa.Schema) -> pa.RecordBatch | None:
        """The rows, under the schema that was planned. None where their order is not plain: it is the engine's to say.

        One search, of as many rows as the limit and the offset ask for.
        """
        one, ranking = searches.bound[0], searches.ranking
        assert ranking is not None
        kept = [name for name in dict.fromkeys(self.columns) if name != DISTANCE]
        found = ranking.nearest(one.at, one.asked, one.k, one.where, kept)
        distances = found.column(DISTANCE).to_numpy()
        if not (distances[:-1] <= distances[1:]).all():  # a NaN among them, say
            return None
        wanted = found.slice(self.offset, self.limit)
        named = [wanted.column(name).combine_chunks() for name in self.columns]
        columns = [column.cast(field.type) for column, field in zip(named, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def direct(tree: exp.Query, searches: Searches, parameters: Mapping[str, Any]) -> Direct | None:
    """How the query is answered without the engine; None if it is not. `parameters`: those that are the engine's."""
    if not searches or searches.ranking is None or not all(map(_is_answer, searches.bound)):
        return None
    first = searches.bound[0].operator  # the rows are ordered by each of them: all are the same
    columns = _columns(tree, first)
    assert first.nearest is not None
    limit = _count(first.nearest.limit, parameters)
    offset = 0 if first.nearest.offset is None else _count(first.nearest.offset, parameters)
    if columns is None or limit is None or offset is None:
        return None
    if not covered(searches.bound[0], [name for name in columns if name != DISTANCE]):
        return None
    return Direct(columns, offset, limit)


def _is_answer(one: Search) -> bool:
    """Whether the k rows that the vector table finds are those the query asks for."""
    operator = one.operator
    ranked = operator.kind == "distance" and operator.root and operator.nearest is not None
    return ranked and one.closed and one.k is not None and one.at is not None and one.at.rows > 0


def _columns(tree: exp.Query, operator: Operator) -> tuple[str, ...] | None:
    """What stands in each place of a query that does nothing but pick columns of one table, the nearest rows first."""
    if not isinstance(tree, exp.Select) or not _has_only(tree, _PARTS) or len(tree.args["order"].expressions) != 1:
        return None
    ordered, source = tree.args["order"].expressions[0], tree.args["from_"].this
    plain = _has_only(ordered, {"this"}) and _has_only(tree.args["limit"], {"expression"})
    alias = source.args.get("alias")
    if not plain or not _has_only(source, _NAMED) or (alias is not None and not _has_only(alias, {"this"})):
        return None
    found = [_column(one, operator) for one in tree.expressions]
    return None if None in found else tuple(name for name in found if name is not None)


def _column(selected: Any, operator: Operator) -> str | None:
    aliased = isinstance(selected, exp.Alias)
    node: Any = selected.this if aliased else selected
    if isinstance(node, exp.Distance):
        return DISTANCE if aliased else None  # the engine would name it after a function of ours
    if not isinstance(node, exp.Column) or not _has_only(node, {"this", "table"}):
        return None
    table, name = node.args.get("table"), node.this
    if not isinstance(name, exp.Identifier) or (table is not None and folded(table) != operator.alias):
        return None
    return folded(name) if folded(name) != DISTANCE else None


def _count(node: Any, parameters: Mapping[str, Any]) -> int | None:
    """A LIMIT or OFFSET that is a plain number, written or given."""
    if isinstance(node, exp.Literal):
        return int(node.this) if not node.is_string and node.this.isdecimal() else None
    given = parameters.get(str(node.this.this)) if isinstance(node, exp.Parameter) else None
    return given if type(given) is int and given >= 0 else None


def _has_only(node: exp.Expression, parts: frozenset[str] | set[str]) -> bool:
    return all(name in parts for name, part in node.args.items() if part)
