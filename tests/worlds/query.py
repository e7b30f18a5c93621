"""Answers of two engines compared: the lake's and DuckDB's or Spark's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from catalog.query.run.results import Answer


def rows_of(answer: Answer | pa.Table | Any) -> list[tuple[Any, ...]]:
    """An answer as tuples that two engines agree on: numbers as numbers, whatever their type."""
    table = answer.table() if isinstance(answer, Answer) else answer
    return [tuple(map(_plain, row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Decimal):
        return float(value)
    return value


def assert_same(
    ours: Iterable[tuple[Any, ...]], theirs: Iterable[tuple[Any, ...]], *, ordered: bool, note: str
) -> None:
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs), f"{note}: {len(ours)} rows, expected {len(theirs)}\n{ours[:5]}\n{theirs[:5]}"
    if not ordered:
        ours, theirs = sorted(ours, key=_order), sorted(theirs, key=_order)
    for mine, other in zip(ours, theirs, strict=True):
        assert len(mine) == len(other), note
        assert all(map(_alike, mine, other)), f"{note}\n  ours   {mine}\n  theirs {other}"


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, int | float) and isinstance(two, int | float) and not isinstance(one, bool):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return math.isclose(one, two, rel_tol=1e-6, abs_tol=1e-6)
    return bool(one == two)


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """NULL first, NaN last, numbers rounded so that near ones fall together."""
    out: list[Any] = []
    for value in row:
        if value is None:
            out.append((0, ""))
        elif isinstance(value, bool):
            out.append((1, str(value)))
        elif isinstance(value, int | float):
            out.append((3, "") if math.isnan(value) else (2, round(float(value), 3)))
        else:
            out.append((4, str(value)))
    return tuple(out)
