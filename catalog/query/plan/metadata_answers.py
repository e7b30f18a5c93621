"""Answers count, min and max over one table from Iceberg's statistics alone.

Only where the answer is exact: every file matches the filter entirely or not at all, no matching file has deletes, and
no bound that is used may be truncated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.types import NestedField

from catalog.query.plan.predicates import Mask, Verdict
from catalog.query.plan.syntax import TABLES_SCHEMA, Node
from catalog.query.scan.relations import Relation


def aggregates(tree: Node, columns: Mapping[str, str]) -> list[tuple[str, str | None]] | None:
    """[("count", None), ("min", "price"), …] if the query selects only such aggregates of one table; else None.

    `columns`: the table's columns by their names in lower case. Does not check WHERE.
    """
    if tree.get("type") != "SELECT_NODE" or tree["modifiers"] or tree.get("aggregate_handling") != "STANDARD_HANDLING":
        return None
    if any(tree.get(name) for name in ("group_expressions", "group_sets", "having", "qualify", "sample")):
        return None
    source = tree["from_table"]
    if source["type"] != "BASE_TABLE" or source["schema_name"] != TABLES_SCHEMA:
        return None
    if source.get("sample") or source.get("column_name_alias"):
        return None
    table = str(source.get("alias") or source["table_name"]).lower()
    functions = [_aggregate(item, table, columns) for item in tree["select_list"]]
    known = [function for function in functions if function is not None]
    return known if len(known) == len(functions) else None


def _aggregate(node: Node, table: str, columns: Mapping[str, str]) -> tuple[str, str | None] | None:
    if node.get("class") != "FUNCTION" or node.get("filter") or node.get("distinct") or node.get("schema"):
        return None
    name, arguments = str(node["function_name"]).lower(), node["arguments"]
    if node["order_bys"].get("orders"):
        return None
    if name == "count_star" and not arguments:
        return "count", None
    if name not in ("count", "min", "max") or len(arguments) != 1:
        return None
    argument = arguments[0]["expression"]
    if name == "count" and argument.get("class") == "CONSTANT":
        return ("count", None) if argument["literal"]["kind"] in ("INTEGER", "NUMERIC") else None
    if argument.get("class") != "COLUMN_REF":
        return None
    parts = [str(part).lower() for part in argument["column_names"]]
    if parts[:-1] not in ([], [table]) or parts[-1] not in columns or parts == [table]:
        return None
    return name, columns[parts[-1]]


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
