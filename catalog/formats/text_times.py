"""Dates and times as text: which way they are written, and the same in ISO 8601, which Arrow reads.

A form is one way to write a date. `13/04/2026` is a day first or a month first: the order is the caller's to know, and
without one such a text is not converted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DateOrder = Literal["dmy", "mdy"]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
_LOCAL = r"(?P<a>[0-9]{{1,2}}){0}(?P<b>[0-9]{{1,2}}){0}(?P<y>[0-9]{{4}})"
_YEAR_FIRST = r"(?P<y>[0-9]{{4}}){0}(?P<m>[0-9]{{1,2}}){0}(?P<d>[0-9]{{1,2}})"
FORMS = {
    "year-month-day": r"(?P<y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})",
    "year/month/day": _YEAR_FIRST.format("/"),
    "year.month.day": _YEAR_FIRST.format(r"\."),
    "13/04/2026": _LOCAL.format("/"),
    "13.04.2026": _LOCAL.format(r"\."),
    "13-04-2026": _LOCAL.format("-"),
    "13 Apr 2026": r"(?P<d>[0-9]{1,2})[ -](?P<m>[A-Za-z]{3,9})[ -](?P<y>[0-9]{4})",
    "Apr 13, 2026": r"(?P<m>[A-Za-z]{3,9}) (?P<d>[0-9]{1,2}),? (?P<y>[0-9]{4})",
}
"""Name -> pattern. In the local ones the order of day and month does not show."""
_LOCAL_FORMS = frozenset(name for name, pattern in FORMS.items() if "<a>" in pattern)
_TIME = (
    r"(?:(?:T|, | )(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.](?P<fraction>[0-9]{1,6}))?)?"
    r"(?: ?(?P<half>[AaPp][Mm]))?(?P<zone>Z| ?UTC|[+-](?:0[0-9]|1[0-4])(?::?[0-5][0-9])?)?)?"
)
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH_NAMES = pa.array([*_MONTHS, *(name[:3] for name in _MONTHS), "sept"])
_MONTH_NUMBERS = np.array([*range(1, 13), *range(1, 13), 9, 0])
_NONE = pa.scalar("")
_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
ISO_8601 = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
"""What Arrow reads as it is."""


@dataclass(frozen=True)
class Times:
    """The texts of one form. Masks over the column: `dmy` and `mdy` where the text is a date in that order (equal if
    the form shows the order), `with_time` where it has a time of day, `with_zone` where it also has a zone."""

    form: str
    dmy: Mask
    mdy: Mask
    with_time: Mask
    with_zone: Mask
    _parts: dict[str, Any]

    @property
    def is_local(self) -> bool:
        return self.form in _LOCAL_FORMS

    def iso(self, order: DateOrder | None) -> Any:
        """The texts in ISO 8601; null where the text is no date of this form in that order."""
        parts = self._parts
        month_first = self.is_local and order == "mdy"
        day, month = (parts["m"], parts["d"]) if month_first else (parts["d"], parts["m"])
        text = [_digits(parts["y"], 4), "-", _digits(month, 2), "-", _digits(day, 2)]
        clock = ["T", _digits(parts["hour"], 2), ":", _digits(parts["minute"], 2), ":", _digits(parts["second"], 2)]
        fraction = parts["fraction"]
        point = pc.if_else(pc.equal(fraction, _NONE), pa.scalar(""), pa.scalar("."))
        whole = pc.binary_join_element_wise(*text, *clock, point, fraction, parts["zone"], "")
        dates = pc.binary_join_element_wise(*text, "")
        valid = self.mdy if month_first else self.dmy
        if self.is_local and order is None:
            valid = np.zeros_like(valid)
        joined = pc.if_else(pa.array(self.with_time), whole, dates)
        return pc.if_else(pa.array(valid), joined, pa.scalar(None, pa.string()))


def find_times(column: Any, form: str) -> Times | None:
    """What of the column is written in the form; None if nothing is."""
    found = pc.extract_regex(column, pattern=f"^{FORMS[form]}{_TIME}$")
    matched = pc.is_valid(found).to_numpy(zero_copy_only=False)
    if not matched.any():
        return None

    def group(name: str) -> Any:
        return pc.fill_null(pc.struct_field(found, name), "")

    year = _number(group("y"))
    if form in _LOCAL_FORMS:
        first, second = _number(group("a")), _number(group("b"))
    else:
        second = _month_number(group("m")) if "Apr" in form else _number(group("m"))
        first = _number(group("d"))
    half = pc.utf8_lower(group("half"))
    hour, minute, second_ = (_number(group(name)) for name in ("hour", "minute", "second"))
    twelve = pc.not_equal(half, _NONE).to_numpy(zero_copy_only=False)
    clock = (minute < 60) & (second_ < 60) & np.where(twelve, (hour >= 1) & (hour <= 12), hour < 24)
    hour = np.where(twelve, hour % 12 + 12 * pc.equal(half, pa.scalar("pm")).to_numpy(zero_copy_only=False), hour)
    zone = pc.replace_substring_regex(group("zone"), "^ ?UTC$", "Z")
    parts = {"y": year, "d": first, "m": second, "hour": hour, "minute": minute, "second": second_}
    with_time = pc.not_equal(group("hour"), _NONE).to_numpy(zero_copy_only=False)
    with_zone = pc.not_equal(zone, _NONE).to_numpy(zero_copy_only=False)
    # In UTC a time of the first or last day may be of another year: such a text is taken for no time.
    shifted = with_zone & pc.not_equal(zone, pa.scalar("Z")).to_numpy(zero_copy_only=False)
    clock &= ~(
        shifted & (((year == 1) & (first == 1) & (second == 1)) | ((year == 9999) & (first * second == 12 * 31)))
    )
    dmy = matched & clock & _is_date(year, second, first)
    mdy = matched & clock & _is_date(year, first, second) if form in _LOCAL_FORMS else dmy
    return Times(form, dmy, mdy, with_time, with_zone, {**parts, "fraction": group("fraction"), "zone": zone})


def as_iso(column: Any, order: DateOrder | None) -> Any:
    """The column with every date and time in ISO 8601; other texts as they are."""
    if pc.all(pc.match_substring_regex(column, ISO_8601)).as_py() in (None, True):
        return column
    for form in FORMS:
        times = find_times(column, form)
        if times is not None:
            column = pc.coalesce(times.iso(order), column)
    return column


def _is_date(year: Any, month: Any, day: Any) -> Mask:
    real = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = _DAYS[np.clip(month, 0, 12)] - ((month == 2) & ~leap)
    return np.asarray(real & (day <= last))


def _number(texts: Any) -> Any:
    return pc.if_else(pc.equal(texts, _NONE), pa.scalar("0"), texts).cast(pa.int32()).to_numpy(zero_copy_only=False)


def _month_number(names: Any) -> Any:
    at: Any = pc.index_in(pc.utf8_lower(names), _MONTH_NAMES)
    return _MONTH_NUMBERS[pc.fill_null(at, len(_MONTH_NUMBERS) - 1).to_numpy(zero_copy_only=False)]


def _digits(numbers: Any, width: int) -> Any:
    return pc.utf8_lpad(pa.array(numbers, pa.int32()).cast(pa.string()), width, "0")
