"""Numbers with a decimal comma or marks for thousands, as the plain numbers that Arrow reads."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN = r"^[+-]?[0-9]*\.?[0-9]*([eE][+-]?[0-9]+)?$"
_NO_NUMBER = "\0"


class NumberMarks:
    """The marks by which a file writes its numbers."""

    def __init__(self, decimal: str = ".", thousands: str | None = None) -> None:
        self._decimal, self._thousands = decimal, thousands
        whole = "[0-9]+"
        if thousands is not None:
            whole = f"([0-9]+|[0-9]{{1,3}}({re.escape(thousands)}[0-9]{{3}})+)"
        self._number = f"^[+-]?{whole}({re.escape(decimal)}[0-9]*)?([eE][+-]?[0-9]+)?$"

    def plain(self, column: Any) -> Any:
        """The column with numbers in plain form. Text stays; what is a number only with other marks is no number."""
        if self._decimal == "." and self._thousands is None:
            return column
        is_number = pc.match_substring_regex(column, self._number)
        numbers = column if self._thousands is None else pc.replace_substring(column, self._thousands, "")
        numbers = pc.replace_substring(numbers, self._decimal, ".")
        other = pc.if_else(pc.match_substring_regex(column, _PLAIN), pa.scalar(_NO_NUMBER), column)
        return pc.if_else(is_number, numbers, other)
