"""What an optimised plan asks of each table: columns, conditions that sit right on the scan, and how many rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from catalog.query.predicates import Either, Predicate, from_expression

_SCAN_LINE = re.compile(r"TableScan: (.+?) projection=\[(.*?)\]$", re.MULTILINE)


@dataclass(frozen=True)
class Scan:
    """All that a query needs of one relation, over every mention of it.

    `exact`: the predicate is all that is asked of the rows right where they are read. `fetch`: so many rows are
    enough, whichever they are.
    """

    columns: tuple[str, ...]
    predicate: Predicate | None = None
    exact: bool = True
    fetch: int | None = None


def scans_of(plan: Any, schemas: dict[str, tuple[str, ...]]) -> dict[str, Scan]:
    """Relation -> scan. `schemas`: each relation's name as the plan spells it, and its columns in order."""
    seen: dict[str, list[Scan]] = {name: [] for name in schemas}
    for name, scan in _walk(plan, None):
        if name in seen:
            seen[name].append(scan)
    hidden = _hidden(plan, seen)
    return {name: _merged(found, hidden[name], schemas[name]) for name, found in seen.items()}


def _walk(plan: Any, condition: Any) -> Iterator[tuple[str, Scan]]:
    kind, node = _variant(plan)
    if kind == "TableScan":
        yield _scan(node, condition)
        return
    passed = node.predicate() if kind == "Filter" else condition if kind == "SubqueryAlias" else None
    for child in plan.inputs():
        yield from _walk(child, passed)


def _variant(plan: Any) -> tuple[str, Any]:
    try:
        node = plan.to_variant()
    except Exception:  # some nodes have no Python form, and the binding has no one error for that
        return "", None
    return type(node).__name__, node


def _scan(node: Any, condition: Any) -> tuple[str, Scan]:
    parts = [part for part in node.fqn() if part]
    columns = tuple(name for _, name in node.projection())
    predicate, exact = (None, True) if condition is None else from_expression(condition)
    return ".".join(parts), Scan(columns, predicate, exact, node.fetch() if condition is None else None)


def _hidden(plan: Any, seen: dict[str, list[Scan]]) -> dict[str, list[tuple[str, ...]]]:
    """The columns of scans inside subqueries that are still expressions: the walk does not reach those."""
    lines = Counter(_SCAN_LINE.findall(plan.display_indent()))
    for name, found in seen.items():
        lines -= Counter((name, ", ".join(scan.columns)) for scan in found)
    hidden: dict[str, list[tuple[str, ...]]] = {name: [] for name in seen}
    for (name, columns), count in lines.items():
        spelled = name.replace('"', "")
        for _ in range(count if spelled in hidden else 0):
            hidden[spelled].append(tuple(columns.split(", ")) if columns else ())
    return hidden


def _merged(found: list[Scan], hidden: list[tuple[str, ...]], names: tuple[str, ...]) -> Scan:
    asked = {name for scan in found for name in scan.columns} | {name for columns in hidden for name in columns}
    columns = tuple(name for name in names if name in asked)
    if asked - set(names):
        columns = names  # a name with a comma in it, say: all columns are always right
    if hidden or not found:
        return Scan(columns, None, not hidden)
    if len(found) == 1:
        return Scan(columns, found[0].predicate, found[0].exact, found[0].fetch)
    predicates = [scan.predicate for scan in found if scan.predicate is not None]
    predicate = Either(tuple(predicates)) if len(predicates) == len(found) else None
    fetches = [scan.fetch for scan in found if scan.fetch is not None]
    return Scan(columns, predicate, False, max(fetches) if len(fetches) == len(found) else None)
