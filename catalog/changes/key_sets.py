"""The rows that a complete answer is about: every key of some values, or of ranges of whole numbers or days.

A state map is ordered by digests, so nothing but a list of keys can be proven complete. A range of whole numbers or of
days is such a list; a range of texts or decimals is not. Needs the standard library alone.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from catalog.core.errors import Invalid

MAX_KEYS = 1000
"""How many keys one proof answers for: about 0.5 MB among a million rows, and the rows."""
RANGED_TYPES = ("int", "long", "date")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeySet:
    """Every combination of the columns' values: `values` as lists, `ranges` from the first to the last, both included.

    >>> KeySet({"region": ["DE"]}, {"id": (1, 2)}).keys()
    [{'region': 'DE', 'id': 1}, {'region': 'DE', 'id': 2}]
    """

    values: Mapping[str, Sequence[Any]]
    ranges: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def ranged(self) -> frozenset[str]:
        return frozenset(self.ranges)

    def keys(self) -> list[dict[str, Any]]:
        """Invalid if there is none, a range that is no list of values, or more than MAX_KEYS."""
        if both := sorted(set(self.values) & set(self.ranges)):
            raise Invalid(f"column {both[0]} has values and a range: give one of them")
        spans = {column: _span(column, *ends) for column, ends in self.ranges.items()}
        sizes = [len(values) for values in self.values.values()] + [high - low + 1 for low, high, _ in spans.values()]
        if not sizes or min(sizes) < 1:
            raise Invalid("say which rows the answer is about: a column has no value")
        if math.prod(sizes) > MAX_KEYS:
            raise Invalid(f"an answer is proven for at most {MAX_KEYS} keys, not {math.prod(sizes)}: ask in parts")
        columns: dict[str, Sequence[Any]] = dict(self.values)
        for column, (low, high, as_dates) in spans.items():
            columns[column] = [date.fromordinal(at) if as_dates else at for at in range(low, high + 1)]
        return [dict(zip(columns, key, strict=True)) for key in itertools.product(*columns.values())]


def _span(column: str, low: Any, high: Any) -> tuple[int, int, bool]:
    """The range as whole numbers, and whether they are days."""
    ends = [_whole(column, end) for end in (low, high)]
    (first, of_days), (last, also_of_days) = ends
    if of_days != also_of_days:
        raise Invalid(f"the range of {column} is from a number to a day: write 1..50 or 2026-03-01..2026-03-31")
    return first, last, of_days


def _whole(column: str, end: Any) -> tuple[int, bool]:
    if isinstance(end, date) and not isinstance(end, datetime):
        return end.toordinal(), True
    if isinstance(end, int) and not isinstance(end, bool):
        return end, False
    if isinstance(end, str) and _INTEGER.fullmatch(end):
        return int(end), False
    if isinstance(end, str) and _DATE.fullmatch(end):
        try:
            return date.fromisoformat(end).toordinal(), True
        except ValueError as error:
            raise Invalid(f"{end!r} is no day: {error}") from None
    raise Invalid(
        f"a range of {column} from or to {end!r:.40} cannot be complete: only ranges of whole numbers and of days are "
        "lists of keys. Give the values one by one"
    )
