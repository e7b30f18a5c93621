"""Partition specs and sort orders: parsed from text (`day(ts)`, `bucket(16, id)`, `ts desc`) and applied to rows.

pyiceberg's own transforms over Arrow need an additional Rust package, and it does not sort on write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

from catalog.core.errors import Invalid

_TERM = re.compile(r"^\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([\w.]+)\s*\)|([\w.]+))\s*$")
_SORT = re.compile(r"^\s*([\w.]+)(?:\s+(asc|desc))?\s*$", re.IGNORECASE)
_TIME_UNITS: dict[type[Transform[Any, Any]], str] = {
    YearTransform: "Y",
    MonthTransform: "M",
    DayTransform: "D",
    HourTransform: "h",
}
_WITH_WIDTH: dict[str, Callable[[int], Transform[Any, Any]]] = {
    "bucket": lambda width: BucketTransform(num_buckets=width),
    "truncate": lambda width: TruncateTransform(width=width),
}
_WITHOUT_WIDTH: dict[str, Transform[Any, Any]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}


@dataclass(frozen=True)
class PartitionTerm:
    """One partition field as a caller writes it: a column and the transform on it."""

    column: str
    transform: Transform[Any, Any]

    @property
    def name(self) -> str:
        transform = str(self.transform).split("[", 1)[0]
        return self.column if transform == "identity" else f"{self.column.replace('.', '_')}_{transform}"


def parse_term(text: str) -> PartitionTerm:
    """`region`, `day(ts)`, `bucket(16, id)`, `truncate(4, code)`."""
    match = _TERM.match(text)
    if match and match[4]:
        return PartitionTerm(match[4], IdentityTransform())
    if match and match[2] and match[1].lower() in _WITH_WIDTH and int(match[2]) > 0:
        return PartitionTerm(match[3], _WITH_WIDTH[match[1].lower()](int(match[2])))
    if match and not match[2] and match[1].lower() in _WITHOUT_WIDTH:
        return PartitionTerm(match[3], _WITHOUT_WIDTH[match[1].lower()])
    raise Invalid(
        f"cannot partition by {text!r}: write a column, year(c), month(c), day(c), hour(c), bucket(n, c) or "
        "truncate(n, c)"
    )


def make_spec(schema: Schema, terms: Sequence[str]) -> PartitionSpec:
    fields = []
    for number, text in enumerate(terms):
        term = parse_term(text)
        source = check_term(schema, term, text)
        fields.append(
            PartitionField(source_id=source, field_id=1000 + number, transform=term.transform, name=term.name)
        )
    if len({field.source_id for field in fields}) < len(fields):
        raise Invalid(f"cannot partition by {list(terms)}: use each column once")
    return PartitionSpec(*fields)


def check_term(schema: Schema, term: PartitionTerm, text: str) -> int:
    """The source column's id; Invalid unless the column exists and the transform accepts its type."""
    try:
        field = schema.find_field(term.column)
    except ValueError:
        raise Invalid(f"cannot partition by {text!r}: there is no column {term.column!r}") from None
    if not field.field_type.is_primitive or not term.transform.can_transform(field.field_type):
        raise Invalid(f"cannot partition by {text!r}: {term.column!r} is a {field.field_type}")
    return field.field_id


def make_order(schema: Schema, terms: Sequence[str]) -> SortOrder:
    fields = []
    for text in terms:
        match = _SORT.match(text)
        if match is None or match[1] not in schema.column_names:
            raise Invalid(f"cannot sort by {text!r}: write a column of the table, optionally with asc or desc")
        descending = (match[2] or "asc").lower() == "desc"
        fields.append(
            SortField(
                source_id=schema.find_field(match[1]).field_id,
                transform=IdentityTransform(),
                direction=SortDirection.DESC if descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_LAST if descending else NullOrder.NULLS_FIRST,
            )
        )
    return SortOrder(*fields)


def sorted_rows(rows: pa.Table, schema: Schema, order: SortOrder) -> pa.Table:
    """The rows in the table's sort order, stably. Stops at a field with a transform, which only other engines set."""
    keys: list[tuple[str, str, str]] = []
    for field in order.fields:
        column = schema.find_column_name(field.source_id)
        if column not in rows.column_names or not isinstance(field.transform, IdentityTransform):
            break
        direction = "descending" if field.direction == SortDirection.DESC else "ascending"
        keys.append((column, direction, "at_start" if field.null_order == NullOrder.NULLS_FIRST else "at_end"))
    if not keys or rows.num_rows < 2:
        return rows
    return rows.take(pc.sort_indices(rows, sort_keys=keys))  # type: ignore[arg-type]


def transformed(column: Any, transform: Transform[Any, Any], schema: Schema, source: int) -> Any:
    """The transform of a column: of times with numpy, of other types once per distinct value."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    unit = _TIME_UNITS.get(type(transform))
    if unit is not None:
        return _since_epoch(column, unit)
    if isinstance(transform, IdentityTransform):
        return column
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(column))
    encoded: Any = pc.dictionary_encode(column)
    apply = transform.transform(schema.find_field(source).field_type)
    transformed_values = pa.array([apply(value) for value in _internal(encoded.dictionary).to_pylist()])
    return transformed_values.take(encoded.indices)


def split(rows: pa.Table, schema: Schema, spec: PartitionSpec) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    """The rows of each partition, in their order. Sorts all rows once, whatever the number of partitions."""
    if spec.is_unpartitioned() or rows.num_rows == 0:
        if rows.num_rows:
            yield None, rows
        return
    columns = [
        transformed(column_of(rows, schema, field.source_id), field.transform, schema, field.source_id)
        for field in spec.fields
    ]
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for column in columns:
        encoded: Any = pc.dictionary_encode(column, null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]  # dense again, so that many columns cannot overflow
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        indices = order[start:end]
        values = [PartitionFieldValue(f, c[int(indices[0])].as_py()) for f, c in zip(spec.fields, columns, strict=True)]
        yield PartitionKey(values, spec, schema), rows.take(indices)


def column_of(rows: pa.Table, schema: Schema, field_id: int) -> Any:
    """A column by field id; it may be inside structs."""
    name = schema.find_column_name(field_id) or ""
    if name in rows.column_names:
        return rows[name]
    column, *path = name.split(".")
    return pc.struct_field(rows[column], path)


def _since_epoch(column: Any, unit: str) -> Any:
    stamps = column if pa.types.is_date(column.type) else column.cast(pa.timestamp("us"), safe=False)
    filled: Any = pc.fill_null(_internal(stamps), 0)
    values = filled.to_numpy(zero_copy_only=False)
    moments = values.astype("datetime64[D]" if pa.types.is_date(column.type) else "datetime64[us]")
    counts = moments.astype(f"datetime64[{unit}]").astype(np.int64).astype(np.int32)
    return pa.array(counts, mask=pc.is_null(column).to_numpy(zero_copy_only=False))


def _internal(column: Any) -> Any:
    """Dates and times as the integers that Iceberg's transforms take."""
    if pa.types.is_date(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type) or pa.types.is_time(column.type):
        return column.cast(pa.int64())
    return column
