"""EXPLAIN and EXPLAIN ANALYZE as lines for people, without what the caller may not know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from catalog.query.plan.routing import Explanation, size

if TYPE_CHECKING:
    from catalog.query.plan.planning import Plan
    from catalog.query.scan.parquet_objects import Traffic

_HIDDEN = frozenset({"RESULT_COLLECTOR", "EXPLAIN_ANALYZE"})
_SHOWN = ("Expression", "Conditions", "Groups", "Aggregates", "Filters", "Join Type", "Order By", "Top")


def redacted(explanation: Explanation, plan: Plan) -> Explanation:
    """The explanation without the sizes of tables with masks or a row filter, and all that is computed from them.

    By which files a condition leaves out, a caller could learn of rows that are hidden from it.
    """
    guarded = {view.name for view in plan.views}
    if not guarded:
        return explanation
    labels = {planned.label for planned in plan.relations if planned.name in guarded}
    tables = tuple(
        replace(table, files=table.of_files, rows=0, bytes=0, of_bytes=0, deletes=False)
        if table.table in labels
        else table
        for table in explanation.tables
    )
    reason = "the sizes are not shown: you see a table of the query through a filter or masks"
    nothing = dict.fromkeys(explanation.seconds, 0.0)
    return replace(
        explanation, reason=reason, tables=tables, bytes=0, memory_bytes=0, requests=0, seconds=nothing,
        dollars=nothing, seen=(),
    )  # fmt: skip


def operator_lines(profile: str) -> list[str]:
    """DuckDB's profile, one line an operator, indented below the one that takes its rows."""
    record = json.loads(profile)
    roots = record.get("operator") or record.get("children") or []
    lines = ["", f"{'operator':<44}{'rows':>12}{'estimate':>12}{'seconds':>10}"]
    for root in roots:
        lines += _operators(root, 0)
    return lines


def traffic_lines(traffic: Traffic) -> list[str]:
    return ["", f"read     {size(traffic.bytes)} in {traffic.requests} requests"]


def _operators(node: Mapping[str, Any], depth: int) -> Iterator[str]:
    kind = str(node.get("type") or node.get("operator_type") or "")
    shown = kind not in _HIDDEN
    if shown:
        info = node.get("extra_info") or {}
        rows = int(node.get("intermediate_rows") or node.get("operator_cardinality") or 0)
        estimate = str(info.get("Estimated Cardinality", ""))
        seconds = float(node.get("timing") or node.get("operator_timing") or 0.0)
        label = "  " * depth + kind.strip().lower().replace("_", " ")
        yield f"{label:<44}{rows:>12}{estimate:>12}{seconds:>10.4f}"
        for name in _SHOWN:
            if info.get(name):
                yield "  " * (depth + 1) + f"{name.lower()}: {_flat(info[name])}"
    for child in node.get("children") or ():
        yield from _operators(child, depth + shown)


def _flat(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return " ".join(text.split())[:200]
