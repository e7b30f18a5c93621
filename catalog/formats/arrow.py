"""Untrusted Arrow IPC streams: sizes are checked before a buffer is decompressed, values before they are read.

Arrow trusts the offsets in a stream: one that points beyond its buffer reads the memory behind it. So every batch that
is returned has passed `validate(full=True)`, and types which that does not cover are rejected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from catalog.formats.limits import FileRejected, FormatLimits

_EXTENSIONS = frozenset({"arrow.uuid", "arrow.json"})
_LITTLE_ENDIAN = 0
_NAME_CHARACTERS = 255


def read_arrow_stream(data: Any, limits: FormatLimits, *, any_type: bool = False) -> pa.Table:
    """All rows of one stream. Raises FileRejected if it is not a valid Arrow IPC stream, or is over
    `limits.decompressed_bytes`; also for types and shapes that no table has, unless `any_type`: the rows are not for a
    table. Cost: one pass over the headers, one over the values. Uncompressed buffers are not copied.
    """
    buffer = pa.py_buffer(data)
    try:
        batches, size = list[pa.RecordBatch](), 0
        with pa.ipc.open_stream(buffer) as stream:
            schema = stream.schema
            if not any_type:
                check_shape(schema, limits)
                check_types(schema)
            _check_messages(buffer, limits)
            for batch in stream:
                size += check_batch(batch)
                check_size(size, limits)
                batches.append(batch)
        return pa.Table.from_batches(batches, schema)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise _not_a_stream(error) from None


def stream_end(source: Any) -> int:
    """The position at which the stream that begins at the source's position ends. Decodes nothing."""
    try:
        for _ in pa.ipc.MessageReader.open_stream(source):
            pass
    except (pa.ArrowException, OSError) as error:
        raise _not_a_stream(error) from None
    return int(source.tell())


def _not_a_stream(error: Exception) -> FileRejected:
    return FileRejected(f"the data is not a valid Arrow IPC stream: {error}")


def check_batch(batch: pa.RecordBatch) -> int:
    """The decoded size of the batch in bytes. Raises FileRejected if a value is out of bounds."""
    try:
        batch.validate(full=True)
        for column in batch.columns:
            _check_views(column)
        return max(sum(map(decoded_bytes, batch.columns)), batch.num_rows)
    except pa.ArrowException as error:
        raise FileRejected(f"the values are not valid Arrow: {error}") from None


def check_size(size: int, limits: FormatLimits) -> None:
    if size > limits.decompressed_bytes:
        raise FileRejected(f"the rows are over the limit of {limits.decompressed_bytes} bytes when decoded: split them")


def check_shape(schema: pa.Schema, limits: FormatLimits) -> None:
    """Raises FileRejected for more columns, or deeper nesting, than the limits allow."""
    if len(schema) > limits.columns:
        raise FileRejected(f"there are {len(schema)} columns, over the limit of {limits.columns}: split the table")
    for field in schema:
        if _depth(field.type) > limits.depth:
            raise FileRejected(f"values are nested deeper than {limits.depth} levels: flatten them", column=field.name)
        _check_names(field, field.name)


def _check_names(field: Any, column: str) -> None:
    """Raises FileRejected for names that the Glue catalog does not have, also inside objects."""
    if not field.name.strip() or len(field.name) > _NAME_CHARACTERS or not field.name.isprintable():
        reason = f"a column's name must have 1 to {_NAME_CHARACTERS} characters that can be printed: rename it"
        raise FileRejected(reason, column=column[:40])
    if pt.is_struct(field.type):
        for number in range(field.type.num_fields):
            _check_names(field.type.field(number), column)
    elif pt.is_list(field.type) or pt.is_large_list(field.type):
        _check_names(field.type.value_field.with_name("item"), column)


def _depth(type_: Any) -> int:
    return 1 + max((_depth(type_.field(i).type) for i in range(type_.num_fields)), default=0)


def check_types(schema: pa.Schema) -> None:
    """Raises FileRejected for types that no table has, or whose size and bounds do not follow from their buffers."""
    for field in schema:
        _check_type(field.type, field.name)


def no_table_type(type_: Any, column: str) -> FileRejected:
    """The error for a column whose type no Iceberg table has."""
    return FileRejected(f"an Iceberg table has no type for {type_}: convert the column", column=column)


def _check_type(type_: Any, column: str) -> None:
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name not in _EXTENSIONS:
            raise no_table_type(type_, column)
        type_ = type_.storage_type
    if pt.is_union(type_) or pt.is_run_end_encoded(type_) or pt.is_list_view(type_) or pt.is_large_list_view(type_):
        raise no_table_type(type_, column)
    if pt.is_dictionary(type_):
        if not (_is_variable(type_.value_type) or pt.is_primitive(type_.value_type)):
            raise FileRejected(f"the dictionary of {type_} must hold text, bytes or numbers", column=column)
        return
    if pt.is_decimal(type_) and not 0 <= type_.scale <= type_.precision:
        raise no_table_type(type_, column)
    names = [type_.field(number).name for number in range(type_.num_fields)]
    if len(set(names)) < len(names):
        raise FileRejected(f"two fields of {type_} have the same name: rename one", column=column)
    for number in range(type_.num_fields):
        _check_type(type_.field(number).type, column)


def decoded_bytes(array: Any) -> int:
    """The size of the values with dictionaries and views resolved, at least a byte for each. The array must have been
    validated."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return decoded_bytes(array.storage)
    if pt.is_dictionary(type_):
        if not _is_variable(type_.value_type):
            if not pt.is_primitive(type_.value_type):
                return len(array) * max(int(array.dictionary.nbytes), 1)
            return len(array) * max(int(type_.value_type.bit_width) // 8, 1)
        return int(pc.sum(_lengths(array.dictionary).take(array.indices)).as_py() or 0) + 8 * len(array)
    if _is_view(type_):
        return int(pc.sum(_lengths(array)).as_py() or 0) + 8 * len(array)
    inner = children(array)
    return sum(map(decoded_bytes, inner)) + max(len(array), 0 if inner else int(array.nbytes))


def children(array: Any) -> list[Any]:
    """The arrays nested in it, cut to its own range: an array may be a slice."""
    type_ = array.type
    if pt.is_struct(type_):
        return [array.field(number) for number in range(type_.num_fields)]
    if not (pt.is_map(type_) or pt.is_list(type_) or pt.is_large_list(type_) or pt.is_fixed_size_list(type_)):
        return []
    if pt.is_fixed_size_list(type_):
        return [array.values.slice(array.offset * type_.list_size, len(array) * type_.list_size)]
    start, end = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
    inner = [array.keys, array.items] if pt.is_map(type_) else [array.values]
    return [values.slice(start, end - start) for values in inner]


def _is_variable(type_: Any) -> bool:
    large = pt.is_large_binary(type_) or pt.is_large_string(type_)
    return large or pt.is_binary(type_) or pt.is_string(type_) or _is_view(type_)


def _is_view(type_: Any) -> bool:
    return pt.is_string_view(type_) or pt.is_binary_view(type_)


def _lengths(array: Any) -> Any:
    """The length of each text or bytes value, as int64."""
    if not _is_view(array.type):
        return pc.binary_length(array).cast(pa.int64())
    # No kernel computes the length of a view. A view has sixteen bytes, of which the first four are its length.
    end = array.offset + len(array)
    lengths = np.frombuffer(array.buffers()[1], "<i4", count=4 * end)[::4] if end else np.empty(0, "<i4")
    return pa.array(lengths[array.offset :], pa.int64())


def _check_views(array: Any) -> None:
    """Also validates the views of nulls: Arrow does not, yet some of its kernels read them."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        _check_views(array.storage)
    elif pt.is_dictionary(type_):
        _check_views(array.dictionary)
    elif _is_view(type_) and array.null_count:
        _, *buffers = array.buffers()
        pa.Array.from_buffers(
            pa.binary_view(), len(array), [None, *buffers], null_count=0, offset=array.offset
        ).validate(full=True)
    for child in children(array):
        _check_views(child)


# The messages' headers are flatbuffers (format/Message.fbs, Schema.fbs); pyarrow has verified their structure.

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3


@dataclass(frozen=True, slots=True)
class _Table:
    """A flatbuffers table, with its fields by number."""

    data: memoryview
    at: int

    def number(self, field: int, form: str, default: int = 0) -> int:
        position = self._position(field)
        return default if position is None else int(struct.unpack_from(form, self.data, position)[0])

    def table(self, field: int) -> _Table | None:
        position = self._position(field)
        return None if position is None else _Table(self.data, self._follow(position))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two longs."""
        position = self._position(field)
        if position is not None:
            start = self._follow(position)
            (count,) = struct.unpack_from("<I", self.data, start)
            yield from struct.iter_unpack("<qq", self.data[start + 4 : start + 4 + 16 * count])

    def _position(self, field: int) -> int | None:
        vtable = self.at - struct.unpack_from("<i", self.data, self.at)[0]
        (size,) = struct.unpack_from("<H", self.data, vtable)
        if 4 + 2 * field >= size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, vtable + 4 + 2 * field)
        return self.at + offset if offset else None

    def _follow(self, position: int) -> int:
        return position + int(struct.unpack_from("<I", self.data, position)[0])


def _check_messages(buffer: Any, limits: FormatLimits) -> None:
    """Rejects what Arrow must not decode: decompression bombs, and data that it would rewrite before validation."""
    size = 0
    for message in pa.ipc.MessageReader.open_stream(buffer):
        data = memoryview(message.metadata)
        root = _Table(data, int(struct.unpack_from("<I", data)[0]))
        kind, header = root.number(1, "<B"), root.table(2)
        if kind == _SCHEMA and header is not None and header.number(0, "<h") != _LITTLE_ENDIAN:
            raise FileRejected("the stream is big-endian: send it little-endian")
        if kind == _DICTIONARY and header is not None:
            if header.number(2, "<B"):
                raise FileRejected("the stream has delta dictionaries: send each dictionary whole")
            header = header.table(1)
        if kind in (_DICTIONARY, _BATCH):
            if header is None:
                raise FileRejected("a message of the stream has no record batch")
            size += _declared_bytes(header, message.body)
            check_size(size, limits)


def _declared_bytes(batch: _Table, body: Any) -> int:
    """The decompressed size that the buffers declare: Arrow allocates that much and no more. At least one byte for each
    value, for types that have no buffers."""
    data, compressed, size = memoryview(body if body is not None else b""), batch.table(3) is not None, 0
    for offset, length in batch.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(data):
            raise FileRejected("a buffer of the stream lies outside of its message")
        if compressed and length:
            (declared,) = struct.unpack_from("<q", data[offset : offset + length])
            length = length - 8 if declared == -1 else declared
            if length < 0:
                raise FileRejected("a buffer of the stream declares a negative size")
        size += length
    values = [length for length, _ in batch.pairs(1)]
    if min(values, default=0) < 0 or batch.number(0, "<q") < 0:
        raise FileRejected("an array of the stream declares a negative length")
    return max(size, sum(values), batch.number(0, "<q"))
