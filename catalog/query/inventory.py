"""A snapshot's files and what their statistics say, column by column, so that pruning ten thousand files is a few
comparisons of arrays. Immutable as the snapshot is: kept and shared between queries.
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

from catalog.query.predicates import Both, Bounds, Compare, In, Mask, Predicate, Verdict, comparable, evaluate
from catalog.tables.live import LiveFile

_INTEGERS = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType)


class Inventory:
    """The live files of one snapshot, in a fixed order."""

    def __init__(self, files: Sequence[LiveFile], manifests: int, specs: dict[int, PartitionSpec]) -> None:
        self.files = tuple(files)
        self.manifests = manifests
        self.specs = specs
        self.rows = np.array([live.file.record_count for live in files], dtype=np.int64)
        self.sizes = np.array([live.file.file_size_in_bytes for live in files], dtype=np.int64)
        self.touched = np.array([bool(live.own or live.shared) for live in files], dtype=bool)
        """Which files have deletes pending."""
        self._bounds: dict[tuple[int, str], Bounds | None] = {}
        self._stating: dict[tuple[int, int], int | None] = {}

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def all_parquet(self) -> bool:
        return all(live.file.file_format == FileFormat.PARQUET for live in self.files)

    def judge(self, predicate: Predicate | None, schema: Schema) -> Verdict:
        """For each file: may a row of it satisfy the predicate, and do all?"""
        count = len(self.files)
        if predicate is None:
            return Verdict(np.ones(count, bool), np.ones(count, bool))
        fields = {field.name: field for field in schema.fields}
        verdict = evaluate(predicate, lambda name: self.bounds(fields[name]) if name in fields else None, count)
        verdict.may &= self._in_partition(predicate, fields)
        return verdict

    def bounds(self, field: NestedField) -> Bounds | None:
        """A column's bounds over all files, decoded at first use; None for a type that has none."""
        key = (field.field_id, str(field.field_type))
        if key not in self._bounds:
            self._bounds[key] = self._decode(field)
        return self._bounds[key]

    def width(self, fields: Sequence[NestedField], chosen: Mask) -> int:
        """The bytes of these columns in the chosen files, by the sizes the manifests state, else their share."""
        total = 0
        for at in np.flatnonzero(chosen):
            file = self.files[at].file
            sizes = file.column_sizes or {}
            stated = [sizes.get(field.field_id) for field in fields]
            if sizes and any(size is not None for size in stated):
                total += sum(size or 0 for size in stated)
            else:
                total += file.file_size_in_bytes
        return total

    def _decode(self, field: NestedField) -> Bounds | None:
        decode = _decoder(field.field_type)
        if decode is None:
            return None
        whole = not isinstance(field.field_type, StringType | BinaryType)
        lower, upper, known, nulls, nans, exact = [], [], [], [], [], []
        for live in self.files:
            file = live.file
            low = (file.lower_bounds or {}).get(field.field_id)
            high = (file.upper_bounds or {}).get(field.field_id)
            at = self._identity(file.spec_id, field.field_id)
            value = None if at is None else _stated(file.partition[at])
            if value is not None:  # all rows of the file have this very value
                lower.append(value)
                upper.append(value)
                found = True
            else:
                found = low is not None and high is not None
                lower.append(decode(low) if found else None)
                upper.append(decode(high) if found else None)
            known.append(found)
            exact.append(whole or value is not None)
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

    def _identity(self, spec_id: int, field_id: int) -> int | None:
        """Where the files of a partition spec state the column's value, if they do."""
        if (spec_id, field_id) not in self._stating:
            fields = self.specs[spec_id].fields
            places = (
                at
                for at, one in enumerate(fields)
                if one.source_id == field_id and isinstance(one.transform, IdentityTransform)
            )
            self._stating[spec_id, field_id] = next(places, None)
        return self._stating[spec_id, field_id]

    def _in_partition(self, predicate: Predicate, fields: dict[str, NestedField]) -> Mask:
        """What bounds cannot say: a bucket, or an identity partition of files without statistics."""
        inside = np.ones(len(self.files), bool)
        for part in predicate.parts if isinstance(predicate, Both) else (predicate,):
            if not isinstance(part, In) and not (isinstance(part, Compare) and part.op == "="):
                continue
            field = fields.get(part.column)
            if field is None:
                continue
            values = [comparable(value) for value in (part.values if isinstance(part, In) else (part.value,))]
            if any(value is None for value in values):
                continue
            wanted = [value.decode() if isinstance(field.field_type, StringType) else value for value in values]
            for spec_id, spec in self.specs.items():
                for position, partition in enumerate(spec.fields):
                    if partition.source_id == field.field_id and isinstance(
                        partition.transform, BucketTransform | IdentityTransform
                    ):
                        transform: Any = partition.transform.transform(field.field_type)
                        allowed = {transform(value) for value in wanted}
                        inside &= self._partitioned(spec_id, position, allowed)
        return inside

    def _partitioned(self, spec_id: int, position: int, allowed: set[Any]) -> Mask:
        return np.array(
            [live.file.spec_id != spec_id or live.file.partition[position] in allowed for live in self.files],
            dtype=bool,
        )


def _stated(value: Any) -> Any:
    """A partition's value as bounds have it; floats are left to the bounds, which know of NaN."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, int | Decimal | bytes) else None


def _arrays(kind: IcebergType, lower: list[Any], upper: list[Any]) -> tuple[Any, Any]:
    if isinstance(kind, _INTEGERS):
        whole = [np.array([value or 0 for value in side], dtype=np.int64) for side in (lower, upper)]
        return whole[0], whole[1]
    if isinstance(kind, FloatType | DoubleType):
        real = [np.array([value or 0.0 for value in side], dtype=np.float64) for side in (lower, upper)]
        return real[0], real[1]
    made = []
    for side in (lower, upper):
        array = np.empty(len(side), dtype=object)
        array[:] = side
        made.append(array)
    return made[0], made[1]


def _decoder(kind: IcebergType) -> Any:
    """From the specification's "Single-value serialization". A promoted column's old bounds are shorter."""
    if isinstance(kind, _INTEGERS):
        return lambda data: int.from_bytes(data, "little", signed=True)
    if isinstance(kind, FloatType | DoubleType):
        return lambda data: struct.unpack("<f" if len(data) == 4 else "<d", data)[0]
    if isinstance(kind, DecimalType):
        scale = kind.scale
        return lambda data: Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale)
    if isinstance(kind, StringType | BinaryType):
        return bytes
    return (lambda data: data != b"\x00") if isinstance(kind, BooleanType) else None
