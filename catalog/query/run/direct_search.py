"""Answers a search from the vector table alone, without the engine.

    SELECT id, text AS said, embedding <-> $q AS d FROM notes WHERE stars > 3 ORDER BY embedding <-> $q LIMIT 10

The engine would get exactly these rows, drop none and keep their order. That is certain only for one table, columns
that its vector table holds as of this snapshot, conditions that the vector table has all checked, ordering by distance
alone, and a caller without masks or row filters. The engine still plans the query: errors, column names and types are
its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from catalog.query.run.search import DISTANCE, Search, Searches, is_covered
from catalog.query.sql.search_operators import SearchOperator, folded

_SELECT_ARGS = frozenset({"expressions", "from_", "where", "order", "limit", "offset"})
_TABLE_ARGS = frozenset({"this", "db", "alias"})


@dataclass(frozen=True)
class DirectSearch:
    """The vector table's columns in the order of the result, and which of the nearest rows it has."""

    columns: tuple[str, ...]
    offset: int
    limit: int

    def answer(self, searches: Searches, schema: pa.Schema) -> pa.RecordBatch | None:
        """The rows, with the planned schema. None where the distances are not in order: then the engine has to run.

        Cost: one search, of LIMIT + OFFSET rows.
        """
        search, ranking = searches.bound[0], searches.ranking
        assert ranking is not None
        stored = [name for name in dict.fromkeys(self.columns) if name != DISTANCE]
        nearest = ranking.nearest(search.version, search.query, search.k, search.where, stored)
        distances = nearest.column(DISTANCE).to_numpy()
        if not (distances[:-1] <= distances[1:]).all():  # for example, one is NaN
            return None
        rows = nearest.slice(self.offset, self.limit)
        arrays = [rows.column(name).combine_chunks() for name in self.columns]
        columns = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def direct_search(tree: exp.Expr, searches: Searches, parameters: Mapping[str, Any]) -> DirectSearch | None:
    """How to answer the query without the engine; None if the engine is needed. `parameters`: the engine's."""
    if not searches or searches.ranking is None or not all(map(_is_final, searches.bound)):
        return None
    first = searches.bound[0].operator  # the rows are ordered by each operator, so all are equal
    columns = _columns(tree, first)
    assert first.nearest is not None
    limit = _count(first.nearest.limit, parameters)
    offset = 0 if first.nearest.offset is None else _count(first.nearest.offset, parameters)
    if columns is None or limit is None or offset is None:
        return None
    if not is_covered(searches.bound[0], [name for name in columns if name != DISTANCE]):
        return None
    return DirectSearch(columns, offset, limit)


def _is_final(search: Search) -> bool:
    """Whether the k rows that the vector table returns are exactly the query's."""
    operator = search.operator
    ranked = operator.kind == "distance" and operator.outermost and operator.nearest is not None
    has_rows = search.version is not None and search.version.rows > 0
    return ranked and search.prefiltered and search.k is not None and has_rows


def _columns(tree: exp.Expr, operator: SearchOperator) -> tuple[str, ...] | None:
    """The vector table's column for each SELECT item; None unless the query only selects columns by distance."""
    if (
        not isinstance(tree, exp.Select)
        or not _has_only(tree, _SELECT_ARGS)
        or len(tree.args["order"].expressions) != 1
    ):
        return None
    order, source = tree.args["order"].expressions[0], tree.args["from_"].this
    plain = _has_only(order, {"this"}) and _has_only(tree.args["limit"], {"expression"})
    alias = source.args.get("alias")
    if not plain or not _has_only(source, _TABLE_ARGS) or (alias is not None and not _has_only(alias, {"this"})):
        return None
    columns = [_column(item, operator) for item in tree.expressions]
    return None if None in columns else tuple(name for name in columns if name is not None)


def _column(selected: Any, operator: SearchOperator) -> str | None:
    aliased = isinstance(selected, exp.Alias)
    node: Any = selected.this if aliased else selected
    if isinstance(node, exp.Distance):
        return DISTANCE if aliased else None  # the engine would name the column after the search function
    if not isinstance(node, exp.Column) or not _has_only(node, {"this", "table"}):
        return None
    table, name = node.args.get("table"), node.this
    if not isinstance(name, exp.Identifier) or (table is not None and folded(table) != operator.alias):
        return None
    return folded(name) if folded(name) != DISTANCE else None


def _count(node: Any, parameters: Mapping[str, Any]) -> int | None:
    """A LIMIT or OFFSET that is a whole number, as a literal or a parameter; else None."""
    if isinstance(node, exp.Literal):
        return int(node.this) if not node.is_string and node.this.isdecimal() else None
    value = parameters.get(str(node.this.this)) if isinstance(node, exp.Parameter) else None
    return value if type(value) is int and value >= 0 else None


def _has_only(node: exp.Expression, allowed: frozenset[str] | set[str]) -> bool:
    return all(name in allowed for name, value in node.args.items() if value)
