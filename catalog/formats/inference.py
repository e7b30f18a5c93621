"""The types of columns that were read as text, from all of their rows: one exact type, or text and the reason.

Docs: docs/guide/ingest.md, "Types". No type is chosen by which a value would be another one, or would have to be
guessed; a column in which one value does not fit stays text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.types as pt

from catalog.formats.column_evidence import ColumnEvidence
from catalog.formats.csv_dialect import CsvOptions
from catalog.formats.number_marks import NumberMarks
from catalog.formats.text_times import DateOrder


@dataclass(frozen=True, slots=True)
class InferredColumn:
    """The type of one column; of null if it has no value. `doubt`: why it is text, or what a person should check."""

    name: str
    type: pa.DataType
    doubt: str | None = None


class Inference:
    """What the rows say of the columns whose type is not known. Memory: a few numbers and texts for each column.

    `known`: the table's columns, which are not inferred. `texts`: the values were written as text, as in JSON, so only
    dates and times are inferred. `first`: the position of the first row; None if rows have none that a person could
    count.
    """

    def __init__(
        self,
        known: Iterable[str] = (),
        options: CsvOptions | None = None,
        *,
        texts: bool = False,
        first: int | None = None,
    ) -> None:
        self._known, self.options = frozenset(known), options or CsvOptions()
        self._texts, self._row = texts, first
        self._marks = NumberMarks(self.options.decimal, self.options.thousands)
        self._columns: dict[str, ColumnEvidence] = {}

    def observe(self, batch: pa.RecordBatch) -> None:
        """Takes note of the next rows."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in self._known or not _may_be_inferred(column.type):
                continue
            evidence = self._columns.setdefault(name, ColumnEvidence(name, self._texts))
            if pt.is_string(column.type):
                evidence.observe(column, self._marks, self.options.dates, self._row)
        if self._row is not None:
            self._row += batch.num_rows

    def add(self, other: Inference) -> Inference:
        """What both have seen, the rows of another file being the later ones. Changes neither."""
        both = Inference(self._known | other._known, self.options)
        both._columns = dict(self._columns)
        for name, evidence in other._columns.items():
            mine = both._columns.get(name)
            both._columns[name] = evidence if mine is None else mine.add(evidence)
        return both

    def columns(self) -> list[InferredColumn]:
        """The columns in the order of the file."""
        order = self._order()
        return [InferredColumn(name, *evidence.decide(order)) for name, evidence in self._columns.items()]

    def typed(self, schema: pa.Schema) -> pa.Schema:
        """The schema with the inferred types in place of text."""
        types = {column.name: column.type for column in self.columns() if not pt.is_null(column.type)}
        return pa.schema(
            [
                field.with_type(types.get(field.name, field.type)) if _may_be_inferred(field.type) else field
                for field in schema
            ]
        )

    def with_order(self) -> CsvOptions:
        """The options, with the order of days and months if local dates were inferred by their rows."""
        order = self._order()
        local = any(evidence.is_local_in(order) for evidence in self._columns.values())
        return replace(self.options, dates=order) if order and local else self.options

    def _order(self) -> DateOrder | None:
        """The order that some column shows, and none contradicts."""
        if self.options.dates is not None:
            return self.options.dates
        orders = {order for evidence in self._columns.values() if (order := evidence.shown_order()) is not None}
        return orders.pop() if len(orders) == 1 else None


def _may_be_inferred(type_: pa.DataType) -> bool:
    return pt.is_string(type_) or pt.is_null(type_)
