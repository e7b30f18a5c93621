"""The live files of a snapshot and their statistics as one array per column, so that pruning ten thousand files takes a
few array comparisons. Immutable, as the snapshot is: cached and shared between queries.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from catalog.iceberg import LiveFile
from catalog.query.plan import predicates
from catalog.query.plan.predicates import And, Bounds, Compare, In, Mask, Predicate, Verdict, comparable

_INTEGERS = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)


class FileStatistics:
    """The live files of one snapshot, in a fixed order."""

    def __init__(self, files: Sequence[LiveFile], manifests: int, specs: dict[int, PartitionSpec]) -> None:
        self.files = tuple(files)
        self.manifests = manifests
        self.specs = specs
        self.rows = np.array([live.file.record_count for live in files], dtype=np.int64)
        self.sizes = np.array([live.file.file_size_in_bytes for live in files], dtype=np.int64)
        self.has_deletes = np.array([bool(live.own or live.shared) for live in files], dtype=bool)
        """Which files have position deletes that apply to them."""
        self._bounds: dict[tuple[int, str], Bounds | None] = {}
        self._identity_positions: dict[tuple[int, int], int | None] = {}

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def all_parquet(self) -> bool:
        return all(live.file.file_format == FileFormat.PARQUET for live in self.files)

    def evaluate(self, predicate: Predicate | None, schema: Schema) -> Verdict:
        """For each file: whether some row might match the predicate, and whether all rows must."""
        count = len(self.files)
        if predicate is None:
            return Verdict(np.ones(count, bool), np.ones(count, bool))
        fields = {field.name: field for field in schema.fields}
        verdict = predicates.evaluate(
            predicate, lambda name: self.bounds(fields[name]) if name in fields else None, count
        )
        verdict.might_match &= self._might_match_partition(predicate, fields)
        return verdict

    def bounds(self, field: NestedField) -> Bounds | None:
        """A column's bounds over all files, decoded at first use; None for a type without bounds."""
        key = (field.field_id, str(field.field_type))
        if key not in self._bounds:
            self._bounds[key] = self._decode(field)
        return self._bounds[key]

    def column_bytes(self, fields: Sequence[NestedField], files: Mask) -> int:
        """The stored bytes of these columns in these files; a whole file's size if its manifest has no column sizes."""
        total = 0
        for number in np.flatnonzero(files):
            file = self.files[number].file
            sizes = file.column_sizes or {}
            field_sizes = [sizes.get(field.field_id) for field in fields]
            if sizes and any(size is not None for size in field_sizes):
                total += sum(size or 0 for size in field_sizes)
            else:
                total += file.file_size_in_bytes
        return total

    def _decode(self, field: NestedField) -> Bounds | None:
        decode = _decoder(field.field_type)
        if decode is None:
            return None
        untruncated = not isinstance(field.field_type, StringType | BinaryType)
        lower, upper, known, nulls, nans, exact = [], [], [], [], [], []
        for live in self.files:
            file = live.file
            low = (file.lower_bounds or {}).get(field.field_id)
            high = (file.upper_bounds or {}).get(field.field_id)
            position = self._identity_position(file.spec_id, field.field_id)
            value = None if position is None else _partition_bound(file.partition[position])
            if value is not None:  # every row of the file has this value
                lower.append(value)
                upper.append(value)
                has_bounds = True
            else:
                has_bounds = low is not None and high is not None
                lower.append(decode(low) if has_bounds else None)
                upper.append(decode(high) if has_bounds else None)
            known.append(has_bounds)
            exact.append(untruncated or value is not None)
            nulls.append(0 if value is not None else (file.null_value_counts or {}).get(field.field_id, -1))
            nans.append((file.nan_value_counts or {}).get(field.field_id, -1))
        floats = isinstance(field.field_type, FloatType | DoubleType)
        return Bounds(
            *_arrays(field.field_type, lower, upper),
            np.array(known, dtype=bool),
            np.array(nulls, dtype=np.int64),
            np.array(nans, dtype=np.int64) if floats else None,
            self.rows,
            np.array(exact, dtype=bool),
        )

    def _identity_position(self, spec_id: int, field_id: int) -> int | None:
        """The position in the spec's partition tuple of the column's identity transform; None if the spec has none."""
        if (spec_id, field_id) not in self._identity_positions:
            fields = self.specs[spec_id].fields
            positions = (
                position
                for position, partition in enumerate(fields)
                if partition.source_id == field_id and isinstance(partition.transform, IdentityTransform)
            )
            self._identity_positions[spec_id, field_id] = next(positions, None)
        return self._identity_positions[spec_id, field_id]

    def _might_match_partition(self, predicate: Predicate, fields: dict[str, NestedField]) -> Mask:
        """Prunes by partition where bounds cannot: buckets, and identity partitions of files without statistics."""
        might_match = np.ones(len(self.files), bool)
        for condition in predicate.parts if isinstance(predicate, And) else (predicate,):
            if not isinstance(condition, In) and not (isinstance(condition, Compare) and condition.op == "="):
                continue
            field = fields.get(condition.column)
            if field is None:
                continue
            values = [
                comparable(value) for value in (condition.values if isinstance(condition, In) else (condition.value,))
            ]
            if any(value is None for value in values):
                continue
            literals = [value.decode() if isinstance(field.field_type, StringType) else value for value in values]
            for spec_id, spec in self.specs.items():
                for position, partition in enumerate(spec.fields):
                    if partition.source_id == field.field_id and isinstance(
                        partition.transform, BucketTransform | IdentityTransform
                    ):
                        transform: Any = partition.transform.transform(field.field_type)
                        allowed = {transform(value) for value in literals}
                        might_match &= self._partition_in(spec_id, position, allowed)
        return might_match

    def _partition_in(self, spec_id: int, position: int, allowed: set[Any]) -> Mask:
        return np.array(
            [live.file.spec_id != spec_id or live.file.partition[position] in allowed for live in self.files],
            dtype=bool,
        )


def _partition_bound(value: Any) -> Any:
    """An identity partition's value in the form of a bound. None for floats, which need a NaN count."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, int | Decimal | bytes) else None


def _arrays(type_: IcebergType, lower: list[Any], upper: list[Any]) -> tuple[Any, Any]:
    if isinstance(type_, _INTEGERS):
        integers = [np.array([value or 0 for value in side], dtype=np.int64) for side in (lower, upper)]
        return integers[0], integers[1]
    if isinstance(type_, FloatType | DoubleType):
        floats = [np.array([value or 0.0 for value in side], dtype=np.float64) for side in (lower, upper)]
        return floats[0], floats[1]
    arrays = []
    for side in (lower, upper):
        array = np.empty(len(side), dtype=object)
        array[:] = side
        arrays.append(array)
    return arrays[0], arrays[1]


def _decoder(type_: IcebergType) -> Any:
    """Decodes Iceberg's single-value serialization. Bounds from before a type promotion are shorter."""
    if isinstance(type_, _INTEGERS):
        return lambda data: int.from_bytes(data, "little", signed=True)
    if isinstance(type_, FloatType | DoubleType):
        return lambda data: struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    if isinstance(type_, DecimalType):
        scale = type_.scale
        return lambda data: Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale)
    if isinstance(type_, StringType | BinaryType):
        return bytes
    return (lambda data: data != b"\x00") if isinstance(type_, BooleanType) else None
