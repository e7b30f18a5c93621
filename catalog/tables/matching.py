"""Which rows a write touches: by key or by filter. Metadata first, then only the columns the question needs.

A file is opened only if neither its partition nor the bounds of its columns rule it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
)
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from catalog.errors import Invalid
from catalog.tables.live import FileReader, LiveFile, Positions, column_like, schema_of
from catalog.tables.partitions import split
from catalog.tables.versions import Version

_ALL = slice(None)
CLOSE = 6
"""Bytes that finding keys by a table may take for each key and row."""


@dataclass(frozen=True)
class Touched:
    """The live rows of one file that a write touches. `alive` marks the rows not deleted before."""

    live: LiveFile
    positions: Positions
    alive: np.ndarray[Any, np.dtype[np.bool_]]

    @property
    def whole(self) -> bool:
        return len(self.positions) == int(self.alive.sum())


class Question(Protocol):
    """What rows are asked for. `may_hold` answers from metadata and may say yes too often, never no."""

    @property
    def columns(self) -> Sequence[str]: ...

    def may_hold(self, file: DataFile) -> bool: ...

    def holds_all(self, file: DataFile) -> bool: ...

    def positions(self, rows: pa.Table) -> Positions: ...


def touched(question: Question, version: Version, reader: FileReader, files: Iterable[LiveFile]) -> Iterator[Touched]:
    """Each file with at least one live row in question, one file at a time."""
    schema = schema_of(version.schema, question.columns)
    for live in files:
        if not question.may_hold(live.file):
            continue
        alive = reader.alive(live)
        if question.holds_all(live.file):
            found = np.flatnonzero(alive)
        else:
            found = question.positions(reader.read(live.file, schema))
            found = found[alive[found]]
        if len(found):
            yield Touched(live, found, alive)


class KeyQuestion:
    """Rows whose key is among the given ones."""

    def __init__(self, version: Version, rows: pa.Table, key: Sequence[str]) -> None:
        self.columns = tuple(key)
        self._keys = rows.select(list(key)).combine_chunks()
        self._schema = version.schema
        self._fields = [self._schema.find_field(name) for name in key]
        self._sorted = [_ordered(self._keys[name]) for name in key]
        self._partitions = _partitions_of(version, self._keys, {field.field_id for field in self._fields})

    def may_hold(self, file: DataFile) -> bool:
        partitions = self._partitions.get(file.spec_id)
        if partitions is not None and file.partition not in partitions:
            return False
        return all(self._in_bounds(file, number) for number in range(len(self._fields)))

    def holds_all(self, file: DataFile) -> bool:
        return False

    def positions(self, rows: pa.Table) -> Positions:
        columns = [column_like(rows[name], self._keys[name].type) for name in self.columns]
        if len(columns) == 1 and (close := self._close(columns[0])) is not None:
            return np.flatnonzero(np.isin(columns[0].to_numpy(), close, kind="table"))
        if len(columns) == 1:
            mask = pc.is_in(columns[0], value_set=self._keys[self.columns[0]].combine_chunks())
            return np.flatnonzero(mask.to_numpy())
        stored = pa.table([*columns, pa.array(np.arange(rows.num_rows))], names=[*self.columns, "__pos"])
        found = stored.join(self._keys, keys=list(self.columns), join_type="left semi")
        return np.sort(found["__pos"].to_numpy())

    def _close(self, stored: Any) -> np.ndarray[Any, Any] | None:
        """The keys, if they are integers so close together that a table of all between them is quicker than hashing,
        as numbers that were counted up are."""
        keys = self._sorted[0]
        if not pa.types.is_integer(stored.type) or stored.null_count:
            return None
        if keys is None or not len(keys) or keys.dtype.kind != "i":  # a null among them has made them floats
            return None
        between = int(keys[-1]) - int(keys[0])
        return keys if between <= CLOSE * (len(keys) + len(stored)) else None

    def _in_bounds(self, file: DataFile, number: int) -> bool:
        """Whether any key lies between the file's bounds of one key column; unknown bounds rule nothing out.

        Bounds of text may be cut short, but then the lower one is cut and the upper one rounded up.
        """
        field, keys = self._fields[number], self._sorted[number]
        lower = (file.lower_bounds or {}).get(field.field_id)
        upper = (file.upper_bounds or {}).get(field.field_id)
        if lower is None or upper is None or keys is None or not isinstance(field.field_type, PrimitiveType):
            return True
        low, high = (_comparable(from_bytes(field.field_type, bound)) for bound in (lower, upper))
        first = int(np.searchsorted(keys, low, side="left"))
        return first < len(keys) and bool(keys[first] <= high)


def _ordered(column: Any) -> np.ndarray[Any, Any] | None:
    """The column's values in Iceberg's order and form; None for types whose bounds are not worth it."""
    kind = column.type
    if pa.types.is_integer(kind):
        return np.sort(column.to_numpy())
    if pa.types.is_date(kind):
        return np.sort(column.cast(pa.int32()).to_numpy())
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return np.sort(column.cast(pa.int64()).to_numpy())
    distinct: Any = pc.unique(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # By UTF-8 bytes, as Iceberg compares, not by Python's code points.
        return np.sort(np.array([value.encode() for value in distinct.to_pylist()], dtype=object))
    if pa.types.is_decimal(kind):
        return np.sort(np.array(distinct.to_pylist(), dtype=object))
    return None


def _comparable(bound: Any) -> Any:
    return bound.encode() if isinstance(bound, str) else bound


def _partitions_of(version: Version, keys: pa.Table, key_ids: set[int]) -> dict[int, set[Any]]:
    """Spec id -> the partitions the keys can be in; only for specs made of key columns alone, because a row's
    other columns may have changed and its old self lie in another partition.
    """
    found = {}
    for spec_id, spec in version.metadata.specs().items():
        if not spec.is_unpartitioned() and all(field.source_id in key_ids for field in spec.fields):
            parts = split(keys, version.schema, spec)
            found[spec_id] = {partition.partition for partition, _ in parts if partition is not None}
    return found


class FilterQuestion:
    """Rows for which a filter is true (`region = 'eu' and day < '2024-01-01'`, or a pyiceberg expression)."""

    def __init__(self, version: Version, where: str | BooleanExpression) -> None:
        self._schema, self._specs = version.schema, version.metadata.specs()
        expression = parse_filter(where, version.name)
        try:
            self._bound = bind(self._schema, expression, case_sensitive=True)
        except (ValueError, TypeError) as error:
            raise Invalid(f"{version.name}: cannot filter by {where}: {error}", subject=version.name) from None
        self._unbound = expression
        self._inclusive = _InclusiveMetricsEvaluator(self._schema, expression)
        self._strict = _StrictMetricsEvaluator(self._schema, expression)
        tops = {self._top(field_id) for field_id in extract_field_ids(self._bound)}
        self.columns = tuple(sorted(tops)) or (self._schema.columns[0].name,)

    def may_hold(self, file: DataFile) -> bool:
        return self._partition_may_hold(file) and bool(self._inclusive.eval(file))

    def holds_all(self, file: DataFile) -> bool:
        return bool(self._strict.eval(file))

    def positions(self, rows: pa.Table) -> Positions:
        if isinstance(self._bound, AlwaysTrue):
            return np.arange(rows.num_rows)
        numbered = rows.append_column("__pos", pa.array(np.arange(rows.num_rows)))
        return numbered.filter(expression_to_pyarrow(self._bound, self._schema))["__pos"].to_numpy()

    def _partition_may_hold(self, file: DataFile) -> bool:
        spec = self._specs[file.spec_id]
        if spec.is_unpartitioned():
            return True
        projected = inclusive_projection(self._schema, spec)(self._unbound)
        partition = Schema(*spec.partition_type(self._schema).fields)
        return bool(expression_evaluator(partition, projected, case_sensitive=True)(file.partition))

    def _top(self, field_id: int) -> str:
        return (self._schema.find_column_name(field_id) or "").split(".")[0]


def parse_filter(where: str | BooleanExpression, table: str) -> BooleanExpression:
    if isinstance(where, BooleanExpression):
        return where
    try:
        return parse(where)
    except Exception as error:  # pyparsing has its own tree of errors
        raise Invalid(f"{table}: cannot read the filter {where!r}: {error}", subject=table) from None
