"""What an optimised DataFusion plan needs of each table: columns, the filter directly above the scan, a row limit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from catalog.query.plan.predicates import Or, Predicate, from_expression

_SCAN_LINE = re.compile(r"^ *(TableScan: .*)$", re.MULTILINE)
_COLUMNS = re.compile(r" projection=\[(.*)\](?:, fetch=\d+)?")


@dataclass(frozen=True)
class ScanRequirements:
    """Everything that a query needs of one relation, over all references to it.

    `exact`: the predicate is the whole filter above the scan. `fetch`: any so many rows are enough.
    """

    columns: tuple[str, ...]
    predicate: Predicate | None = None
    exact: bool = True
    fetch: int | None = None


def scans_of(plan: Any, schemas: dict[str, tuple[str, ...]]) -> dict[str, ScanRequirements]:
    """Requirements by relation. `schemas`: the columns in order by relation, named as in the plan."""
    by_relation: dict[str, list[ScanRequirements]] = {name: [] for name in schemas}
    lines = Counter(_SCAN_LINE.findall(plan.display_indent()))
    for name, scan, line in _walk(plan, None, schemas):
        lines[line] -= 1
        if name in by_relation:
            by_relation[name].append(scan)
    hidden = list(lines.elements())  # scans within subquery expressions, which the walk does not reach
    return {
        name: _merged(scans, _hidden_columns(hidden, name, schemas[name]), schemas[name])
        for name, scans in by_relation.items()
    }


def is_aggregate_of_scan(plan: Any) -> bool:
    """Whether the plan only aggregates the rows of one scan, without GROUP BY, under at most one filter.

    False for an empty relation, a limit, a join, and a computed or renamed column.
    """
    kind, node = _variant(plan)
    if kind == "Projection" and all(
        _unaliased(projection).variant_name() == "Column" for projection in node.projections()
    ):
        (plan,) = plan.inputs()
        kind, node = _variant(plan)
    if kind != "Aggregate" or node.group_by_exprs():
        return False
    return all(map(_is_of_columns, node.aggregate_exprs())) and _is_scan(plan.inputs()[0])


def _is_of_columns(expression: Any) -> bool:
    if expression.variant_name() != "AggregateFunction":
        return False
    return all(argument.variant_name() in ("Column", "Literal") for argument in expression.to_variant().args())


def _is_scan(plan: Any, *, filtered: bool = False) -> bool:
    """A filter must be directly above the scan: only then is it the scan's predicate (see `_walk`)."""
    kind, node = _variant(plan)
    if kind == "TableScan":
        return node.fetch() is None and not node.filters()
    if kind == "Projection":
        passes = not filtered and all(projection.variant_name() == "Column" for projection in node.projections())
    else:
        passes = kind == "SubqueryAlias" or (kind == "Filter" and not filtered)
    return passes and _is_scan(plan.inputs()[0], filtered=filtered or kind == "Filter")


def _unaliased(expression: Any) -> Any:
    while expression.variant_name() == "Alias":
        expression = expression.to_variant().expr()
    return expression


def _walk(
    plan: Any, condition: Any, schemas: dict[str, tuple[str, ...]]
) -> Iterator[tuple[str, ScanRequirements, str]]:
    """Each scan: its relation, its requirements, and its line in the plan's text."""
    kind, node = _variant(plan)
    if kind == "TableScan":
        yield *_scan(node, condition, schemas), plan.display()
        return
    passed = node.predicate() if kind == "Filter" else condition if kind == "SubqueryAlias" else None
    for child in plan.inputs():
        yield from _walk(child, passed, schemas)


def _variant(plan: Any) -> tuple[str, Any]:
    try:
        node = plan.to_variant()
    except Exception:  # some nodes have no Python form; the binding raises different errors for them
        return "", None
    return type(node).__name__, node


def _scan(node: Any, condition: Any, schemas: dict[str, tuple[str, ...]]) -> tuple[str, ScanRequirements]:
    name = ".".join(part for part in node.fqn() if part)
    columns = tuple(column for _, column in node.projection())
    if len(columns) != len(node.schema().field_names()):  # no projection: all columns
        columns = schemas.get(name, ())
    predicate, exact = (None, True) if condition is None else from_expression(condition)
    return name, ScanRequirements(columns, predicate, exact, node.fetch() if condition is None else None)


def _hidden_columns(lines: list[str], name: str, all_columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The columns of each line that scans the relation; all columns where the text is ambiguous."""
    column_lists = []
    for line in lines:
        scanned = line.removeprefix("TableScan: ")
        if scanned != name and not scanned.startswith(f"{name} "):
            continue
        projection = _COLUMNS.fullmatch(scanned.removeprefix(name))
        if projection is None or any("," in column or "]" in column for column in all_columns):
            column_lists.append(all_columns)
        else:
            column_lists.append(tuple(projection[1].split(", ")) if projection[1] else ())
    return column_lists


def _merged(
    scans: list[ScanRequirements], hidden: list[tuple[str, ...]], all_columns: tuple[str, ...]
) -> ScanRequirements:
    used = {name for scan in scans for name in scan.columns} | {name for columns in hidden for name in columns}
    columns = tuple(name for name in all_columns if name in used)
    if used - set(all_columns):
        columns = all_columns  # the plan names a column the table does not have: reading all columns is always right
    if hidden or not scans:
        return ScanRequirements(columns, None, exact=False)
    if len(scans) == 1:
        return ScanRequirements(columns, scans[0].predicate, scans[0].exact, scans[0].fetch)
    predicates = [scan.predicate for scan in scans if scan.predicate is not None]
    predicate = Or(tuple(predicates)) if len(predicates) == len(scans) else None
    fetches = [scan.fetch for scan in scans if scan.fetch is not None]
    return ScanRequirements(columns, predicate, False, max(fetches) if len(fetches) == len(scans) else None)
