"""Answers count, min and max over one table from Iceberg's statistics alone.

Only where the answer is exact: every file matches the filter entirely or not at all, no matching file has deletes, and
no bound that is used may be truncated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import NestedField
from sqlglot import exp

from catalog.query.plan.predicates import Mask, Verdict
from catalog.query.scan.relations import Relation
from catalog.query.sql.search_operators import folded

_SELECT_ARGS = {"expressions", "from_", "where"}
_TABLE_ARGS = {"this", "db", "alias"}


def aggregates(tree: exp.Expr) -> list[tuple[str, str | None]] | None:
    """[("count", None), ("min", "price"), …] if the query selects only such aggregates of one table; else None.

    Does not check WHERE: the predicate comes from the engine's plan.
    """
    if not isinstance(tree, exp.Select) or not _has_only(tree, _SELECT_ARGS):
        return None
    table = _table_of(tree)
    if table is None:
        return None
    functions: list[tuple[str, str | None]] = []
    for item in tree.expressions:
        node = item.this if isinstance(item, exp.Alias) else item
        if isinstance(node, exp.Count) and (isinstance(node.this, exp.Star) or _is_number(node.this)):
            functions.append(("count", None))
        elif (
            isinstance(node, exp.Count | exp.Min | exp.Max)
            and isinstance(node.this, exp.Column)
            and not node.expressions
        ):
            column = _column(node.this, table)
            if column is None:
                return None
            functions.append((node.key, column))
        else:
            return None
    return functions or None


def _table_of(tree: exp.Select) -> str | None:
    """The name or alias that qualifies columns, if FROM is exactly one table without column aliases; else None."""
    source = tree.args["from_"].this if tree.args.get("from_") else None
    if not isinstance(source, exp.Table) or not _has_only(source, _TABLE_ARGS):
        return None
    if not isinstance(source.this, exp.Identifier):
        return None
    alias = source.args.get("alias")
    if alias is None:
        return folded(source.this)
    return folded(alias.this) if _has_only(alias, {"this"}) else None


def _column(node: exp.Column, table: str) -> str | None:
    """The name of a column of the table; None for a struct field, which is written the same way."""
    if not isinstance(node.this, exp.Identifier) or not _has_only(node, {"this", "table"}):
        return None
    qualifier = node.args.get("table")
    return folded(node.this) if qualifier is None or folded(qualifier) == table else None


def _has_only(node: exp.Expr, allowed: set[str]) -> bool:
    return all(name in allowed for name, value in node.args.items() if value)


def answer(
    aggregates: list[tuple[str, str | None]], relation: Relation, verdict: Verdict, schema: pa.Schema
) -> pa.RecordBatch | None:
    """One row of the given schema; None if the statistics do not give the exact result."""
    statistics = relation.statistics
    files = verdict.might_match
    if (files & ~verdict.must_match).any() or statistics.has_deletes[files].any():
        return None
    fields = {field.name: field for field in relation.schema.fields}
    row: list[Any] = []
    for (function, column), field in zip(aggregates, schema, strict=True):
        if column is None:
            value: Any = int(statistics.rows[files].sum())
        elif column not in fields:
            return None
        else:
            value = _column_aggregate(function, fields[column], relation, files)
        if value is _UNKNOWN:
            return None
        row.append(_array(value, field.type))
    return pa.RecordBatch.from_arrays(row, schema=schema)


_UNKNOWN = object()


def _column_aggregate(function: str, field: NestedField, relation: Relation, files: Mask) -> Any:
    bounds = relation.statistics.bounds(field)
    if bounds is None or (bounds.nulls[files] < 0).any():
        return _UNKNOWN
    if function == "count":
        return int((bounds.rows - bounds.nulls)[files].sum())
    holding = files & (bounds.nulls < bounds.rows)  # files with at least one value
    if not holding.any():
        return None
    nan_free = bounds.nans is None or bool((bounds.nans[holding] == 0).all())
    if not bounds.exact[holding].all() or not nan_free or not bounds.known[holding].all():
        return _UNKNOWN
    values = (bounds.lower if function == "min" else bounds.upper)[holding]
    if values.dtype == object:
        return (min if function == "min" else max)(values.tolist())
    return getattr(np, function)(values).item()


def _array(value: Any, type_: Any) -> Any:
    if value is None:
        return pa.nulls(1, type_)
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        integer = pa.int32() if type_.bit_width == 32 else pa.int64()
        return pa.array([value], integer).cast(type_)
    return pa.array([value], type_)


def _is_number(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string
