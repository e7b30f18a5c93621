"""Where DataFusion and Spark mean different things by the same words, and what says the same in Spark.

Two passes over a typed tree: first what changes types (literals, rounding), then what reads them. A function that is in
neither list is refused: a wrong answer that nobody notices is worse than none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

_KIND = exp.DataType.Type
_INTEGERS = exp.DataType.INTEGER_TYPES
_FLOATS = {_KIND.FLOAT, _KIND.DOUBLE}
_DECIMALS = {_KIND.DECIMAL, _KIND.BIGDECIMAL}
_NUMBERS = {*_INTEGERS, *_FLOATS, *_DECIMALS}
_TEXTS = exp.DataType.TEXT_TYPES
_TIMES = {_KIND.TIMESTAMP, _KIND.TIMESTAMPNTZ, _KIND.TIMESTAMPTZ, _KIND.TIMESTAMPLTZ}
_UNKNOWN = {_KIND.UNKNOWN, _KIND.NULL}

_SAME = (
    *(exp.And, exp.Or, exp.Xor, exp.Case, exp.Coalesce, exp.Nullif, exp.Exists, exp.Cast, exp.If),
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.GroupConcat),
    *(exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop),
    *(exp.Corr, exp.CovarSamp, exp.CovarPop),
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
    *(exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue),
    *(exp.Abs, exp.Ceil, exp.Floor, exp.Round, exp.Sqrt, exp.Pow, exp.Ln, exp.Exp, exp.Greatest, exp.Least),
    *(exp.Upper, exp.Lower, exp.Length, exp.Substring, exp.Left, exp.Right, exp.Trim, exp.Concat, exp.ConcatWs),
    *(exp.Replace, exp.StrPosition, exp.SplitPart, exp.StartsWith, exp.EndsWith, exp.Pad, exp.Repeat, exp.Reverse),
    *(exp.RegexpLike, exp.Extract, exp.TimestampTrunc, exp.DateTrunc, exp.CurrentDate, exp.CurrentTimestamp),
    *(exp.Array, exp.ArraySize, exp.Unnest, exp.Explode),
)
_PARTS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "HOUR", "MINUTE", "SECOND"}
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
_CASTS = {
    *_NUMBERS,
    *_TEXTS,
    *_TIMES,
    *{_KIND.BOOLEAN, _KIND.DATE},
}
_FEW = 64  # values of an IN that are worth a comparison each
_DOUBLE_RESULT = exp.Ceil | exp.Floor | exp.Round
_ARITHMETIC = exp.Add | exp.Sub | exp.Mul | exp.Mod | exp.Div | exp.Neg


class Different(Exception):
    """Spark would not give the same rows, or nobody has shown that it does."""


def check_shape(tree: exp.Expr) -> None:
    """What has to be seen before names are resolved."""
    for join in tree.find_all(exp.Join):
        named = join.args.get("using") or str(join.args.get("method") or "").upper() == "NATURAL"
        if named and str(join.args.get("side") or "").upper() in ("FULL", "RIGHT"):
            raise Different("the joined column of a FULL or RIGHT JOIN … USING has another value there: write ON")
    for distinct in tree.find_all(exp.Distinct):
        if distinct.args.get("on") is not None:
            raise Different("DISTINCT ON is not there: number the rows with row_number() and keep the first")


def rewrite_types(tree: exp.Expr, *, exact_decimals: bool) -> exp.Expr:
    """Literals and functions as wide as DataFusion has them: whole numbers of 64 bits, `round` of one a double."""
    for node in _leaves_first(tree):
        if isinstance(node, exp.Func) and not isinstance(node, _SAME):
            raise Different(f"{_called(node)} is not known to mean the same there; leave it out, or narrow the query")
        if isinstance(node, exp.Literal) and not node.is_string:
            _wide(node, exact_decimals)
        elif isinstance(node, _DOUBLE_RESULT):
            if _kind(node.this) not in {*_INTEGERS, *_FLOATS}:
                raise Different(f"{_called(node)} of {_type_name(node.this)} is not known to mean the same there")
            _wrap(node, lambda inner: exp.cast(inner, "double"))
        elif isinstance(node, exp.Cast):
            _cast(node)
        elif isinstance(node, exp.Explode) and not isinstance(node.parent, exp.Alias | exp.Select):
            raise Different("unnest inside an expression is not there: unnest in a subquery first")
        elif isinstance(node, exp.Any | exp.All):
            raise Different("ANY and ALL over a subquery are not there: write EXISTS or IN")
        elif isinstance(node, exp.WindowSpec) and str(node.args.get("kind", "")).upper() == "GROUPS":
            raise Different("window frames of GROUPS are not there: use ROWS or RANGE")
    return tree


def rewrite_values(tree: exp.Expr) -> exp.Expr:
    """Each construct that means something else in Spark, by what means the same."""
    for node in _leaves_first(tree):
        for kind, rewrite in _REWRITES.items():
            if isinstance(node, kind):
                rewrite(node)
                break
    return tree


def _leaves_first(tree: exp.Expr) -> list[Any]:
    return list(reversed(list(tree.walk(bfs=True))))


def _wide(node: exp.Literal, exact_decimals: bool) -> None:
    """DataFusion's whole literals have 64 bits, and its broken ones are doubles unless the tables have decimals."""
    if not str(node.this).isdecimal():
        if not exact_decimals:
            _wrap(node, lambda inner: exp.cast(exp.Literal.string(str(inner.this)), "double"))
        return
    parent = node.parent
    if isinstance(parent, exp.Neg):
        parent = parent.parent
    if not isinstance(parent, _ARITHMETIC | exp.Case | exp.If | exp.Coalesce | exp.Select | exp.Alias | exp.Sum):
        return  # an argument or a count, where Spark wants its 32 bits
    if isinstance(parent, exp.Add | exp.Sub) and any(_kind(side) == _KIND.DATE for side in _sides(parent)):
        return  # days
    _wrap(node, lambda inner: exp.cast(inner, "bigint"))


def _cast(node: exp.Cast) -> None:
    to = node.to
    if isinstance(node.this, exp.Literal) and node.this.is_string and to.this == _KIND.INTERVAL:
        return
    if to.this not in _CASTS:
        raise Different(f"a cast to {to.sql('postgres')} is not known to mean the same there")
    if to.this in _TEXTS:
        _text(node.this)
        node.set("to", exp.DataType.build("text"))
    elif to.this == _KIND.TIMESTAMP:
        node.set("to", exp.DataType(this=_KIND.TIMESTAMPNTZ))


def _text(node: exp.Expr) -> None:
    """What may become text: floats and times are spelled differently."""
    kind = _kind(node)
    if kind in {*_FLOATS, *_TIMES} or kind == _KIND.UNKNOWN:
        raise Different(f"text from {_type_name(node)} is spelled differently there ({node.sql('postgres')[:60]})")


def _divide(node: exp.Div) -> None:
    kinds = [_kind(side) for side in _sides(node)]
    if _KIND.UNKNOWN in kinds:
        raise Different(f"whether {node.sql('postgres')[:60]} divides whole numbers is not known: cast one side")
    if all(kind in _INTEGERS for kind in kinds):
        node.replace(_typed(exp.Paren(this=exp.IntDiv(this=node.left.copy(), expression=node.right.copy())), "bigint"))
        return
    plain = node.copy()
    for name in ("typed", "safe"):
        plain.set(name, False)
    if not any(kind in _FLOATS for kind in kinds) or _is_nonzero(node.right):
        node.replace(_typed(exp.Paren(this=plain), node.type))
        return
    above, below = (exp.cast(side.copy(), "double") for side in _sides(node))
    infinite = (
        exp.Case()
        .when(
            exp.Or(this=exp.IsNan(this=above.copy()), expression=exp.EQ(this=above.copy(), expression=_zero())),
            _far("NaN"),
        )
        .when(exp.GT(this=above.copy(), expression=_zero()), _far("Infinity"))
        .when(exp.LT(this=above.copy(), expression=_zero()), _far("-Infinity"))
    )
    divided = exp.Case().when(exp.EQ(this=below, expression=_zero()), infinite).else_(exp.Paren(this=plain))
    node.replace(_typed(divided, "double"))


def _subtract(node: exp.Sub) -> None:
    left, right = (_kind(side) for side in _sides(node))
    if left == right == _KIND.DATE:
        days = exp.Anonymous(this="datediff", expressions=[node.left.copy(), node.right.copy()])
        node.replace(_typed(exp.cast(days, "bigint"), "bigint"))
    elif left in {*_TIMES, _KIND.DATE} and right in {*_TIMES, _KIND.DATE}:
        raise Different("the difference of two times is another type there: subtract dates")
    else:
        _shift(node)


def _shift(node: exp.Add | exp.Sub) -> None:
    """A date by so many days, or by an interval of days or more."""
    for one, other in (_sides(node), _sides(node)[::-1]):
        if _kind(one) != _KIND.DATE:
            continue
        if _kind(other) in _INTEGERS:
            other.replace(exp.cast(other.copy(), "int"))
            return
        for interval in other.find_all(exp.Interval):
            said = f"{interval.args.get('unit') or ''} {interval.this.sql() if interval.this else ''}".upper()
            if any(word in said for word in ("HOUR", "MINUTE", "SECOND", "MILLI", "MICRO", "NANO", ":")):
                raise Different("a date moved by less than a day is a date here and a time there: cast it first")
        return


def _compare(node: exp.Expr) -> None:
    sides = [one for name in ("this", "expression", "low", "high") if isinstance(one := node.args.get(name), exp.Expr)]
    kinds = {_kind(one) for one in (*sides, *node.args.get("expressions", ()))}
    if kinds & _TEXTS and kinds & _NUMBERS:
        raise Different(f"{node.sql('postgres')[:60]} compares text with a number: cast one side")


def _substring(node: exp.Substring) -> None:
    """Positions before the first count from there, not from the end."""
    start, length = node.args.get("start"), node.args.get("length")
    if start is None or (_whole(start) or 0) >= 1:
        return
    at = exp.cast(start.copy(), "int")
    node.set("start", exp.Case().when(exp.LT(this=at.copy(), expression=_one()), _one()).else_(at.copy()))
    if length is not None:
        size = exp.Add(this=exp.cast(length.copy(), "int"), expression=_below(at))
        less = exp.LT(this=size.copy(), expression=exp.Literal.number(0))
        node.set("length", exp.Case().when(less, exp.Literal.number(0)).else_(size))


def _below(at: exp.Expr) -> exp.Expr:
    """How much of a length lies before the text: 0, or negative."""
    before = exp.Paren(this=exp.Sub(this=at.copy(), expression=_one()))
    return exp.Case().when(exp.LT(this=at.copy(), expression=_one()), before).else_(exp.Literal.number(0))


def _ends(node: exp.Left | exp.Right) -> None:
    """`left(s, -2)` is all but the last two."""
    count = node.expression
    if (_whole(count) or -1) >= 0:
        return
    asked = exp.cast(count.copy(), "int")
    rest = exp.Add(this=exp.Length(this=node.this.copy()), expression=asked.copy())
    node.set(
        "expression",
        exp.Case().when(exp.LT(this=asked.copy(), expression=exp.Literal.number(0)), rest).else_(asked),
    )


def _extract(node: exp.Extract) -> None:
    part = node.name.upper()
    if part not in _PARTS:
        raise Different(f"extract({part.lower()} …) is not known to mean the same there")
    if part == "DOW":  # Sunday is 0 here and 1 there
        _wrap(node, lambda inner: exp.Paren(this=exp.Sub(this=inner, expression=_one())), "int")
    elif part == "SECOND":  # whole ones here
        _wrap(node, lambda inner: exp.cast(inner, "int"), "int")


def _truncate(node: exp.TimestampTrunc | exp.DateTrunc) -> None:
    unit = str(node.args["unit"].name).upper()
    if unit not in _UNITS:
        raise Different(f"date_trunc('{unit.lower()}', …) is not known to mean the same there")


def _logarithm(node: exp.Ln) -> None:
    value = exp.cast(node.this.copy(), "double")
    made = (
        exp.Case()
        .when(exp.GT(this=value.copy(), expression=_zero()), exp.Ln(this=value.copy()))
        .when(exp.EQ(this=value.copy(), expression=_zero()), _far("-Infinity"))
        .when(exp.LT(this=value.copy(), expression=_zero()), _far("NaN"))
    )
    node.replace(_typed(made, "double"))


def _matches(node: exp.RegexpLike) -> None:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string) or node.args.get("flag") is not None:
        raise Different("a regular expression has to be a plain literal there")
    node.set("expression", exp.Literal.string(f"(?U){pattern.this}"))  # \w and \d are Unicode's here


def _element(node: exp.Bracket) -> None:
    """Beyond the end there is NULL, as here, and no error."""
    if _kind(node.this) != _KIND.ARRAY or len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise Different(f"{node.sql('postgres')[:60]} is not known to mean the same there")
    (index,) = node.expressions
    whole = _whole(index)
    at = exp.Literal.number(whole + 1) if whole is not None else exp.Add(this=index.copy(), expression=_one())
    kind = node.type
    found = exp.Anonymous(this="try_element_at", expressions=[node.this.copy(), exp.cast(at, "int")])
    node.replace(_typed(found, kind))


def _average(node: exp.Avg) -> None:
    """An average of decimals is cut off here and rounded there: four digits more, which the result's type cuts off."""
    kind = node.this.type
    if _kind(node.this) not in _DECIMALS or kind is None or len(kind.expressions) != 2:
        return
    precision, scale = (int(one.name) for one in kind.expressions)
    if precision <= 26:
        node.set("this", exp.cast(node.this.copy(), f"decimal({precision + 4}, {scale + 4})"))


def _joined(node: exp.Expr) -> None:
    for one in (*_sides(node), *node.expressions):
        if isinstance(one, exp.Expr):
            _text(one)


def _trim(node: exp.Trim) -> None:
    if node.expression is None or isinstance(node.expression, exp.Literal):
        return
    raise Different("trim takes a plain literal there")


def _among(node: exp.In) -> None:
    """Iceberg's planner fails on a set of texts where a partition's value is NULL: it is given none to look into."""
    _compare(node)
    column = node.this
    while isinstance(column, exp.Cast | exp.Paren):
        column = column.this
    if not (node.expressions and isinstance(column, exp.Column) and _kind(node.this) in _TEXTS):
        return
    if len(node.expressions) > _FEW:
        node.set("this", _not_planned_by(node.this))
        return
    each = [exp.EQ(this=node.this.copy(), expression=item.copy()) for item in node.expressions]
    node.replace(_typed(exp.Paren(this=exp.or_(*each)), "boolean"))


def _like(node: exp.Like | exp.StartsWith) -> None:
    """Nor is it told of a text that must not begin with something, for the same reason."""
    above = node.parent
    while isinstance(above, exp.And | exp.Paren):
        above = above.parent
    if isinstance(node.this, exp.Column) and not isinstance(above, exp.Where):
        node.set("this", _not_planned_by(node.this))


def _not_planned_by(column: Any) -> Any:
    """The same text, as what is no column any more."""
    return _typed(exp.Paren(this=exp.DPipe(this=column.copy(), expression=exp.Literal.string(""))), "text")


_REWRITES: dict[Any, Callable[[Any], None]] = {
    exp.Div: _divide,
    exp.Sub: _subtract,
    exp.Add: _shift,
    exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Between: _compare,
    exp.In: _among,
    exp.Like | exp.StartsWith: _like,
    exp.NullSafeEQ | exp.NullSafeNEQ: _compare,
    exp.Substring: _substring,
    exp.Left | exp.Right: _ends,
    exp.Extract: _extract,
    exp.TimestampTrunc | exp.DateTrunc: _truncate,
    exp.Ln: _logarithm,
    exp.RegexpLike: _matches,
    exp.Bracket: _element,
    exp.DPipe | exp.Concat | exp.ConcatWs: _joined,
    exp.Trim: _trim,
    exp.Avg: _average,
}


def _sides(node: exp.Expr) -> list[Any]:
    return [node.this, node.expression] if isinstance(node, exp.Binary) else []


def _kind(node: Any) -> Any:
    found = getattr(node, "type", None)
    return found.this if isinstance(found, exp.DataType) else _KIND.UNKNOWN


def _type_name(node: exp.Expr) -> str:
    return str(_kind(node).value).lower()


def _called(node: exp.Func) -> str:
    return f"{node.name or node.sql_name()}()".lower() if isinstance(node, exp.Anonymous) else node.sql_name().lower()


def _typed(node: Any, kind: Any) -> Any:
    node.type = kind
    return node


def _wrap(node: exp.Expr, make: Callable[[Any], Any], kind: str | None = None) -> None:
    made = make(node.copy())
    if kind is not None:
        made.type = kind
    node.replace(made)


def _whole(node: exp.Expr) -> int | None:
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
        return int(node.this)
    return None


def _is_nonzero(node: exp.Expr) -> bool:
    while isinstance(node, exp.Cast | exp.Paren | exp.Neg):
        node = node.this
    try:
        return isinstance(node, exp.Literal) and float(node.this) != 0
    except ValueError:
        return False


def _zero() -> exp.Expr:
    return exp.cast(exp.Literal.number(0), "double")


def _one() -> exp.Expr:
    return exp.Literal.number(1)


def _far(name: str) -> exp.Expr:
    return exp.cast(exp.Literal.string(name), "double")
