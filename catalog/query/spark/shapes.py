"""Clauses that Spark runs differently: joined columns, joins in parentheses, grand totals over no rows."""

from __future__ import annotations

from math import prod
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import UsingColumnOrder

from catalog.query.spark.nodes import NotEquivalent, with_type
from catalog.query.sql.dialect import LakeDialect

_TOTALS_ALIAS = "strandline_totals"
_TABLE_PARTS = {"this", "db", "alias"}


class JoinedInPlace(LakeDialect):
    """The dialect in which `*` has a joined column at its position in the left table, as in DuckDB."""

    USING_COLUMN_ORDER = UsingColumnOrder.IN_PLACE


def check_shape(tree: exp.Expr) -> None:
    """NotEquivalent for clauses that Spark runs differently. Runs before names are resolved."""
    for table in tree.find_all(exp.Table):
        if table.args.get("joins"):
            raise NotEquivalent("a join in parentheses is not supported: leave them out, or write a subquery")
        for name, part in table.args.items():
            if part and name not in _TABLE_PARTS:
                raise NotEquivalent(f"{name} of table {table.name} is not known to mean the same in Spark: remove it")
    if tree.find(exp.SimilarTo) is not None:
        raise NotEquivalent("SIMILAR TO is not supported: write LIKE, or ~ with a regular expression")
    for distinct in tree.find_all(exp.Distinct):
        if distinct.args.get("on") is not None:
            raise NotEquivalent("DISTINCT ON is not supported: number the rows with row_number() and keep the first")


def add_grand_totals(tree: exp.Expr) -> exp.Expr:
    """Adds the grand total over no rows that ROLLUP, CUBE and GROUPING SETS with `()` return, and Spark does not.

    Each gets a second SELECT, combined by UNION ALL, that returns this row only when there are no rows.
    """
    for select in reversed(list(tree.find_all(exp.Select))):
        group = select.args.get("group")
        count = prod(map(_empty_sets, group.expressions)) if group is not None and group.expressions else 0
        if count:
            replacement = _with_totals(select, count)
            if select is tree:
                tree = replacement
            else:
                select.replace(replacement)
    return tree


def _empty_sets(part: exp.Expr) -> int:
    """How often `()` is among the grouping sets of an item of GROUP BY."""
    if isinstance(part, exp.Rollup | exp.Cube):
        return 1
    if isinstance(part, exp.GroupingSets):
        return sum(map(_empty_sets, part.expressions))
    return int(isinstance(part, exp.Tuple) and not part.expressions)


def order_distinct(tree: exp.Expr) -> exp.Expr:
    """Sorts the result of SELECT DISTINCT by its own columns: Spark no longer has those of its tables then."""
    for select in tree.find_all(exp.Select):
        order = select.args.get("order")
        if select.args.get("distinct") is not None and order is not None:
            for ordered in order.expressions:
                ordered.set("this", _output(ordered.this, select))
    return tree


def rewrite_groupings(tree: exp.Expr) -> exp.Expr:
    """`grouping(a, b)` has a bit for each argument and is a bigint; Spark's takes one and is a tinyint."""
    for node in reversed(list(tree.find_all(exp.Grouping))):
        bits: list[Any] = [exp.cast(exp.Grouping(expressions=[key.copy()]), "bigint") for key in node.expressions]
        number = bits[0]
        for bit in bits[1:]:
            double = exp.Mul(this=exp.Paren(this=number), expression=exp.Literal.number(2))
            number = exp.Add(this=double, expression=bit)
        node.replace(with_type(exp.Paren(this=number), "bigint"))
    return tree


def _with_totals(select: exp.Select, count: int) -> exp.Select:
    grouped = select.copy()
    ends: dict[str, Any] = {name: grouped.args.get(name) for name in ("with_", "order", "limit", "offset")}
    for name in ends:
        grouped.set(name, None)
    union: exp.Query = grouped
    for _ in range(count):
        union = exp.Union(this=union, expression=_totals(grouped), distinct=False)
    outer = exp.Select(expressions=[exp.Star()]).from_(exp.Subquery(this=union, alias=_alias(_TOTALS_ALIAS)))
    for name, end in ends.items():
        outer.set(name, end)
    for ordered in ends["order"].expressions if ends["order"] is not None else ():
        ordered.set("this", _output(ordered.this, grouped))
    return outer


def _totals(grouped: exp.Select) -> exp.Select:
    """The grand total alone: grouping keys are NULL, and HAVING count(*) = 0 drops it if there are rows."""
    totals = grouped.copy()
    keys = [key for part in totals.args["group"].expressions for key in _keys(part)]
    totals.set("group", None)
    for grouping in list(totals.find_all(exp.Grouping)):  # grouped by nothing, without GROUP BY
        grouping.replace(exp.Literal.number(1))
    for clause in [*totals.expressions, *([totals.args["having"]] if totals.args.get("having") else [])]:
        for node in list(clause.walk(prune=lambda inner: isinstance(inner, exp.AggFunc))):
            if not isinstance(node, exp.AggFunc) and node in keys:
                node.replace(exp.Null() if node.type is None else exp.cast(exp.Null(), node.type))
    return totals.having(exp.EQ(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0)))


def _keys(part: exp.Expr) -> list[exp.Expr]:
    if isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        return [key for inner in part.expressions for key in _keys(inner)]
    return _keys(part.this) if isinstance(part, exp.Paren) else [part]


def _output(node: exp.Expr, grouped: exp.Select) -> exp.Expr:
    """An expression of ORDER BY over the columns of the result."""
    names = [item.alias_or_name for item in grouped.expressions]
    for projection, name in zip(grouped.expressions, names, strict=True):
        if (
            node.unnest() in (projection.unalias().unnest(), exp.column(name), exp.column(name, quoted=True))
            and names.count(name) == 1
        ):
            return exp.column(name, quoted=True)
    if isinstance(node, exp.Column | exp.AggFunc | exp.Window | exp.Query):
        raise NotEquivalent(
            "ORDER BY with DISTINCT, ROLLUP, CUBE or GROUPING SETS must name columns of the result: select what it "
            "orders by"
        )
    for child in list(node.iter_expressions()):
        child.replace(_output(child, grouped))
    return node


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))
