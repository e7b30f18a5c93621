"""Compares what a manifest states about a data file (counts, bounds) with the rows in the file. Reads only.

A writer can commit a manifest whose statistics lie: its bytes are as committed, and every reader that prunes files or
answers count, min and max by them is deceived. Only top-level columns of Parquet files, which are the ones that queries
use; bounds of text and bytes may be truncated, all others are exact.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

BATCH_ROWS = 1 << 16
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class Statistics:
    """What a manifest states about one data file, by field id."""

    rows: int
    values: Mapping[int, int]
    nulls: Mapping[int, int]
    nans: Mapping[int, int]
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]
    is_data: bool = True
    """False: a delete file, which no query prunes by."""
    is_parquet: bool = True

    @classmethod
    def of(cls, file: DataFile) -> Statistics:
        def stated(by_id: Any) -> Any:
            return dict(by_id or {})

        return cls(
            file.record_count,
            stated(file.value_counts),
            stated(file.null_value_counts),
            stated(file.nan_value_counts),
            stated(file.lower_bounds),
            stated(file.upper_bounds),
            file.content == DataFileContent.DATA,
            file.file_format == FileFormat.PARQUET,
        )

    @property
    def key(self) -> Hashable:
        """Equal for equal statements."""
        maps = (self.values, self.nulls, self.nans, self.lower, self.upper)
        return (self.rows, *(tuple(sorted(stated.items())) for stated in maps))


class NotComparable(Exception):
    """The file's columns have no field ids: nothing in it says which statistics are of which column."""


def false_statements(stated: Statistics, file: Any) -> Iterator[str]:
    """What the manifest states, and the rows of the file contradict. Memory: a batch of rows, one column at a time."""
    with pq.ParquetFile(file) as parquet:
        rows = parquet.metadata.num_rows
        if stated.rows != rows:
            yield f"its manifest states {stated.rows} rows, and the file has {rows}"
        fields = list(parquet.schema_arrow)
        ids = set(_ids(fields))
        if not ids:
            raise NotComparable
        for number in sorted({*stated.lower, *stated.upper} - ids):
            yield f"its manifest states bounds of the field {number}, which the file does not have"
        for field in fields:
            number_text = (field.metadata or {}).get(_FIELD_ID, b"")
            if number_text.isdigit() and not pa.types.is_nested(field.type):
                yield from _false_of_column(stated, int(number_text), field.name, _Column.read(parquet, field))


def _ids(fields: Iterable[pa.Field[Any]]) -> Iterator[int]:
    """The field ids, also of fields inside others."""
    for field in fields:
        number = (field.metadata or {}).get(_FIELD_ID, b"")
        if number.isdigit():
            yield int(number)
        yield from _ids(field.type.field(at) for at in range(field.type.num_fields))


@dataclass
class _Column:
    """The facts of one column, from its values."""

    rows: int = 0
    nulls: int = 0
    nans: int = 0
    least: Any = None
    greatest: Any = None
    type: Any = None

    @classmethod
    def read(cls, parquet: pq.ParquetFile, field: pa.Field[Any]) -> _Column:
        found = cls(type=field.type)
        for batch in parquet.iter_batches(BATCH_ROWS, columns=[field.name]):
            found._add(_comparable(batch.column(0)))
        return found

    def _add(self, values: Any) -> None:
        self.rows += len(values)
        self.nulls += values.null_count
        values = values.drop_null()
        if pa.types.is_floating(values.type):
            is_nan = pc.is_nan(values)
            self.nans += pc.sum(is_nan).as_py() or 0
            values = values.filter(pc.invert(is_nan))
        if not len(values) or pa.types.is_null(values.type):
            return
        if pa.types.is_boolean(values.type):
            least, greatest = pc.all(values).as_py(), pc.any(values).as_py()
        else:
            ends = pc.min_max(values)
            least, greatest = ends["min"].as_py(), ends["max"].as_py()
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)


def _comparable(values: Any) -> Any:
    """Times and dates as the integers that bounds have; bytes of fixed length as bytes."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if pa.types.is_date(kind):
        return values.cast(pa.date32()).cast(pa.int32())
    if pa.types.is_timestamp(kind):
        return (values if kind.unit == "ns" else values.cast(pa.timestamp("us", kind.tz))).cast(pa.int64())
    if pa.types.is_time(kind):
        return values.cast(pa.time64("us")).cast(pa.int64())
    return values.cast(pa.binary()) if pa.types.is_fixed_size_binary(kind) else values


def _false_of_column(stated: Statistics, number: int, name: str, found: _Column) -> Iterator[str]:
    counts = [("values", stated.values, found.rows), ("NULLs", stated.nulls, found.nulls)]
    if pa.types.is_floating(found.type):
        counts.append(("NaNs", stated.nans, found.nans))
    for what, by_id, count in counts:
        if by_id.get(number, count) != count:
            yield f"its manifest states {by_id[number]} {what} of {name}, and the file has {count}"
    for what, bounds, value in (("least", stated.lower, found.least), ("greatest", stated.upper, found.greatest)):
        if number not in bounds:
            continue
        try:
            bound = _decoded(found.type, bounds[number])
        except (ValueError, struct.error):
            yield f"its manifest states a bound of {name} that is no value of its type"
            continue
        if value is None and bound != bound and found.nans:
            continue  # some writers state NaN for a column of NaNs
        if value is None or not _is_bound(what, bound, value):
            yield f"its manifest states {bound!r:.60} as the {what} value of {name}, and the file has {value!r:.60}"


def _is_bound(what: str, bound: Any, value: Any) -> bool:
    """Whether the bound is the value. Text and bytes may be cut short: then it is on the right side of the value.

    -0.0 and 0.0 are equal here: Parquet's writers use either.
    """
    if isinstance(value, str):
        bound, value = bound.encode(), value.encode()
    if isinstance(value, bytes):
        return bool(bound <= value if what == "least" else bound >= value)
    return bool(bound == value)


def _decoded(kind: Any, bound: bytes) -> Any:
    """A bound as Iceberg serialises single values. The column may have been promoted since: its width tells."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return bound != b"\0"
    if pa.types.is_floating(kind):
        return struct.unpack("<f" if len(bound) == 4 else "<d", bound)[0]
    if pa.types.is_decimal(kind):
        return Decimal(int.from_bytes(bound, "big", signed=True)).scaleb(-kind.scale)
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return int.from_bytes(bound, "little", signed=True)
    return bound.decode() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else bytes(bound)
