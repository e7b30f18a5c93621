"""Finds the rows that a write touches, by key or by filter.

Opens a file only if neither its partition nor its column bounds rule it out, and reads only the columns compared.
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
from pyiceberg.expressions.visitors import (
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
)
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from catalog.core.errors import Invalid
from catalog.iceberg import (
    FileReader,
    InclusiveMetricsEvaluator,
    LiveFile,
    Positions,
    RowMask,
    StrictMetricsEvaluator,
    cast_column,
    project_schema,
)
from catalog.tables.filters import sql_filter
from catalog.tables.glue_store import TableVersion
from catalog.tables.partitions import split

TABLE_BYTES_PER_ROW = 6
"""How many bytes numpy's lookup table for `isin` may take for each key and row."""


@dataclass(frozen=True)
class MatchedRows:
    """The live rows of one file that a write touches. `alive` marks the rows that were not deleted before it."""

    live: LiveFile
    positions: Positions
    alive: RowMask

    @property
    def is_whole_file(self) -> bool:
        """Whether the write touches every live row."""
        return len(self.positions) == int(self.alive.sum())


class RowMatcher(Protocol):
    """Which rows match. `may_hold` and `holds_all` decide by metadata: `may_hold` is never falsely False, `holds_all`
    never falsely True."""

    @property
    def columns(self) -> Sequence[str]: ...

    def may_hold(self, file: DataFile) -> bool: ...

    def holds_all(self, file: DataFile) -> bool: ...

    def positions(self, rows: pa.Table) -> Positions: ...


def match_rows(
    matcher: RowMatcher, version: TableVersion, reader: FileReader, files: Iterable[LiveFile]
) -> Iterator[MatchedRows]:
    """The matching rows of each file that has at least one. Memory: the compared columns of one file."""
    schema = project_schema(version.schema, matcher.columns)
    for live in files:
        if not matcher.may_hold(live.file):
            continue
        alive = reader.alive(live)
        if matcher.holds_all(live.file):
            positions = np.flatnonzero(alive)
        else:
            positions = matcher.positions(reader.read(live.file, schema))
            positions = positions[alive[positions]]
        if len(positions):
            yield MatchedRows(live, positions, alive)


class KeyMatcher:
    """Matches rows whose key is among those of `rows`."""

    def __init__(self, version: TableVersion, rows: pa.Table, key: Sequence[str]) -> None:
        self.columns = tuple(key)
        self._keys = rows.select(list(key)).combine_chunks()
        self._schema = version.schema
        self._fields = [self._schema.find_field(name) for name in key]
        self._sorted = [_sorted_values(self._keys[name]) for name in key]
        self._partitions = _partitions_of(version, self._keys, {field.field_id for field in self._fields})

    def may_hold(self, file: DataFile) -> bool:
        partitions = self._partitions.get(file.spec_id)
        if partitions is not None and file.partition not in partitions:
            return False
        return all(self._in_bounds(file, number) for number in range(len(self._fields)))

    def holds_all(self, file: DataFile) -> bool:
        return False

    def positions(self, rows: pa.Table) -> Positions:
        columns = [cast_column(rows[name], self._keys[name].type) for name in self.columns]
        if len(columns) == 1 and (dense := self._dense_keys(columns[0])) is not None:
            return np.flatnonzero(np.isin(columns[0].to_numpy(), dense, kind="table"))
        if len(columns) == 1:
            mask = pc.is_in(columns[0], value_set=self._keys[self.columns[0]].combine_chunks())
            return np.flatnonzero(mask.to_numpy())
        stored = pa.table([*columns, pa.array(np.arange(rows.num_rows))], names=[*self.columns, "__pos"])
        matches = stored.join(self._keys, keys=list(self.columns), join_type="left semi")
        return np.sort(matches["__pos"].to_numpy())

    def _dense_keys(self, stored: Any) -> np.ndarray[Any, Any] | None:
        """The keys, if they are integers so close together that a lookup table over their range is faster than hashing,
        as consecutive ids are."""
        keys = self._sorted[0]
        if not pa.types.is_integer(stored.type) or stored.null_count:
            return None
        if keys is None or not len(keys) or keys.dtype.kind != "i":  # with a null among them numpy has floats
            return None
        span = int(keys[-1]) - int(keys[0])
        return keys if span <= TABLE_BYTES_PER_ROW * (len(keys) + len(stored)) else None

    def _in_bounds(self, file: DataFile, number: int) -> bool:
        """Whether a key lies between the file's bounds of one key column; True if it has none.

        Text bounds may be truncated, but then the upper one is rounded up.
        """
        field, keys = self._fields[number], self._sorted[number]
        lower = (file.lower_bounds or {}).get(field.field_id)
        upper = (file.upper_bounds or {}).get(field.field_id)
        if lower is None or upper is None or keys is None or not isinstance(field.field_type, PrimitiveType):
            return True
        low, high = (_comparable(from_bytes(field.field_type, bound)) for bound in (lower, upper))
        first = int(np.searchsorted(keys, low, side="left"))
        return first < len(keys) and bool(keys[first] <= high)


def _sorted_values(column: Any) -> np.ndarray[Any, Any] | None:
    """The column's values in Iceberg's order and representation; None for types whose bounds are not compared."""
    kind = column.type
    if pa.types.is_integer(kind):
        return np.sort(column.to_numpy())
    if pa.types.is_date(kind):
        return np.sort(column.cast(pa.int32()).to_numpy())
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return np.sort(column.cast(pa.int64()).to_numpy())
    distinct: Any = pc.unique(column)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Iceberg orders text by its UTF-8 bytes.
        return np.sort(np.array([value.encode() for value in distinct.to_pylist()], dtype=object))
    if pa.types.is_decimal(kind):
        return np.sort(np.array(distinct.to_pylist(), dtype=object))
    return None


def _comparable(bound: Any) -> Any:
    return bound.encode() if isinstance(bound, str) else bound


def _partitions_of(version: TableVersion, keys: pa.Table, key_ids: set[int]) -> dict[int, set[Any]]:
    """Spec id -> the partitions that the keys can be in. Only for specs of key columns alone: an upsert may change a
    row's other columns, so the old row can be in another partition.
    """
    partitions = {}
    for spec_id, spec in version.metadata.specs().items():
        if not spec.is_unpartitioned() and all(field.source_id in key_ids for field in spec.fields):
            parts = split(keys, version.schema, spec)
            partitions[spec_id] = {partition.partition for partition, _ in parts if partition is not None}
    return partitions


class FilterMatcher:
    """Matches rows for which a filter is true (`region = 'eu' and day < '2024-01-01'`, or a pyiceberg expression)."""

    def __init__(self, version: TableVersion, where: str | BooleanExpression) -> None:
        self._schema, self._specs = version.schema, version.metadata.specs()
        expression = sql_filter(where, version.schema, version.name)
        try:
            self._bound = bind(self._schema, expression, case_sensitive=True)
        except (ValueError, TypeError) as error:
            raise Invalid(f"{version.name}: cannot filter by {where}: {error}", subject=version.name) from None
        self._unbound = self.expression = expression
        self._inclusive = InclusiveMetricsEvaluator(self._schema, expression)
        self._strict = StrictMetricsEvaluator(self._schema, expression)
        columns = {self._top_level(field_id) for field_id in extract_field_ids(self._bound)}
        self.columns = tuple(sorted(columns)) or (self._schema.columns[0].name,)

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

    def _top_level(self, field_id: int) -> str:
        return (self._schema.find_column_name(field_id) or "").split(".")[0]
