"""Rewrites expressions that mean different things in DuckDB and Spark.

Three passes over a typed tree: divisions, then what changes other types (rounding, sums), then what depends on them.
A function that is not listed here is rejected: an error is better than a wrong result.
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
from catalog.query.sql.dialect import DIALECT

_SUPPORTED_FUNCTIONS = (
    *(exp.And, exp.Or, exp.Xor, exp.Case, exp.Coalesce, exp.Nullif, exp.Exists, exp.Cast, exp.If),
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.GroupConcat),
    *(exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop),
    *(exp.Corr, exp.CovarSamp, exp.CovarPop, exp.Grouping),
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
_ROUNDING = exp.Ceil | exp.Floor | exp.Round


def check_functions(tree: exp.Expr) -> exp.Expr:
    """NotEquivalent for a function that is not listed. Comes before the rewrites, which use others."""
    for node in _leaves_first(tree):
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "date_part" and len(node.expressions) == 2:
            part, value = node.expressions
            if isinstance(part, exp.Literal) and part.is_string:
                node.replace(exp.Extract(this=exp.var(part.this.upper()), expression=value.copy()))
                continue
        if isinstance(node, exp.Func) and not isinstance(node, _SUPPORTED_FUNCTIONS):
            raise NotEquivalent(
                f"{function_name(node)} is not known to mean the same in Spark: leave it out, or narrow the query"
            )
    return tree


def rewrite_divisions(tree: exp.Expr) -> exp.Expr:
    """Makes every `/` a division of doubles, as in DuckDB. Comes first: the types around it depend on it."""
    for node in _leaves_first(tree):
        if isinstance(node, exp.Div):
            _divide(node)
    return tree


def rewrite_types(tree: exp.Expr) -> exp.Expr:
    """Gives functions DuckDB's types: `ceil` and `floor` give doubles, sums of whole numbers widen."""
    for node in _leaves_first(tree):
        if isinstance(node, _ROUNDING):
            if kind_of(node.this) not in {*INTEGERS, *FLOATS}:
                raise NotEquivalent(
                    f"{function_name(node)} of {type_name(node.this)} is not known to mean the same in Spark"
                )
            if not isinstance(node, exp.Round) or kind_of(node.this) in FLOATS:
                wrap(node, lambda inner: exp.cast(inner, "double"))
        elif isinstance(node, exp.Sum) and kind_of(node.this) in INTEGERS:
            node.set("this", exp.cast(node.this.copy(), "decimal(20, 0)"))
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


def _cast(node: exp.Cast) -> None:
    to = node.to
    if isinstance(node.this, exp.Literal) and node.this.is_string and to.this == KIND.INTERVAL:
        return
    if to.this not in _CAST_TARGETS:
        raise NotEquivalent(f"a cast to {to.sql(DIALECT)} is not known to mean the same in Spark")
    if to.this in INTEGERS and kind_of(node.this) in FLOATS:  # DuckDB rounds, to even numbers; Spark cuts
        node.set("this", exp.Anonymous(this="rint", expressions=[node.this.copy()]))
    elif to.this in INTEGERS and kind_of(node.this) in DECIMALS:
        node.set("this", exp.Round(this=node.this.copy()))
    elif to.this in TEXTS:
        check_text(node.this)
        node.set("to", exp.DataType.build("text"))
    elif to.this in _WITHOUT_ZONE:
        if kind_of(node.this) in TEXTS:
            _check_time(node.this)
        if to.this == KIND.TIMESTAMP:
            node.set("to", exp.DataType(this=KIND.TIMESTAMPNTZ))


def _check_time(node: exp.Expr) -> None:
    """NotEquivalent for text that may hold an offset: cast to a time, it is not certain to mean the same."""
    if not (isinstance(node, exp.Literal) and _PLAIN_TIME.fullmatch(node.this)):
        excerpt = _excerpt(node)
        raise NotEquivalent(
            f"an offset in {excerpt} would be ignored in Spark: write it in UTC, or cast to timestamptz"
        )


def _divide(node: exp.Div) -> None:
    """`/` gives a double, and an infinity or NaN for a zero divisor, where Spark raises an error."""
    kinds = [kind_of(side) for side in operands(node)]
    if KIND.UNKNOWN in kinds:
        raise NotEquivalent(f"the types in {_excerpt(node)} are not known: cast both sides to double")
    dividend, divisor = (exp.cast(side.copy(), "double") for side in operands(node))
    plain = exp.Paren(this=exp.Div(this=dividend.copy(), expression=divisor.copy(), typed=False, safe=False))
    if is_nonzero(node.right):
        node.replace(with_type(plain, "double"))
        return
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
    divided = exp.Case().when(exp.EQ(this=divisor, expression=double_zero()), by_zero).else_(plain)
    node.replace(with_type(divided, "double"))


def _divide_whole(node: exp.IntDiv) -> None:
    if not all(kind_of(side) in INTEGERS for side in operands(node)):
        raise NotEquivalent(f"{_excerpt(node)} is not a division of whole numbers: write floor(a / b)")


def _excerpt(node: exp.Expr) -> str:
    return node.sql(DIALECT)[:60]


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
                raise NotEquivalent("a date plus less than a day has another type in Spark: cast it to timestamp")
        return


def _compare(node: exp.Expr) -> None:
    compared = [
        side for name in ("this", "expression", "low", "high") if isinstance(side := node.args.get(name), exp.Expr)
    ]
    kinds = {kind_of(side) for side in (*compared, *node.args.get("expressions", ()))}
    if kinds & TEXTS and kinds & NUMBERS:
        raise NotEquivalent(f"{_excerpt(node)} compares text with a number: cast one side")
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
    if part == "DOW":  # Sunday is 0 in DuckDB and 1 in Spark
        wrap(node, lambda inner: exp.Paren(this=exp.Sub(this=inner, expression=literal_one())), "int")
    elif part == "SECOND":  # an integer in DuckDB
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
    """An element of an array, NULL beyond its end as in DuckDB; Spark's own operator would raise an error."""
    if kind_of(node.this) != KIND.ARRAY or len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
        raise NotEquivalent(f"{_excerpt(node)} is not known to mean the same in Spark")
    index = integer_literal(node.expressions[0])  # from 0: the parser subtracted 1
    if index is None:
        raise NotEquivalent("the index of an array element must be an integer literal, from 1")
    number = exp.Literal.number(index + 1)
    kind = node.type
    element = exp.Anonymous(this="try_element_at", expressions=[node.this.copy(), exp.cast(number, "int")])
    node.replace(with_type(element, kind))


def _average(node: exp.Avg) -> None:
    """An average of decimals is a double in DuckDB."""
    if kind_of(node.this) in DECIMALS:
        node.set("this", exp.cast(node.this.copy(), "double"))


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
    exp.IntDiv: _divide_whole,
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
