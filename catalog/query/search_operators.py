"""The search operators of a query's text: `column <-> q`, `column @@ 'words'`, `text_score(column, 'words')`.

Pure: tokens and tree go in; what is asked, of which mention of a table, and what surrounds it, come out. Nothing here
knows whether there is a vector table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from catalog.errors import Invalid

Kind: TypeAlias = Literal["distance", "match", "score"]
SCORE = "text_score"
_SIGNS = {"<->": "distance", "@@": "match"}

_SIMPLE = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between, exp.Like, exp.Parameter, exp.Var,
)  # fmt: skip
_PLACES = (exp.RowNumber, exp.Rank, exp.DenseRank)


@dataclass(frozen=True)
class Nearest:
    """That a block wants its first rows by the distance: `ORDER BY column <-> q LIMIT limit OFFSET offset`."""

    limit: exp.Expression
    offset: exp.Expression | None


@dataclass(frozen=True)
class Operator:
    """One search operator. `start`:`end` is its place in the text, `mention` where its table's name begins.

    `nearest`: its block asks for the first rows by it, and nothing in the block needs the others. `narrows`: it stands
    in WHERE so that rows without the words are not wanted. `conditions`: what else WHERE asks of this table alone, in a
    form that a vector table could check. `open`: something more than those decides which rows of the table are wanted.
    `root`: its block is the whole query. `parameter`: what it asks for, if that is one; `alone`: only
    operators name it.
    """

    kind: Kind
    start: int
    end: int
    mention: int
    alias: str
    column: str
    argument: exp.Expression
    nearest: Nearest | None
    narrows: bool
    conditions: tuple[exp.Expression, ...]
    open: bool
    root: bool
    parameter: str | None
    alone: bool


def operators(tokens: Sequence[Token], tree: exp.Query) -> tuple[Operator, ...]:
    """Every search operator, in the order of the text. Invalid, saying what to write, when one makes no sense."""
    spans = dict(_spans(tokens))
    nodes = list(_nodes(tree))
    if not nodes:
        return ()
    arguments = {id(_sides(node, kind)[1]) for node, kind in nodes}
    others = {_parameter(one) for one in tree.find_all(exp.Parameter) if id(one) not in arguments}
    found = [_operator(node, kind, tree, spans, others) for node, kind in nodes]
    return tuple(sorted(found, key=lambda one: one.start))


def _nodes(tree: exp.Query) -> Iterator[tuple[Any, Kind]]:
    for node in tree.walk():
        if isinstance(node, exp.Distance):
            yield node, "distance"
        elif isinstance(node, exp.MatchAgainst):
            yield node, "match"
        elif isinstance(node, exp.Anonymous) and str(node.this).lower() == SCORE:
            yield node, "score"


def _operator(node: Any, kind: Kind, tree: exp.Query, spans: dict[int, tuple[int, int]], others: set[str]) -> Operator:
    column, argument = _sides(node, kind)
    written = {"distance": "<->", "match": "@@", "score": SCORE}[kind]
    if not isinstance(column, exp.Column) or column.this.meta.get("start") not in spans:
        raise Invalid(f"{written} is asked of an embedded column: write column {written} … or alias.column")
    if not _is_value(argument, kind):
        wanted = "a text, an array of numbers or a parameter" if kind == "distance" else "a text or a parameter"
        raise Invalid(f"{column.sql()} {written} what: {wanted} must stand there")
    start, end = spans[column.this.meta["start"]]
    block = node.find_ancestor(exp.Select)
    table = _mention(column, block, written)
    own = table.find_ancestor(exp.Select) is block
    free = own and block is not None and _is_free(table, block)
    conditions, rest = _conditions(block, table) if free else ((), True)
    nearest = _nearest(node, block) if kind == "distance" and block is not None else None
    parameter = _parameter(argument) if isinstance(argument, exp.Parameter) else None
    return Operator(
        kind,
        start,
        end,
        (table.args.get("db") or table.this).meta["start"],
        folded(table.args["alias"].this) if table.alias else folded(table.this),
        folded(column.this),
        argument,
        nearest if free else None,
        free and _narrows(node, block),
        conditions,
        rest,
        block is tree,
        parameter,
        parameter not in others,
    )


def _sides(node: Any, kind: Kind) -> tuple[Any, Any]:
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
    return kind == "distance" and isinstance(node, exp.Array) and all(_is_number(one) for one in node.expressions)


def _parameter(node: exp.Parameter) -> str:
    return str(node.this.this)  # the name of $name, the number of $1


def _is_number(node: Any) -> bool:
    inner = node.this if isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal) and not inner.is_string


def _mention(column: exp.Column, block: exp.Select | None, written: str) -> exp.Table:
    """The table of the lake that the column is of: by its alias, or the only source there is."""
    named, around = column.table and folded(column.args["table"]), block
    while around is not None:
        sources = _sources(around)
        found = [one for one in sources if not named or _name(one) == named]
        if len(found) > 1:
            raise Invalid(f"whose {column.name} is meant by {written}: write alias.{column.name}")
        if found:
            (source,) = found
            if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier) or _is_common(source):
                raise Invalid(
                    f"{column.sql()} {written} …: {_name(source)} is not a table of the lake here; search where the "
                    "table itself stands in FROM"
                )
            return source
        around = around.find_ancestor(exp.Select)
    raise Invalid(f"{column.sql()} {written} …: there is no {column.table or 'table'} in FROM to search")


def _sources(block: exp.Select) -> list[Any]:
    first = block.args.get("from_") or block.args.get("from")
    return ([first.this] if first is not None else []) + [join.this for join in block.args.get("joins") or ()]


def _name(source: Any) -> str:
    alias = source.args.get("alias")
    if alias is not None and alias.this is not None:
        return folded(alias.this)
    return folded(source.this) if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier) else ""


def _is_common(table: exp.Table) -> bool:
    around: Any = table
    while around is not None and not table.args.get("db"):
        found = around.args.get("with_") or around.args.get("with")
        if found is not None and table.name in {cte.alias for cte in found.expressions}:
            return True
        around = around.parent
    return False


def _is_free(table: exp.Table, block: exp.Select) -> bool:
    """Whether leaving rows of the table out only leaves out rows of the join: no outer join makes up for them."""
    for join in block.args.get("joins") or ():
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if side in ("RIGHT", "FULL") or kind in ("SEMI", "ANTI") or (side == "LEFT" and join.this is table):
            return False
    return True


def _nearest(node: exp.Expression, block: exp.Select) -> Nearest | None:
    """The block's limit, if its first rows by this distance are all that it needs. Invalid if it has no limit."""
    order = block.args.get("order")
    first = order.expressions[0] if order is not None else None
    if first is None or not _is_it(first.this, node, block):
        return None
    limit = block.args.get("limit")
    if limit is None:
        raise Invalid("ORDER BY … <-> … needs a LIMIT: say how many of the nearest rows are wanted")
    if first.args.get("desc") or first.args.get("nulls_first") or not isinstance(limit, exp.Limit):
        return None
    if any(block.args.get(part) for part in ("group", "having", "distinct", "qualify", "windows")):
        return None
    here = [one for part in ("expressions", "order") for one in _within(block, part)]
    if any(isinstance(one, exp.AggFunc) and not isinstance(one.parent, exp.Window) for one in here):
        return None
    if not all(_is_place(one, node) for one in here if isinstance(one, exp.Window)):
        return None
    offset = block.args.get("offset")
    return Nearest(limit.expression, None if offset is None else offset.expression)


def _within(block: exp.Select, part: str) -> Iterator[exp.Expression]:
    held = block.args.get(part)
    for top in held if isinstance(held, list) else [held] if held is not None else []:
        yield from top.walk(prune=lambda node: isinstance(node, exp.Query))


def _is_it(ordered: Any, node: exp.Expression, block: exp.Select) -> bool:
    """Whether the rows are ordered by the operator: by itself, by one that is the same, or by its name in SELECT."""
    if ordered is node or ordered == node:
        return True
    if isinstance(ordered, exp.Column) and not ordered.table:
        return any(one.alias == ordered.name and one.this == node for one in block.expressions if one.alias)
    return False


def _is_place(window: exp.Window, node: exp.Expression) -> bool:
    """`row_number() OVER (ORDER BY column <-> q)`: the first rows have the same places without the others."""
    order = window.args.get("order")
    ordered = order is not None and order.expressions[0].this == node and not order.expressions[0].args.get("desc")
    return isinstance(window.this, _PLACES) and not window.args.get("partition_by") and ordered


def _conjuncts(block: exp.Select | None) -> list[Any]:
    where = block.args.get("where") if block is not None else None
    if where is None:
        return []
    return list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]


def _narrows(node: Any, block: exp.Select | None) -> bool:
    """`WHERE text @@ 'words' AND …`, or `WHERE text_score(…) > 0 AND …`."""
    for one in _conjuncts(block):
        if one is node and isinstance(node, exp.MatchAgainst):
            return True
        if isinstance(one, exp.GT) and one.this is node and isinstance(one.expression, exp.Literal):
            return float(one.expression.this) >= 0
    return False


def _conditions(block: exp.Select | None, table: exp.Table) -> tuple[tuple[exp.Expression, ...], bool]:
    """The conditions on this table that are simple enough to be handed on, and whether anything else decides too."""
    assert block is not None
    simple, rest = list[exp.Expression](), False
    alone = len(_sources(block)) == 1
    for one in _conjuncts(block):
        if _is_search(one):
            continue
        if all(isinstance(node, _SIMPLE) and _is_of(node, table, alone) for node in one.walk()) and _decides(one):
            simple.append(one)
        else:
            rest = True
    joins = block.args.get("joins") or ()
    return tuple(simple), rest or any((join.side or "").upper() != "LEFT" for join in joins)


def _is_search(node: Any) -> bool:
    inner = node.this if isinstance(node, exp.GT) else node
    return isinstance(inner, exp.MatchAgainst) or (
        isinstance(inner, exp.Anonymous) and str(inner.this).lower() == SCORE and isinstance(node, exp.GT)
    )


def _is_of(node: Any, table: exp.Table, alone: bool) -> bool:
    if not isinstance(node, exp.Column):
        return True
    return folded(node.args["table"]) == _name(table) if node.table else alone


def _decides(node: Any) -> bool:
    return isinstance(node, (exp.Predicate, exp.Connector, exp.Not, exp.Paren))


def _spans(tokens: Sequence[Token]) -> Iterator[tuple[int, tuple[int, int]]]:
    """By where the column's own name begins: from where to where the operator with its operands stands."""
    for at, token in enumerate(tokens):
        if token.text in _SIGNS and token.token_type != TokenType.STRING and at:
            first, last = tokens[_back(tokens, at - 1)], tokens[_value_end(tokens, at + 1)]
            yield tokens[at - 1].start, (first.start, last.end + 1)
        elif token.text.lower() == SCORE and at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.L_PAREN:
            close = _closing(tokens, at + 1)
            name = at + 2
            while name + 2 < len(tokens) and tokens[name + 1].token_type == TokenType.DOT:
                name += 2
            if name < len(tokens):
                yield tokens[name].start, (token.start, tokens[close].end + 1)


def _back(tokens: Sequence[Token], at: int) -> int:
    while at >= 2 and tokens[at - 1].token_type == TokenType.DOT:
        at -= 2
    return at


def _value_end(tokens: Sequence[Token], at: int) -> int:
    """The last token of the value that begins here: a text, `$name`, or an array in brackets."""
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
    return str(name.this) if name.quoted else str(name.this).lower()
