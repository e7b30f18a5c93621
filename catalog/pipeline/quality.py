"""What a table expects of its rows, and the judgement: rows that are good, and rejects with the reason.

Pure. Uniqueness is judged among the rows given: rows are given a unit at a time, and a key never spans units.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Expectation:
    """`fault` gives the reason why a row is not as expected, or None; it is given what the row's unit knows, too.

    `unique_key`: these columns name one row.
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
    """Null passes: `not_null` is another expectation."""

    def fault(row: Row, facts: Row) -> str | None:
        value = row.get(column)
        if value is None or low <= value <= high:  # false for NaN, too
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


def references(columns: Sequence[str], known: Callable[[Row], Collection[Any]], what: str) -> Expectation:
    """Every value of these columns is one of those that the unit's facts speak of (`known`); null passes.

    A unit's rows depend on its facts alone, so what they may refer to is judged by those: which is what keeps a mended
    table the same as one made anew.
    """

    def fault(row: Row, facts: Row) -> str | None:
        allowed = known(facts)
        stray = [f"{name} {row[name]!r}" for name in columns if row.get(name) is not None and row[name] not in allowed]
        return f"{' and '.join(stray)} is not in {what}" if stray else None

    return Expectation(f"references({', '.join(columns)}, {what})", fault)


@dataclass(frozen=True)
class Reject:
    """A row that was not taken, in JSON, and every reason why."""

    unit: str
    row_key: str
    reason: str
    row: str


def judge(
    rows: Iterable[Row], expectations: Sequence[Expectation], key: Sequence[str], unit: str, facts: Row | None = None
) -> tuple[list[dict[str, Any]], list[Reject]]:
    """Good rows of one unit in their order, and the rejects. Of rows with one unique key the first is kept."""
    good: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    seen: set[tuple[str, tuple[Any, ...]]] = set()
    given = facts or {}
    for row in rows:
        reasons = [reason for e in expectations if e.fault is not None and (reason := e.fault(row, given)) is not None]
        for expectation in expectations:
            if expectation.unique_key:
                identity = (expectation.name, tuple(row.get(column) for column in expectation.unique_key))
                if identity in seen:
                    reasons.append(f"{', '.join(expectation.unique_key)} is there twice")
                elif not reasons:
                    seen.add(identity)
        if reasons:
            rejects.append(reject(row, key, unit, "; ".join(reasons)))
        else:
            good.append(dict(row))
    return good, rejects


def reject(row: Row, key: Sequence[str], unit: str, reason: str) -> Reject:
    named = json.dumps([row.get(column) for column in key], ensure_ascii=False, default=str)
    kept = json.dumps(dict(row), ensure_ascii=False, default=str, sort_keys=True)
    return Reject(str(row.get(unit)), named, reason, kept[:8192])
