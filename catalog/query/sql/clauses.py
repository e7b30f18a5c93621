"""The clauses of a SELECT that the engine runs as written. Every other clause is rejected by name.

DataFusion parses some clauses and ignores them: it returned every row for TABLESAMPLE and START WITH, and no totals for
WITH ROLLUP. So this is a list of clauses known to work, not of clauses known to fail.
"""

from __future__ import annotations

from sqlglot import exp

from catalog.core.errors import Invalid

_TAIL_CLAUSES = frozenset({"order", "limit", "offset"})
_SET_OPERATION = _TAIL_CLAUSES | {"with_", "this", "expression", "distinct", "by_name"}
_SUPPORTED: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: _TAIL_CLAUSES
    | {"with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "qualify", "windows"},
    exp.Union: _SET_OPERATION,
    exp.Except: _SET_OPERATION,
    exp.Intersect: _SET_OPERATION,
    exp.Subquery: _TAIL_CLAUSES | {"with_", "this", "alias", "joins"},
    exp.From: frozenset({"this"}),
    exp.Table: frozenset({"this", "db", "catalog", "alias", "joins"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Join: frozenset({"this", "on", "using", "side", "kind", "method"}),
    exp.Lateral: frozenset({"this", "alias"}),
    exp.Unnest: frozenset({"expressions", "alias"}),
    exp.Group: frozenset({"expressions", "all"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
    exp.With: frozenset({"expressions", "recursive"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Star: frozenset({"except_", "replace"}),
    exp.Distinct: frozenset({"expressions", "on"}),
}
_ALTERNATIVES = {
    "sample": ("TABLESAMPLE", "write WHERE random() < 0.01, or LIMIT"),
    "connect": ("START WITH … CONNECT BY", "write WITH RECURSIVE"),
    "rollup": ("WITH ROLLUP", "write GROUP BY ROLLUP (…)"),
    "cube": ("WITH CUBE", "write GROUP BY CUBE (…)"),
    "totals": ("WITH TOTALS", "write GROUP BY ROLLUP (…)"),
    "hints": ("WITH (…) after a table", "remove it"),
    "pivots": ("PIVOT", "write an aggregate with FILTER (WHERE …) for each column"),
    "laterals": ("LATERAL VIEW", "write unnest(…) in the SELECT list"),
    "ilike": ("* ILIKE", "name the columns"),
    "rename": ("* RENAME", "name the columns"),
    "limit_options": ("LIMIT with PERCENT or TIES", "write a number of rows"),
    "ordinality": ("WITH ORDINALITY", "write row_number() OVER ()"),
    "offset": ("WITH ORDINALITY", "write row_number() OVER ()"),
}


def check_clauses(tree: exp.Expr) -> None:
    """Invalid if the query has a clause that the engine is not known to run as written."""
    for node in tree.walk():
        supported = _SUPPORTED.get(type(node))
        if supported is None:
            unsupported = []
        else:
            unsupported = [name for name, part in node.args.items() if part and name not in supported]
        for name in unsupported:
            written, instead = _ALTERNATIVES.get(name, (name.rstrip("_").replace("_", " ").upper(), "remove it"))
            raise Invalid(f"{written} is not supported: {instead}")
        _check_meaning(node)


def _check_meaning(node: exp.Expr) -> None:
    """Invalid for constructs to which the engine gives another meaning."""
    if isinstance(node, exp.Except | exp.Intersect) and not node.args.get("distinct"):
        word = node.key.upper()
        raise Invalid(f"{word} ALL is not supported: write {word}, or count the rows with GROUP BY")
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and _is_zero(node.this):
        raise Invalid(f"-{node.this.this} is not supported: write {node.this.this}, which is equal in SQL")
    if isinstance(node, exp.Fetch):
        raise Invalid("FETCH FIRST is not supported: write LIMIT")
    alias = node.args.get("alias") if isinstance(node, exp.Table) else None
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns") and alias.name.upper() == "PARTITION":
        raise Invalid("PARTITION (…) is not supported: write WHERE, which reads only the partitions it needs")


def _is_zero(literal: exp.Literal) -> bool:
    """Whether it is a zero with a point or an exponent: those keep a sign, integers do not."""
    return not literal.is_string and not literal.this.isdecimal() and float(literal.this) == 0
