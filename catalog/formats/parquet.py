"""Untrusted Parquet files, read row group by row group; page headers are measured before a page is decoded.

Dictionaries and run lengths encode many values in a few bytes, so the limits apply to the decoded size. A text column
with a large dictionary is read dictionary-encoded, measured, and then decoded in slices that fit into memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from catalog.core.range_reader import RangeReader
from catalog.formats.arrow import check_batch, check_shape, check_size, check_types, decoded_bytes
from catalog.formats.limits import FileRejected, FormatLimits
from catalog.formats.parquet_headers import (
    DELTA_BYTE_ARRAY,
    DICTIONARY,
    TAIL_BYTES,
    Chunk,
    Page,
    RowGroup,
    footer_length,
    read_pages,
    read_row_groups,
)
from catalog.formats.parquet_int96 import UNIT, check_int96, int96_columns
from catalog.formats.thrift import malformed

BATCH_ROWS = 64 * 1024
BATCH_BYTES = 64 << 20
"""The decoded size of a batch. A single row may be larger, up to `in_memory_bytes`."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_SUSPICIOUS_RATIO = 20
"""A list column whose decoded size exceeds its compressed size by this factor must fit into memory as a whole: a single
row may hold all of its values."""


def read_parquet(source: Any, limits: FormatLimits) -> Iterator[pa.RecordBatch]:
    """The file's rows, validated. `source` is a buffer, or has `seek`, `tell` and `read`.

    Raises FileRejected if the file is not valid Parquet, if its decoded size is over `limits.decompressed_bytes`, or
    if a row or page is over `limits.in_memory_bytes`. Memory: the compressed bytes of one row group, one page of each
    column, and one batch.
    """
    chunks: Any = _ChunkReader(source)  # pyarrow's stubs do not accept file objects
    try:
        groups, size, first = chunks.row_groups(), 0, 0
        file = pq.ParquetFile(chunks, pre_buffer=False, coerce_int96_timestamp_unit=UNIT)
        check_shape(file.schema_arrow, limits)
        check_types(file.schema_arrow)
        check_size(sum(group.size for group in groups), limits)
        int96 = int96_columns(file.schema)
        for number, group in enumerate(groups):
            if not group.rows:
                continue  # the offsets of an empty row group are undefined
            columns = _columns(group, file.schema, chunks)
            check_size(size + sum(column.decoded for column in columns), limits)
            batch_rows, coded = _batch_rows(columns, group.rows, limits), [c.path for c in columns if c.is_coded]
            if int96:
                check_int96(chunks, file.metadata, number, int96, batch_rows, first)
            reader = pq.ParquetFile(
                chunks,
                metadata=file.metadata,
                pre_buffer=False,
                read_dictionary=coded,
                coerce_int96_timestamp_unit=UNIT,
            )
            first += group.rows
            for batch in reader.iter_batches(batch_rows, row_groups=[number]):
                check_batch(batch)
                for part, decoded in _slices(batch, limits):
                    size += decoded
                    check_size(size, limits)
                    yield _plain(part, file.schema_arrow)
            chunks.release()
    except (ConnectionError, TimeoutError):
        raise  # a failure of the source, not a fault of the file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileRejected(f"the file is not valid Parquet, or is truncated: {error}") from None


def read_parquet_table(source: Any, limits: FormatLimits) -> pa.Table:
    """All rows of `read_parquet` as one table, which has the file's columns even if there are no rows."""
    batches = list(read_parquet(source, limits))
    if batches:
        return pa.Table.from_batches(batches)
    chunks: Any = _ChunkReader(source)
    file = pq.ParquetFile(chunks, pre_buffer=False, coerce_int96_timestamp_unit=UNIT)
    return file.schema_arrow.remove_metadata().empty_table()


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a row group, as its page headers describe it. `width` is 0 for text and bytes."""

    path: str
    pages: Sequence[Page]
    compressed: int
    width: int
    is_list: bool
    is_decimal: bool

    @classmethod
    def of(cls, chunk: Chunk, column: Any, chunks: _ChunkReader) -> _Column:
        fixed = column.physical_type == "FIXED_LEN_BYTE_ARRAY"
        return cls(
            column.path,
            list(read_pages(chunks.load(chunk.start, chunk.end))),
            chunk.end - chunk.start,
            max(column.length, 1) if fixed else _WIDTHS.get(column.physical_type, 0),
            column.max_repetition_level > 0,
            column.logical_type.type == "DECIMAL",
        )

    @property
    def values(self) -> int:
        return sum(page.values for page in self.pages if page.kind != DICTIONARY)

    @property
    def largest_page(self) -> int:
        return max((page.size for page in self.pages), default=0)

    @property
    def decoded(self) -> int:
        """A lower bound of the decoded size; a dictionary's text cannot be measured before it is read."""
        return max(sum(page.size for page in self.pages), self.values * max(self.width, 1))

    @property
    def grows(self) -> bool:
        """Whether its text may decode to much more than the size of its pages."""
        shares_bytes = any(page.kind == DICTIONARY or page.encoding == DELTA_BYTE_ARRAY for page in self.pages)
        return not self.width and shares_bytes and self.values * self.largest_page > BATCH_BYTES

    @property
    def is_coded(self) -> bool:
        """Whether to read it dictionary-encoded, so that it can be measured before it is decoded."""
        delta = any(page.encoding == DELTA_BYTE_ARRAY for page in self.pages)
        return self.grows and not delta and not self.is_decimal

    def max_bytes(self, rows: int) -> int:
        """The largest size of that many consecutive rows, wherever they begin. 0 for lists, which are not counted."""
        if self.is_list:
            return 0
        if self.width:
            return rows * self.width
        if self.grows and not self.is_coded:  # any value may be as large as the largest page
            return rows * self.largest_page
        data = [page for page in self.pages if page.kind != DICTIONARY]
        largest = window = values = first = 0
        for page in data:
            window, values = window + page.size, values + page.values
            largest = max(largest, window)
            while first < len(data) and values - data[first].values >= rows:
                window, values, first = window - data[first].size, values - data[first].values, first + 1
        return largest


def _columns(group: RowGroup, schema: Any, chunks: _ChunkReader) -> list[_Column]:
    columns = [schema.column(number) for number in range(len(schema))]
    if len(columns) != len(group.chunks):
        raise malformed(f"the schema has {len(columns)} columns, and a row group {len(group.chunks)}")
    return [_Column.of(chunk, column, chunks) for chunk, column in zip(group.chunks, columns, strict=True)]


def _batch_rows(columns: Sequence[_Column], rows: int, limits: FormatLimits) -> int:
    """How many rows to decode at once. Raises FileRejected if a single row may be too large."""
    batch_rows, limit = BATCH_ROWS, limits.in_memory_bytes
    for column in columns:
        decoded = column.decoded
        unmeasured = column.grows and not column.is_coded
        if column.is_list and (unmeasured or (decoded > limit and decoded > _SUSPICIOUS_RATIO * column.compressed)):
            reason = f"a row may be over the limit of {limit} bytes when decoded"
            raise FileRejected(f"{reason}: write it in smaller row groups, with plain encoding", column=column.path)
        if column.largest_page > limit:
            reason = f"a page is {column.largest_page} bytes, over the limit of {limit}"
            raise FileRejected(f"{reason}: write the file with smaller pages", column=column.path)
        if column.is_list and decoded:
            batch_rows = min(batch_rows, max(rows * BATCH_BYTES // decoded, 1))
    while batch_rows > 1 and (size := sum(column.max_bytes(batch_rows) for column in columns)) > limit:
        if 4 * sum(column.max_bytes(batch_rows // 2) for column in columns) > 3 * size:
            break  # one page of each column dominates: fewer rows would not take less
        batch_rows //= 2
    return batch_rows


def _slices(batch: pa.RecordBatch, limits: FormatLimits) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batch in slices small enough to be decoded at once, each with its decoded size."""
    size = max(sum(map(decoded_bytes, batch.columns)), batch.num_rows)
    if size > BATCH_BYTES and batch.num_rows > 1:
        middle = batch.num_rows // 2
        for half in (batch.slice(0, middle), batch.slice(middle)):
            yield from _slices(half, limits)
    elif size > limits.in_memory_bytes:
        raise FileRejected(f"a row is over the limit of {limits.in_memory_bytes} bytes when decoded: split its values")
    else:
        yield batch, size


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the file's own types instead of dictionaries, and plain text instead of views, to which Arrow
    does not cast."""
    fields = [field.with_type(_without_views(field.type)) for field in schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _without_views(type_: Any) -> Any:
    if pt.is_string_view(type_):
        return pa.string()
    if pt.is_binary_view(type_):
        return pa.binary()
    if pt.is_struct(type_):
        return pa.struct([field.with_type(_without_views(field.type)) for field in type_])
    if pt.is_list(type_) or pt.is_large_list(type_):
        make = pa.list_ if pt.is_list(type_) else pa.large_list
        return make(type_.value_field.with_type(_without_views(type_.value_type)))
    return type_


class _ChunkReader(RangeReader):
    """A Parquet file whose loaded column chunks stay in memory: the bytes that were measured are the bytes that are
    decoded, and they are read once. While chunks are loaded, only they can be read."""

    def __init__(self, source: Any) -> None:
        self._source: Any = pa.BufferReader(source) if isinstance(source, (bytes, pa.Buffer)) else source
        self._source.seek(0, io.SEEK_END)
        self._chunks: dict[tuple[int, int], bytes] = {}
        super().__init__(int(self._source.tell()), self._read_loaded)

    def row_groups(self) -> list[RowGroup]:
        """The row groups that the footer lists. Two reads."""
        length = footer_length(self._read_source(max(self.size() - TAIL_BYTES, 0), TAIL_BYTES))
        start = self.size() - TAIL_BYTES - length
        if start < 0:
            raise malformed("the footer is longer than the file")
        return read_row_groups(self._read_source(start, length))

    def load(self, start: int, end: int) -> bytes:
        """The bytes of one column chunk, which stay in memory until `release`."""
        if not 0 <= start <= end <= self.size():
            raise malformed("a column chunk lies outside of the file")
        if (start, end) not in self._chunks:
            if sum(map(len, self._chunks.values())) + end - start > self.size():
                raise malformed("column chunks overlap")
            self._chunks[start, end] = self._read_source(start, end - start)
        return self._chunks[start, end]

    def release(self) -> None:
        self._chunks.clear()

    def _read_source(self, start: int, length: int) -> bytes:
        self._source.seek(start)
        data: bytes = self._source.read(length)
        return data

    def _read_loaded(self, start: int, end: int) -> bytes:
        if not self._chunks:
            return self._read_source(start, end - start)
        for (first, last), data in self._chunks.items():
            if first <= start and end <= last:
                return data[start - first : end - first]
        raise malformed("a column lies outside of its chunk")
