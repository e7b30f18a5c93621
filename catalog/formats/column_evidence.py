"""What the values of one column of text have in common: collected block by block, then decided on.

Every test is over all rows. The first value that fails one is kept, to say why the column is text.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.formats.number_evidence import NUMBER, NumberEvidence
from catalog.formats.number_marks import NumberMarks
from catalog.formats.text_times import FORMS, ISO_8601, DateOrder, find_times

_TIME_TYPES: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "time": pa.timestamp("us"),
    "time with a zone": pa.timestamp("us", "UTC"),
}
_BOOLEAN = "(?i)^(true|false)$"
_LOOKS = {
    r"^[+-]?[0-9]+([.][0-9]+)?$": "numbers with leading zeros or a plus sign: text keeps them",
    r"^[+-]?[0-9]{1,3}([., '][0-9]{3})*([.,][0-9]+)?$": (
        "numbers with other marks: say which, with `--csv decimal=,` or `--csv thousands=.`"
    ),
    r"^[0-9]{1,2}[/.-][0-9]{1,2}[/.-][0-9]{2}$": "dates without a century: write the year with four digits",
    r"^[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?$": (
        "times of day or durations: text, since Spark reads no Iceberg `time`; a rule can declare that type"
    ),
    r"^[$€£¥] ?[0-9.,]+$|^[0-9.,]+ ?([$€£¥%]|[A-Z]{3})$": "numbers with a unit: text keeps it",
}
"""Patterns of a whole column that stays text, and what a person would want to know."""
_NULLS = frozenset({"na", "n/a", "#n/a", "null", "none", "nil", "nan", "-", "--", "?", ".", "missing", "(null)", r"\n"})
_SHOWN = 40
_YEAR = "[0-9]{4}"


@dataclass
class Tally:
    """How many values pass a test, and the first that does not."""

    matched: int = 0
    other: str | None = None
    row: int | None = None

    def count(self, mask: Any, values: Any, rows: Any) -> None:
        self.matched += int(np.count_nonzero(mask))
        if self.other is None and not mask.all():
            at = int(np.argmin(mask))
            self.other = values[at].as_py()[: _SHOWN + 1]  # a value may have megabytes, and there are many columns
            self.row = None if rows is None else int(rows[at])

    def add(self, later: Tally) -> None:
        self.matched += later.matched
        if self.other is None:
            self.other, self.row = later.other, later.row


@dataclass
class ColumnEvidence:
    """`texts`: the values are texts by themselves, as in JSON: they are no numbers and no truth values."""

    name: str
    texts: bool
    count: int = 0
    kinds: dict[str, Tally] = field(default_factory=dict)
    looks: dict[str, Tally] = field(default_factory=dict)
    numbers: NumberEvidence = field(default_factory=NumberEvidence)
    forms: set[str] = field(default_factory=set)
    dmy: Tally = field(default_factory=Tally)
    mdy: Tally = field(default_factory=Tally)
    local: int = 0
    ruled: bool = False
    """A rule says the order of day and month, by which every row was tested."""

    def observe(self, column: Any, marks: NumberMarks, order: DateOrder | None, first: int | None) -> None:
        """`first`: the position of the column's first row."""
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        values = column.drop_null()
        if not len(values):
            return
        self.count += len(values)
        rows = None if first is None else np.flatnonzero(valid) + first
        if not self.texts:
            self._tally("truth value", _mask(values, _BOOLEAN), values, rows)
            plain = marks.plain(values)
            is_number = _mask(plain, NUMBER)
            self._tally("number", is_number, values, rows)
            if is_number.any():
                self.numbers.observe(plain.filter(pa.array(is_number)))
            for pattern in _LOOKS:
                tally = self.looks.setdefault(pattern, Tally())
                if tally.other is None:
                    tally.count(_mask(values, pattern), values, rows)
        self.ruled = order is not None
        self._observe_times(values, order, rows)

    def _observe_times(self, values: Any, order: DateOrder | None, rows: Any) -> None:
        masks = {kind: np.zeros(len(values), np.bool_) for kind in _TIME_TYPES}
        dmy, mdy = np.zeros(len(values), np.bool_), np.zeros(len(values), np.bool_)
        for form in self._forms(values):
            times = find_times(values, form)
            if times is None:
                continue
            valid = {"dmy": times.dmy, "mdy": times.mdy}.get(order or "", times.dmy | times.mdy)
            if self.texts:  # Arrow reads them as they are
                valid = valid & _mask(values, ISO_8601)
            if not valid.any():
                continue
            self.forms.add(form)
            self.local += int(np.count_nonzero(valid)) if times.is_local else 0
            dmy |= valid & times.dmy
            mdy |= valid & times.mdy
            masks["date"] |= valid & ~times.with_time
            masks["time"] |= valid & times.with_time & ~times.with_zone
            masks["time with a zone"] |= valid & times.with_zone
        for kind, mask in masks.items():
            self._tally(kind, mask, values, rows)
        self.dmy.count(dmy, values, rows)
        self.mdy.count(mdy, values, rows)

    def _forms(self, values: Any) -> Iterable[str]:
        if not _mask(values, _YEAR).any():
            return ()
        return list(FORMS)[:1] if self.texts else FORMS

    def _tally(self, kind: str, mask: Any, values: Any, rows: Any) -> None:
        self.kinds.setdefault(kind, Tally()).count(mask, values, rows)

    def add(self, later: ColumnEvidence) -> ColumnEvidence:
        both = copy.deepcopy(self)
        both.texts = self.texts or later.texts
        both.count += later.count
        both.local += later.local
        both.ruled = later.ruled if not self.count else self.ruled and (later.ruled or not later.count)
        both.forms |= later.forms
        both.numbers.add(later.numbers)
        both.dmy.add(later.dmy)
        both.mdy.add(later.mdy)
        for mine, others in ((both.kinds, later.kinds), (both.looks, later.looks)):
            for name, tally in others.items():
                mine.setdefault(name, Tally()).add(tally)
        return both

    def shown_order(self) -> DateOrder | None:
        """The order of day and month, if every row has it and one row excludes the other."""
        if not self.local or self._time_kind() is None:
            return None
        if self.dmy.matched == self.count > self.mdy.matched:
            return "dmy"
        return "mdy" if self.mdy.matched == self.count > self.dmy.matched else None

    def is_local_in(self, order: DateOrder | None) -> bool:
        return bool(self.local) and self._time_type(order) is not None

    def decide(self, order: DateOrder | None) -> tuple[pa.DataType, str | None]:
        """The type, and the doubt. `order`: that of the whole file's days and months, as far as it is known."""
        if not self.count:
            return pa.null(), "no row has a value: it is text until one has"
        if self._is_all("truth value"):
            return pa.bool_(), None
        if self._is_all("number") and not self.texts:
            return self.numbers.decide()
        type_ = self._time_type(order)
        if type_ is not None:
            return type_, None
        return pa.string(), self._doubt(order)

    def _is_all(self, kind: str) -> bool:
        return kind in self.kinds and self.kinds[kind].matched == self.count

    def _time_kind(self) -> str | None:
        return next((kind for kind in _TIME_TYPES if self._is_all(kind)), None)

    def _time_type(self, order: DateOrder | None) -> pa.DataType | None:
        kind = self._time_kind()
        if kind is None or len(self.forms) > 1 or (self.local and not self._has_order(order)):
            return None
        return _TIME_TYPES[kind]

    def _has_order(self, order: DateOrder | None) -> bool:
        """Whether the column itself shows that order, or a rule says it: then every row was tested by it."""
        if order is None:
            return False
        matched = self.dmy.matched if order == "dmy" else self.mdy.matched
        return matched == self.count and (self.ruled or self.shown_order() == order)

    def _doubt(self, order: DateOrder | None) -> str | None:
        if self.texts and not self.forms:
            return None
        if self._time_kind() is not None:
            return self._time_doubt(order)
        for pattern, said in _LOOKS.items():
            if pattern in self.looks and self.looks[pattern].matched == self.count:
                return said
        kind, tally = max(self.kinds.items(), key=lambda item: item[1].matched)
        if 2 * tally.matched < self.count or tally.other is None:
            return None
        other = tally.other if len(tally.other) <= _SHOWN else f"{tally.other[:_SHOWN]}…"
        where = "" if tally.row is None else f" in row {tally.row}"
        said = f"{tally.matched} of {self.count} values are a {kind}, and {other!r}{where} is not"
        return f"{said}: set `--csv nulls={other}`" if other.lower() in _NULLS else said

    def _time_doubt(self, order: DateOrder | None) -> str:
        if len(self.forms) > 1:
            return f"dates are written in {len(self.forms)} ways: {', '.join(sorted(self.forms))}"
        if self.dmy.matched < self.count and self.mdy.matched < self.count:
            return "in some rows the day can only be first, in others only second"
        if self.shown_order() not in (None, order):
            return "its dates have another order of day and month than those of another column"
        return "the day may be first or second: say which, with `--csv dates=dmy` or `--csv dates=mdy`"


def _mask(values: Any, pattern: str) -> Any:
    return pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False)
