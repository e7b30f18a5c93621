"""The multiset digest: one value for all rows of a table, whatever their order and files. Equal digests, equal rows.

Each row's digest (docs/row-digest.md) is read as eight 32-bit numbers, and each of the eight is summed over all rows;
the sums and the count are what is compared. Sums can be taken apart over machines, and while rows flow to a writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import array, col, explode, expr

from catalog.changes.digest import row_digests
from catalog.changes.spark import spark_expression

LANES = 8
HASH = "__strandline_row"


@dataclass(frozen=True)
class RowsDigest:
    """`sums` are exact up to 2**31 rows; then Spark's ANSI mode stops with an overflow rather than a wrong sum."""

    rows: int
    sums: tuple[int, ...]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> RowsDigest:
        """From the values of `aggregates`; no rows have no sums."""
        return cls(int(found["rows"]), tuple(int(found[f"lane{lane}"] or 0) for lane in range(LANES)))

    @classmethod
    def of_arrow(cls, rows: pa.Table) -> RowsDigest:
        """The same from Arrow, for rows that carry field ids."""
        lanes = row_digests(rows).view(">u4").astype(np.uint64)
        return cls(len(rows), tuple(int(total) for total in lanes.sum(axis=0)) if len(rows) else (0,) * LANES)

    def __add__(self, other: RowsDigest) -> RowsDigest:
        return RowsDigest(self.rows + other.rows, tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)))

    @property
    def hex(self) -> str:
        """As it stands in summaries and reports."""
        return sha256(f"{self.rows}:{','.join(map(str, self.sums))}".encode()).hexdigest()


NO_ROWS = RowsDigest(0, (0,) * LANES)


def with_hash(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The frame with each row's digest as hex text in one more column. `schema` carries field ids.

    Exploded from an array of one: a plain column would be put into each of the eight sums, and computed eight times.
    """
    return frame.select("*", explode(array(expr(f"sha2({spark_expression(schema)}, 256)"))).alias(HASH))


def aggregates() -> list[Column]:
    """What to aggregate or observe over a frame `with_hash`."""
    lanes = [
        expr(f"sum(bigint(conv(substr({HASH}, {1 + 8 * lane}, 8), 16, 10)))").alias(f"lane{lane}")
        for lane in range(LANES)
    ]
    return [expr("count(1)").alias("rows"), *lanes]


def digest(frame: DataFrame, schema: pa.Schema) -> RowsDigest:
    """The digest of a frame's rows: one pass over them."""
    first, *rest = aggregates()
    (found,) = with_hash(frame, schema).select(col(HASH)).agg(first, *rest).collect()
    return RowsDigest.of(found.asDict())
