"""Checks the joined column of JOIN … USING and NATURAL JOIN.

DataFusion takes it from one side for every kind of join: from the left table where the column is named, and for `*`
from the table whose name sorts first, at that table's position. That is right for inner joins, for a LEFT JOIN whose
left table sorts first, and never for RIGHT and FULL joins.
"""

from __future__ import annotations

from sqlglot import exp

from catalog.core.errors import Invalid


def check_joined_columns(tree: exp.Expr) -> None:
    """Invalid where DataFusion would take a joined column from a side without a row. `tree`: as the engine gets it."""
    for join in tree.find_all(exp.Join):
        if joins_by_name(join) and str(join.args.get("side") or "").upper() in ("RIGHT", "FULL"):
            raise Invalid(
                f"{_described(join)} is not supported: write ON a.k = b.k, and coalesce(a.k, b.k) for the joined column"
            )
    for select in tree.find_all(exp.Select):
        outer = [join for join in named_joins(select) if str(join.args.get("side") or "").upper() == "LEFT"]
        if outer and has_star(select) and not keeps_left(select):
            raise Invalid(f"SELECT * over {_described(outer[0])} is not supported: name the columns, or write ON")


def joins_by_name(join: exp.Join) -> bool:
    """Whether it is a JOIN … USING or a NATURAL JOIN."""
    return bool(join.args.get("using")) or str(join.args.get("method") or "").upper() == "NATURAL"


def named_joins(select: exp.Select) -> list[exp.Join]:
    return [join for join in select.args.get("joins") or () if joins_by_name(join)]


def has_star(select: exp.Select) -> bool:
    """Whether it selects an unqualified `*`; `t.*` has only its own table's columns."""
    return any(isinstance(item, exp.Star) for item in select.expressions)


def keeps_left(select: exp.Select) -> bool:
    """Whether `*` takes each joined column from the leftmost table that has it."""
    from_ = select.args.get("from_")
    tables = [from_.this] if from_ is not None else []
    names = [_name(table) for table in (*tables, *(join.this for join in select.args.get("joins") or ()))]
    return names == sorted(set(names))


def _name(table: exp.Expr) -> tuple[str, ...]:
    """The key that DataFusion sorts by: an alias, which has no database, before every `database.table`."""
    if table.alias or not isinstance(table, exp.Table) or not table.db:
        return "", table.alias_or_name
    return table.db, table.name


def _described(join: exp.Join) -> str:
    side = str(join.args.get("side") or "").upper()
    return f"NATURAL {side} JOIN" if not join.args.get("using") else f"{side} JOIN … USING"
