"""The search operators of a query's text: `column <-> q`, `column @@ 'words'`, `text_score(column, 'words')`.

Pure: from tokens and the syntax tree it derives what each operator searches for, in which table reference, and what
the surrounding query needs. It does not know whether a vector table exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from catalog.core.errors import Invalid

Kind: TypeAlias = Literal["distance", "match", "score"]
SCORE = "text_score"
_SYMBOLS = {"<->": "distance", "@@": "match"}

_PUSHABLE = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between, exp.Like, exp.Parameter, exp.Var,
)  # fmt: skip
_RANKINGS = (exp.RowNumber, exp.Rank, exp.DenseRank)


@dataclass(frozen=True)
class Nearest:
    """A SELECT that needs only its nearest rows: `ORDER BY column <-> q LIMIT limit OFFSET offset`."""

    limit: exp.Expression
    offset: exp.Expression | None


@dataclass(frozen=True)
class SearchOperator:
    """One search operator. `start`:`end` is its span in the text; `ref_start` the offset of its table reference.

    `nearest`: its SELECT needs only the rows nearest by this operator. `filters_rows`: it is a condition of WHERE that
    excludes rows without the words. `conditions`: the other conditions of WHERE on this table alone that a vector table
    can evaluate. `has_other_filters`: something besides those conditions also excludes rows of the table. `outermost`:
    its SELECT is the whole query. `parameter`: the parameter that holds its value, if any; `parameter_is_search_only`:
    only search operators name that parameter.
    """

    kind: Kind
    start: int
    end: int
    ref_start: int
    alias: str
    column: str
    argument: exp.Expression
    nearest: Nearest | None
    filters_rows: bool
    conditions: tuple[exp.Expression, ...]
    has_other_filters: bool
    outermost: bool
    parameter: str | None
    parameter_is_search_only: bool


def operators(tokens: Sequence[Token], tree: exp.Expr) -> tuple[SearchOperator, ...]:
    """Every search operator, in the order of the text. Invalid, with what to write, for a wrong operand."""
    spans = dict(_spans(tokens))
    nodes = list(_nodes(tree))
    if not nodes:
        return ()
    arguments = {id(_operands(node, kind)[1]) for node, kind in nodes}
    other_parameters = {_parameter(node) for node in tree.find_all(exp.Parameter) if id(node) not in arguments}
    unsorted = [_operator(node, kind, tree, spans, other_parameters) for node, kind in nodes]
    return tuple(sorted(unsorted, key=lambda operator: operator.start))


def _nodes(tree: exp.Expr) -> Iterator[tuple[Any, Kind]]:
    for node in tree.walk():
        if isinstance(node, exp.Distance):
            yield node, "distance"
        elif isinstance(node, exp.MatchAgainst):
            yield node, "match"
        elif isinstance(node, exp.Anonymous) and str(node.this).lower() == SCORE:
            yield node, "score"


def _operator(
    node: Any, kind: Kind, tree: exp.Expr, spans: dict[int, tuple[int, int]], other_parameters: set[str]
) -> SearchOperator:
    column, argument = _operands(node, kind)
    symbol = {"distance": "<->", "match": "@@", "score": SCORE}[kind]
    if not isinstance(column, exp.Column) or column.this.meta.get("start") not in spans:
        raise Invalid(f"{symbol} searches an embedded column: write column {symbol} … or alias.column {symbol} …")
    if not _is_value(argument, kind):
        expected = "a text, an array of numbers or a parameter" if kind == "distance" else "a text or a parameter"
        raise Invalid(f"{column.sql()} {symbol} needs a value: write {expected} after it")
    start, end = spans[column.this.meta["start"]]
    select = node.find_ancestor(exp.Select)
    table = _searched_table(column, select, symbol)
    in_from = table.find_ancestor(exp.Select) is select
    droppable = in_from and select is not None and _is_droppable(table, select)
    conditions, has_other_filters = _conditions(select, table) if droppable else ((), True)
    nearest = _nearest(node, select) if kind == "distance" and select is not None else None
    parameter = _parameter(argument) if isinstance(argument, exp.Parameter) else None
    return SearchOperator(
        kind,
        start,
        end,
        (table.args.get("db") or table.this).meta["start"],
        folded(table.args["alias"].this) if table.alias else folded(table.this),
        folded(column.this),
        argument,
        nearest if droppable else None,
        droppable and _filters_rows(node, select),
        conditions,
        has_other_filters,
        select is tree,
        parameter,
        parameter not in other_parameters,
    )


def _operands(node: Any, kind: Kind) -> tuple[Any, Any]:
    if kind == "distance":
        return node.this, node.expression
    if kind == "match":
        return (node.expressions[0] if len(node.expressions) == 1 else None), node.this
    if len(node.expressions) != 2:
        raise Invalid(f"{SCORE} takes a column and words: {SCORE}(text, 'machine learning')")
    return node.expressions[0], node.expressions[1]


def _is_value(node: Any, kind: Kind) -> bool:
    if isinstance(node, exp.Parameter):
        return True
    if isinstance(node, exp.Literal):
        return bool(node.is_string)
    return kind == "distance" and isinstance(node, exp.Array) and all(_is_number(item) for item in node.expressions)


def _parameter(node: exp.Parameter) -> str:
    return str(node.this.this)  # the name of $name, the number of $1


def _is_number(node: Any) -> bool:
    inner = node.this if isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal) and not inner.is_string


def _searched_table(column: exp.Column, select: exp.Select | None, symbol: str) -> exp.Table:
    """The table of the lake that holds the column: by its qualifier, or the only table of FROM."""
    qualifier, scope = column.table and folded(column.args["table"]), select
    while scope is not None:
        sources = [source for source in _sources(scope) if not qualifier or _name(source) == qualifier]
        if len(sources) > 1:
            raise Invalid(
                f"column {column.name} of {symbol} is ambiguous: qualify it with a table or its alias, for example "
                f"{_name(sources[0]) or 'alias'}.{column.name}"
            )
        if sources:
            (source,) = sources
            if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier) or _is_cte(source):
                raise Invalid(
                    f"{column.sql()} {symbol} …: {_name(source)} is not a table of the lake; use {symbol} where "
                    "FROM names the table itself"
                )
            return source
        scope = scope.find_ancestor(exp.Select)
    raise Invalid(f"{column.sql()} {symbol} …: there is no {column.table or 'table'} in FROM to search")


def _sources(select: exp.Select) -> list[Any]:
    from_ = select.args.get("from_") or select.args.get("from")
    return ([from_.this] if from_ is not None else []) + [join.this for join in select.args.get("joins") or ()]


def _name(source: Any) -> str:
    alias = source.args.get("alias")
    if alias is not None and alias.this is not None:
        return folded(alias.this)
    return folded(source.this) if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) else ""


def _is_cte(table: exp.Table) -> bool:
    ancestor: Any = table
    while ancestor is not None and not table.args.get("db"):
        with_ = ancestor.args.get("with_") or ancestor.args.get("with")
        if with_ is not None and table.name in {cte.alias for cte in with_.expressions}:
            return True
        ancestor = ancestor.parent
    return False


def _is_droppable(table: exp.Table, select: exp.Select) -> bool:
    """Whether dropping rows of the table only drops rows of the join: no outer, semi or anti join depends on them."""
    for join in select.args.get("joins") or ():
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if side in ("RIGHT", "FULL") or kind in ("SEMI", "ANTI") or (side == "LEFT" and join.this is table):
            return False
    return True


def _nearest(node: exp.Expression, select: exp.Select) -> Nearest | None:
    """The LIMIT of the SELECT, if it needs only the rows nearest by this operator. Invalid if it has no LIMIT."""
    order = select.args.get("order")
    first = order.expressions[0] if order is not None else None
    if first is None or not _orders_by(first.this, node, select):
        return None
    limit = select.args.get("limit")
    if limit is None:
        raise Invalid("ORDER BY … <-> … needs a LIMIT: write how many of the nearest rows to return")
    if first.args.get("desc") or first.args.get("nulls_first") or not isinstance(limit, exp.Limit):
        return None
    if any(select.args.get(part) for part in ("group", "having", "distinct", "qualify", "windows")):
        return None
    nodes = [inner for part in ("expressions", "order") for inner in _nodes_of(select, part)]
    if any(isinstance(inner, exp.AggFunc) and not isinstance(inner.parent, exp.Window) for inner in nodes):
        return None
    if not all(_ranks_by(inner, node) for inner in nodes if isinstance(inner, exp.Window)):
        return None
    offset = select.args.get("offset")
    return Nearest(limit.expression, None if offset is None else offset.expression)


def _nodes_of(select: exp.Select, part: str) -> Iterator[exp.Expression]:
    """The nodes of one clause of the SELECT, without subqueries."""
    clause = select.args.get(part)
    for top in clause if isinstance(clause, list) else [clause] if clause is not None else []:
        yield from top.walk(prune=lambda node: isinstance(node, exp.Query))


def _orders_by(ordered: Any, node: exp.Expression, select: exp.Select) -> bool:
    """Whether ORDER BY is by the operator: by itself, by an equal one, or by its alias."""
    if ordered is node or ordered == node:
        return True
    if isinstance(ordered, exp.Column) and not ordered.table:
        return any(item.alias == ordered.name and item.this == node for item in select.expressions if item.alias)
    return False


def _ranks_by(window: exp.Window, node: exp.Expression) -> bool:
    """`row_number() OVER (ORDER BY column <-> q)`: the nearest rows have the same ranks without the others."""
    order = window.args.get("order")
    ordered = order is not None and order.expressions[0].this == node and not order.expressions[0].args.get("desc")
    return isinstance(window.this, _RANKINGS) and not window.args.get("partition_by") and ordered


def _conjuncts(select: exp.Select | None) -> list[Any]:
    where = select.args.get("where") if select is not None else None
    if where is None:
        return []
    return list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]


def _filters_rows(node: Any, select: exp.Select | None) -> bool:
    """`WHERE text @@ 'words' AND …`, or `WHERE text_score(…) > 0 AND …`."""
    for condition in _conjuncts(select):
        if condition is node and isinstance(node, exp.MatchAgainst):
            return True
        if isinstance(condition, exp.GT) and condition.this is node and isinstance(condition.expression, exp.Literal):
            return float(condition.expression.this) >= 0
    return False


def _conditions(select: exp.Select | None, table: exp.Table) -> tuple[tuple[exp.Expression, ...], bool]:
    """The conditions on this table that a vector table can evaluate, and whether anything else also excludes rows."""
    assert select is not None
    pushable, has_others = list[exp.Expression](), False
    only_table = len(_sources(select)) == 1
    for condition in _conjuncts(select):
        if _is_search(condition):
            continue
        supported = all(isinstance(node, _PUSHABLE) and _is_of(node, table, only_table) for node in condition.walk())
        if supported and _is_boolean(condition):
            pushable.append(condition)
        else:
            has_others = True
    joins = select.args.get("joins") or ()
    return tuple(pushable), has_others or any((join.side or "").upper() != "LEFT" for join in joins)


def _is_search(node: Any) -> bool:
    inner = node.this if isinstance(node, exp.GT) else node
    return isinstance(inner, exp.MatchAgainst) or (
        isinstance(inner, exp.Anonymous) and str(inner.this).lower() == SCORE and isinstance(node, exp.GT)
    )


def _is_of(node: Any, table: exp.Table, only_table: bool) -> bool:
    if not isinstance(node, exp.Column):
        return True
    return folded(node.args["table"]) == _name(table) if node.table else only_table


def _is_boolean(node: Any) -> bool:
    return isinstance(node, (exp.Predicate, exp.Connector, exp.Not, exp.Paren))


def _spans(tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[int, int]]]:
    """By the offset of the column's name: the span of the operator with its operands."""
    for at, token in enumerate(tokens):
        if token.text in _SYMBOLS and token.token_type != TokenType.STRING and at:
            first, last = tokens[_name_start(tokens, at - 1)], tokens[_value_end(tokens, at + 1)]
            yield tokens[at - 1].start, (first.start, last.end + 1)
        elif token.text.lower() == SCORE and at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.L_PAREN:
            close = _closing(tokens, at + 1)
            name = at + 2
            while name + 2 < len(tokens) and tokens[name + 1].token_type == TokenType.DOT:
                name += 2
            if name < len(tokens):
                yield tokens[name].start, (token.start, tokens[close].end + 1)


def _name_start(tokens: Sequence[Token], at: int) -> int:
    while at >= 2 and tokens[at - 1].token_type == TokenType.DOT:
        at -= 2
    return at


def _value_end(tokens: Sequence[Token], at: int) -> int:
    """The last token of the value that begins at `at`: a text, `$name`, or an array in brackets."""
    if at < len(tokens) and tokens[at].token_type == TokenType.ARRAY:
        at += 1
    if at < len(tokens) and tokens[at].token_type == TokenType.L_BRACKET:
        return _closing(tokens, at)
    return min(at + 1 if at < len(tokens) and tokens[at].text == "$" else at, len(tokens) - 1)


def _closing(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    for position in range(at, len(tokens)):
        kind = tokens[position].token_type
        depth += (kind in (TokenType.L_PAREN, TokenType.L_BRACKET)) - (kind in (TokenType.R_PAREN, TokenType.R_BRACKET))
        if depth == 0:
            return position
    return len(tokens) - 1


def folded(name: Any) -> str:
    """An identifier as SQL compares it: in lower case unless it is quoted."""
    return str(name.this) if name.quoted else str(name.this).lower()
