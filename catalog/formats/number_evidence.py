"""What the numbers of one column have in common, and the exact type for them.

Integers are `long`, or `decimal(38, 0)` beyond 64 bits. Fractions are `double` if a double represents each of them as
it is written, and `decimal` if one has more digits than a double keeps, or if all have the same number of fractional
digits, two or more, and some end in zero (`12.50`): that is how amounts are written, and a double drops the zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catalog.formats.exact_numbers import changed_numbers

NUMBER = r"^-?((0|[1-9][0-9]*)([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_PARTS = r"^-?(?P<whole>[0-9]*)(?:[.](?P<fraction>[0-9]*))?(?:[eE](?P<exponent>[+-]?[0-9]+))?$"
DIGITS, SHORT_DIGITS = 38, 18
"""The most digits that a decimal has, and those of one that fits 64 bits."""


@dataclass
class NumberEvidence:
    whole_digits: int = 0
    most_fraction: int = 0
    least_fraction: int = DIGITS + 1
    ends_in_zero: bool = False
    has_exponent: bool = False
    beyond_long: bool = False
    reason: str | None = None
    """Why a double does not do."""

    def observe(self, texts: Any) -> None:
        """Takes note of texts that match NUMBER."""
        parts = pc.extract_regex(texts, pattern=_PARTS)
        whole, fraction, exponent = (
            pc.fill_null(pc.struct_field(parts, name), "") for name in ("whole", "fraction", "exponent")
        )
        lengths: Any = pc.min_max(pc.utf8_length(fraction)).as_py()
        self.most_fraction = max(self.most_fraction, lengths["max"])
        self.least_fraction = min(self.least_fraction, lengths["min"])
        whole = pc.utf8_ltrim(whole, "0")
        self.whole_digits = max(self.whole_digits, pc.max(pc.utf8_length(whole)).as_py())
        self.has_exponent |= bool(pc.any(pc.not_equal(exponent, pa.scalar(""))).as_py())
        self.ends_in_zero |= bool(pc.any(pc.ends_with(fraction, pattern="0")).as_py())
        if self.most_fraction == 0 and not self.has_exponent and not self.beyond_long:
            self.beyond_long = _is_beyond_long(texts)
        if self.reason is None:
            faults = changed_numbers(texts, texts.cast(pa.float64()))
            self.reason = next((reason for _, reason in faults), None)

    def add(self, later: NumberEvidence) -> None:
        self.whole_digits = max(self.whole_digits, later.whole_digits)
        self.most_fraction = max(self.most_fraction, later.most_fraction)
        self.least_fraction = min(self.least_fraction, later.least_fraction)
        self.ends_in_zero |= later.ends_in_zero
        self.has_exponent |= later.has_exponent
        self.beyond_long |= later.beyond_long
        self.reason = self.reason or later.reason

    def decide(self) -> tuple[pa.DataType, str | None]:
        """The type and the doubt."""
        digits, is_plain = self.whole_digits + self.most_fraction, not self.has_exponent
        if is_plain and not self.most_fraction:
            if not self.beyond_long:
                return pa.int64(), None
            if digits <= DIGITS:
                return pa.decimal128(DIGITS, 0), None
            return pa.string(), f"an integer has {digits} digits, and a decimal at most {DIGITS}"
        fixed = self.least_fraction == self.most_fraction >= 2 and self.ends_in_zero
        if is_plain and fixed and digits <= DIGITS:
            return pa.decimal128(SHORT_DIGITS if digits <= SHORT_DIGITS else DIGITS, self.most_fraction), None
        if self.reason is None:
            return pa.float64(), None
        if is_plain and digits <= DIGITS:
            return pa.decimal128(DIGITS, self.most_fraction), None
        return pa.string(), f"{self.reason}, nor can a decimal of {DIGITS} digits"


def _is_beyond_long(texts: Any) -> bool:
    try:
        texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return True
    return False
