"""Rewrites expressions that mean different things in DataFusion and Spark.

Two passes over a typed tree: the first changes types (literals, rounding), the second depends on them. A function that
is not listed here is rejected: an error is better than a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from catalog.query.spark.nodes import (
    DECIMALS,
    FLOATS,
    INTEGERS,
    KIND,
    NUMBERS,
    TEXTS,
    TIMES,
    NotEquivalent,
    double_zero,
    function_name,
    integer_literal,
    is_nonzero,
    kind_of,
    literal_one,
    operands,
    special_double,
    type_name,
    with_type,
    wrap,
)
from catalog.query.spark.texts import (
    check_text,
    concatenate,
    left_or_right,
    like,
    not_planned_by,
    regexp_like,
    replace,
    substring,
    trim,
)

_SUPPORTED_FUNCTIONS = (
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
_EXTRACT_PARTS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "DOW", "HOUR", "MINUTE", "SECOND"}
_TRUNC_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
_CAST_TARGETS = {
    *NUMBERS,
    *TEXTS,
    *TIMES,
    *{KIND.BOOLEAN, KIND.DATE},
}
_WITHOUT_ZONE = {KIND.TIMESTAMP, KIND.TIMESTAMPNTZ, KIND.DATE}
_PLAIN_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")
_MAX_COMPARISONS = 64  # an IN of more values is not expanded to comparisons
_DOUBLE_RESULT = exp.Ceil | exp.Floor | exp.Round
_ARITHMETIC = exp.Add | exp.Sub | exp.Mul | exp.Mod | exp.Div | exp.Neg


def rewrite_types(tree: exp.Expr, *, exact_decimals: bool) -> exp.Expr:
    """Gives literals and functions DataFusion's types: integer literals have 64 bits, `round` of one is a double."""
    for node in _leaves_first(tree):
        if isinstance(node, exp.Func) and not isinstance(node, _SUPPORTED_FUNCTIONS):
            raise NotEquivalent(
                f"{function_name(node)} is not known to mean the same in Spark: leave it out, or narrow the query"
            )
        if isinstance(node, exp.Literal) and not node.is_string:
            _widen(node, exact_decimals)
        elif isinstance(node, _DOUBLE_RESULT):
            if kind_of(node.this) not in {*INTEGERS, *FLOATS}:
                raise NotEquivalent(
                    f"{function_name(node)} of {type_name(node.this)} is not known to mean the same in Spark"
                )
            wrap(node, lambda inner: exp.cast(inner, "double"))
        elif isinstance(node, exp.Cast):
            _cast(node)
        elif isinstance(node, exp.Explode) and not isinstance(node.parent, exp.Alias | exp.Select):
            raise NotEquivalent("unnest inside an expression is not supported: unnest in a subquery first")
        elif isinstance(node, exp.Any | exp.All):
            raise NotEquivalent("ANY and ALL over a subquery are not supported: write EXISTS or IN")
        elif isinstance(node, exp.WindowSpec) and str(node.args.get("kind", "")).upper() == "GROUPS":
            raise NotEquivalent("window frames of GROUPS are not supported: use ROWS or RANGE")
        elif isinstance(node, exp.AtTimeZone) and node.args["zone"].name != "UTC":
            raise NotEquivalent("AT TIME ZONE gives another type and other hours in Spark: leave it out, or use 'UTC'")
    return tree


def rewrite_values(tree: exp.Expr) -> exp.Expr:
    """Replaces each construct that means something else in Spark by an equivalent one."""
    for node in _leaves_first(tree):
        for kind, rewrite in _REWRITES.items():
            if isinstance(node, kind):
                rewrite(node)
                break
    return tree


def _leaves_first(tree: exp.Expr) -> list[Any]:
    return list(reversed(list(tree.walk(bfs=True))))


def _widen(node: exp.Literal, exact_decimals: bool) -> None:
    """In DataFusion integer literals have 64 bits, and others are doubles unless the tables have decimals."""
    if not str(node.this).isdecimal():
        if not exact_decimals:
            wrap(node, lambda inner: exp.cast(exp.Literal.string(str(inner.this)), "double"))
        return
    parent = node.parent
    if isinstance(parent, exp.Neg):
        parent = parent.parent
    if not isinstance(parent, _ARITHMETIC | exp.Case | exp.If | exp.Coalesce | exp.Select | exp.Alias | exp.Sum):
        return  # an argument or a count, for which Spark expects 32 bits
    if isinstance(parent, exp.Add | exp.Sub) and any(kind_of(side) == KIND.DATE for side in operands(parent)):
        return  # a number of days
    wrap(node, lambda inner: exp.cast(inner, "bigint"))


def _cast(node: exp.Cast) -> None:
    to = node.to
    if isinstance(node.this, exp.Literal) and node.this.is_string and to.this == KIND.INTERVAL:
        return
    if to.this not in _CAST_TARGETS:
        raise NotEquivalent(f"a cast to {to.sql('postgres')} is not known to mean the same in Spark")
    if to.this in TEXTS:
        check_text(node.this)
        node.set("to", exp.DataType.build("text"))
    elif to.this in _WITHOUT_ZONE:
        if kind_of(node.this) in TEXTS:
            _check_time(node.this)
        if to.this == KIND.TIMESTAMP:
            node.set("to", exp.DataType(this=KIND.TIMESTAMPNTZ))


def _check_time(node: exp.Expr) -> None:
    """NotEquivalent for text that may hold an offset: cast to a time, DataFusion applies it and Spark ignores it."""
    if not (isinstance(node, exp.Literal) and _PLAIN_TIME.fullmatch(node.this)):
        excerpt = node.sql("postgres")[:60]
        raise NotEquivalent(
            f"an offset in {excerpt} would be ignored in Spark: write it in UTC, or cast to timestamptz"
        )


def _divide(node: exp.Div) -> None:
    kinds = [kind_of(side) for side in operands(node)]
    if KIND.UNKNOWN in kinds:
        raise NotEquivalent(
            f"the types in {node.sql('postgres')[:60]} are not known, so it may divide integers: cast one side"
        )
    if all(kind in INTEGERS for kind in kinds):
        node.replace(
            with_type(exp.Paren(this=exp.IntDiv(this=node.left.copy(), expression=node.right.copy())), "bigint")
        )
        return
    plain = node.copy()
    for name in ("typed", "safe"):
        plain.set(name, False)
    if not any(kind in FLOATS for kind in kinds):
        _check_quotient(node)
    if not any(kind in FLOATS for kind in kinds) or is_nonzero(node.right):
        node.replace(with_type(exp.Paren(this=plain), node.type))
        return
    dividend, divisor = (exp.cast(side.copy(), "double") for side in operands(node))
    by_zero = (
        exp.Case()
        .when(
            exp.Or(
                this=exp.IsNan(this=dividend.copy()), expression=exp.EQ(this=dividend.copy(), expression=double_zero())
            ),
            special_double("NaN"),
        )
        .when(exp.GT(this=dividend.copy(), expression=double_zero()), special_double("Infinity"))
        .when(exp.LT(this=dividend.copy(), expression=double_zero()), special_double("-Infinity"))
    )
    divided = exp.Case().when(exp.EQ(this=divisor, expression=double_zero()), by_zero).else_(exp.Paren(this=plain))
    node.replace(with_type(divided, "double"))


def _check_quotient(node: exp.Div) -> None:
    """NotEquivalent for a quotient of decimals, which has more digits in Spark, unless the result's type cuts them."""
    ancestor = node.parent
    while isinstance(ancestor, exp.Paren | exp.Alias):
        ancestor = ancestor.parent
    if not (isinstance(ancestor, exp.Select) and ancestor.parent is None):
        excerpt = node.sql("postgres")[:60]
        raise NotEquivalent(
            f"{excerpt} divides decimals, which gives more digits in Spark: cast one side to double precision"
        )


def _subtract(node: exp.Sub) -> None:
    left, right = (kind_of(side) for side in operands(node))
    if left == right == KIND.DATE:
        days = exp.Anonymous(this="datediff", expressions=[node.left.copy(), node.right.copy()])
        node.replace(with_type(exp.cast(days, "bigint"), "bigint"))
    elif left in {*TIMES, KIND.DATE} and right in {*TIMES, KIND.DATE}:
        raise NotEquivalent("the difference of two times has another type in Spark: subtract dates")
    else:
        _shift(node)


def _shift(node: exp.Add | exp.Sub) -> None:
    """A date plus or minus a number of days, or an interval of whole days."""
    for date, other in (operands(node), operands(node)[::-1]):
        if kind_of(date) != KIND.DATE:
            continue
        if kind_of(other) in INTEGERS:
            other.replace(exp.cast(other.copy(), "int"))
            return
        for interval in other.find_all(exp.Interval):
            words = f"{interval.args.get('unit') or ''} {interval.this.sql() if interval.this else ''}".upper()
            if any(word in words for word in ("HOUR", "MINUTE", "SECOND", "MILLI", "MICRO", "NANO", ":")):
                raise NotEquivalent(
                    "a date plus less than a day is a date in DataFusion and a time in Spark: cast it to timestamp"
                )
        return


def _compare(node: exp.Expr) -> None:
    compared = [
        side for name in ("this", "expression", "low", "high") if isinstance(side := node.args.get(name), exp.Expr)
    ]
    kinds = {kind_of(side) for side in (*compared, *node.args.get("expressions", ()))}
    if kinds & TEXTS and kinds & NUMBERS:
        raise NotEquivalent(f"{node.sql('postgres')[:60]} compares text with a number: cast one side")
    if KIND.INTERVAL in kinds:
        raise NotEquivalent("an interval of a day equals 24 hours only in Spark: compare times")
    if kinds & _WITHOUT_ZONE:
        for side in (*compared, *node.args.get("expressions", ())):
            if kind_of(side) in TEXTS:
                _check_time(side)


def _extract(node: exp.Extract) -> None:
    part = node.name.upper()
    if part not in _EXTRACT_PARTS:
        raise NotEquivalent(f"extract({part.lower()} …) is not known to mean the same in Spark")
    if part == "DOW":  # Sunday is 0 in DataFusion and 1 in Spark
        wrap(node, lambda inner: exp.Paren(this=exp.Sub(this=inner, expression=literal_one())), "int")
    elif part == "SECOND":  # an integer in DataFusion
        wrap(node, lambda inner: exp.cast(inner, "int"), "int")


def _truncate(node: exp.TimestampTrunc | exp.DateTrunc) -> None:
    unit = str(node.args["unit"].name).upper()
    if unit not in _TRUNC_UNITS:
        raise NotEquivalent(f"date_trunc('{unit.lower()}', …) is not known to mean the same in Spark")


def _logarithm(node: exp.Ln) -> None:
    value = exp.cast(node.this.copy(), "double")
    logarithm = (
        exp.Case()
        .when(exp.GT(this=value.copy(), expression=double_zero()), exp.Ln(this=value.copy()))
        .when(exp.EQ(this=value.copy(), expression=double_zero()), special_double("-Infinity"))
        .when(exp.LT(this=value.copy(), expression=double_zero()), special_double("NaN"))
    )
    node.replace(with_type(logarithm, "double"))


def _element(node: exp.Bracket) -> None:
    """An element of an array, NULL beyond its end as in DataFusion; Spark's own operator would raise an error."""
    if kind_of(node.this) != KIND.ARRAY or len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise NotEquivalent(f"{node.sql('postgres')[:60]} is not known to mean the same in Spark")
    index = integer_literal(node.expressions[0])  # from 0: the parser subtracted 1
    if index is None:
        raise NotEquivalent("the index of an array element must be an integer literal, from 1")
    number = exp.Literal.number(index + 1)
    kind = node.type
    element = exp.Anonymous(this="try_element_at", expressions=[node.this.copy(), exp.cast(number, "int")])
    node.replace(with_type(element, kind))


def _average(node: exp.Avg) -> None:
    """DataFusion truncates an average of decimals, Spark rounds it: adds four digits, which the result's type cuts."""
    kind = node.this.type
    if kind_of(node.this) not in DECIMALS or kind is None or len(kind.expressions) != 2:
        return
    precision, scale = (int(part.name) for part in kind.expressions)
    if precision <= 26:
        node.set("this", exp.cast(node.this.copy(), f"decimal({precision + 4}, {scale + 4})"))


def _in(node: exp.In) -> None:
    """Keeps a set of texts from Iceberg's planner, which fails on it where a partition's value is NULL."""
    _compare(node)
    column = node.this
    while isinstance(column, exp.Cast | exp.Paren):
        column = column.this
    if not (node.expressions and isinstance(column, exp.Column) and kind_of(node.this) in TEXTS):
        return
    if len(node.expressions) > _MAX_COMPARISONS:
        node.set("this", not_planned_by(node.this))
        return
    comparisons = [exp.EQ(this=node.this.copy(), expression=item.copy()) for item in node.expressions]
    node.replace(with_type(exp.Paren(this=exp.or_(*comparisons)), "boolean"))


_REWRITES: dict[Any, Callable[[Any], None]] = {
    exp.Div: _divide,
    exp.Sub: _subtract,
    exp.Add: _shift,
    exp.EQ | exp.NEQ | exp.GT | exp.GTE | exp.LT | exp.LTE | exp.Between: _compare,
    exp.In: _in,
    exp.Like | exp.StartsWith: like,
    exp.NullSafeEQ | exp.NullSafeNEQ: _compare,
    exp.Substring: substring,
    exp.Left | exp.Right: left_or_right,
    exp.Extract: _extract,
    exp.TimestampTrunc | exp.DateTrunc: _truncate,
    exp.Ln: _logarithm,
    exp.RegexpLike: regexp_like,
    exp.Bracket: _element,
    exp.DPipe | exp.Concat | exp.ConcatWs: concatenate,
    exp.Trim: trim,
    exp.Replace: replace,
    exp.Avg: _average,
}
