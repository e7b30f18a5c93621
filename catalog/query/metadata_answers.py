"""Counts, minima and maxima of a whole table, or of whole files of it, from Iceberg's statistics alone.

Only what is exact: no file that must be opened to know, none with deletes pending, no bound that may be cut short.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import NestedField
from sqlglot import exp

from catalog.query.predicates import Mask, Verdict
from catalog.query.relations import Relation

_ALLOWED = {"expressions", "from", "from_", "where", "kind"}


def aggregates(tree: exp.Expr) -> list[tuple[str, str | None]] | None:
    """[("count", None), ("min", "price"), …] if the query is nothing but such over one table; else None."""
    if not isinstance(tree, exp.Select) or {name for name, value in tree.args.items() if value} - _ALLOWED:
        return None
    found: list[tuple[str, str | None]] = []
    for item in tree.expressions:
        node = item.this if isinstance(item, exp.Alias) else item
        if isinstance(node, exp.Count) and (isinstance(node.this, exp.Star) or _is_number(node.this)):
            found.append(("count", None))
        elif (
            isinstance(node, exp.Count | exp.Min | exp.Max)
            and isinstance(node.this, exp.Column)
            and not node.expressions
        ):
            name = node.this.this
            if not isinstance(name, exp.Identifier):
                return None
            found.append((node.key, name.name if name.quoted else name.name.lower()))
        else:
            return None
    return found or None


def answer(
    wanted: list[tuple[str, str | None]], relation: Relation, verdict: Verdict, schema: pa.Schema
) -> pa.RecordBatch | None:
    """One row of the given schema, or None if the statistics do not hold it."""
    inventory = relation.inventory
    if (verdict.may & ~verdict.every).any() or inventory.touched[verdict.may].any():
        return None
    fields = {field.name: field for field in relation.schema.fields}
    row: list[Any] = []
    for (kind, column), target in zip(wanted, schema, strict=True):
        if column is None:
            value: Any = int(inventory.rows[verdict.may].sum())
        elif column not in fields:
            return None
        else:
            value = _of_column(kind, fields[column], relation, verdict.may)
        if value is _UNKNOWN:
            return None
        row.append(_array(value, target.type))
    return pa.RecordBatch.from_arrays(row, schema=schema)


_UNKNOWN = object()


def _of_column(kind: str, field: NestedField, relation: Relation, chosen: Mask) -> Any:
    bounds = relation.inventory.bounds(field)
    if bounds is None or (bounds.nulls[chosen] < 0).any():
        return _UNKNOWN
    if kind == "count":
        return int((bounds.rows - bounds.nulls)[chosen].sum())
    holding = chosen & (bounds.nulls < bounds.rows)
    if not holding.any():
        return None
    nan_free = bounds.nans is None or bool((bounds.nans[holding] == 0).all())
    if not bounds.exact[holding].all() or not nan_free or not bounds.known[holding].all():
        return _UNKNOWN
    side = bounds.lower if kind == "min" else bounds.upper
    found = side[holding]
    return (min if kind == "min" else max)(found.tolist()) if found.dtype == object else getattr(np, kind)(found).item()


def _array(value: Any, kind: Any) -> Any:
    if value is None:
        return pa.nulls(1, kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array([value], whole).cast(kind)
    return pa.array([value], kind)


def _is_number(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string
