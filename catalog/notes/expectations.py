"""Expectations: what a table requires of its rows. `judge` splits rows into good ones, and rejects with their reasons.

Pure. Uniqueness is checked among the rows that are passed: one unit at a time, and a key never spans units.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Expectation:
    """`fault` returns the reason why a row, with the facts of its unit, does not meet the expectation, or None.

    `unique_key`: columns whose values together appear in one row only.
    """

    name: str
    fault: Callable[[Row, Row], str | None] | None = None
    unique_key: tuple[str, ...] = ()


def not_null(*columns: str) -> Expectation:
    def fault(row: Row, facts: Row) -> str | None:
        missing = [column for column in columns if row.get(column) is None]
        return f"{', '.join(missing)} must not be null" if missing else None

    return Expectation(f"not_null({', '.join(columns)})", fault)


def in_range(column: str, low: float, high: float) -> Expectation:
    """Null passes; use `not_null` as well to forbid it."""

    def fault(row: Row, facts: Row) -> str | None:
        value = row.get(column)
        if value is None or low <= value <= high:  # False for NaN
            return None
        return f"{column} is {value}, not between {low:g} and {high:g}"

    return Expectation(f"in_range({column}, {low:g}, {high:g})", fault)


def one_of(column: str, allowed: Collection[str]) -> Expectation:
    def fault(row: Row, facts: Row) -> str | None:
        value = row.get(column)
        return None if value is None or value in allowed else f"{column} is {value!r}, not one of {', '.join(allowed)}"

    return Expectation(f"one_of({column})", fault)


def unique(*columns: str) -> Expectation:
    return Expectation(f"unique({', '.join(columns)})", unique_key=columns)


def references(columns: Sequence[str], targets: Callable[[Row], Collection[Any]], what: str) -> Expectation:
    """Every value of these columns is among the `targets` of the unit's facts; null passes.

    Only the unit's own facts are consulted, because its rows depend on nothing else: an incremental update of a table
    rejects the same rows as a full rebuild.
    """

    def fault(row: Row, facts: Row) -> str | None:
        allowed = targets(facts)
        stray = [f"{name} {row[name]!r}" for name in columns if row.get(name) is not None and row[name] not in allowed]
        return f"{' and '.join(stray)} is not in {what}" if stray else None

    return Expectation(f"references({', '.join(columns)}, {what})", fault)


@dataclass(frozen=True)
class Reject:
    """A row that did not meet the expectations, as JSON, and all the reasons."""

    unit: str
    row_key: str
    reason: str
    row: str


def judge(
    rows: Iterable[Row], expectations: Sequence[Expectation], key: Sequence[str], unit: str, facts: Row | None = None
) -> tuple[list[dict[str, Any]], list[Reject]]:
    """The good rows of one unit in their order, and the rejects. Of rows with the same unique key the first is good."""
    good: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    identities: set[tuple[str, tuple[Any, ...]]] = set()
    unit_facts = facts or {}
    for row in rows:
        faults = (e.fault(row, unit_facts) for e in expectations if e.fault is not None)
        reasons = [fault for fault in faults if fault is not None]
        for expectation in expectations:
            if expectation.unique_key:
                identity = (expectation.name, tuple(row.get(column) for column in expectation.unique_key))
                if identity in identities:
                    reasons.append(f"{', '.join(expectation.unique_key)} is there twice")
                elif not reasons:
                    identities.add(identity)
        if reasons:
            rejects.append(reject(row, key, unit, "; ".join(reasons)))
        else:
            good.append(dict(row))
    return good, rejects


def reject(row: Row, key: Sequence[str], unit: str, reason: str) -> Reject:
    row_key = json.dumps([row.get(column) for column in key], ensure_ascii=False, default=str)
    text = json.dumps(dict(row), ensure_ascii=False, default=str, sort_keys=True)
    return Reject(str(row.get(unit)), row_key, reason, text[:8192])
