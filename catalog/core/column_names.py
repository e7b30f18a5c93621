"""Column names of a result: SQL allows two columns with one name, some formats do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from catalog.core.errors import Invalid

UNIQUE_NAMES = {"json": "a row in JSON", "parquet": "a Parquet file"}
"""The formats in which column names are unique, each as messages call it."""


def check_column_names(names: Sequence[str], format_: str, instead: str) -> None:
    """Invalid if the format would lose a column. `instead`: how to request a format that has them all."""
    if format_ not in UNIQUE_NAMES:
        return
    for name, count in Counter(names).items():
        if count > 1:
            times = "twice" if count == 2 else f"{count} times"
            raise Invalid(
                f"column name {name} appears {times}, and {UNIQUE_NAMES[format_]} has each name once: give one an "
                f"alias, for example SELECT a.{name}, b.{name} AS {name}_2, or {instead}",
                subject=name,
            )
