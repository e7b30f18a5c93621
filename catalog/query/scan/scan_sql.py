"""The SQL that reads a table at a snapshot in DuckDB: one `read_parquet` for each group of files of one schema.

Columns are matched by field id, never by name: a renamed column is the same column, a name dropped and added again is
another one, a promoted column is widened, and a column added after the file was written is NULL. Rows with position
deletes are left out by their row numbers. Files that DuckDB cannot read so (ORC, nested columns that evolved) are read
as Arrow by `RelationReader`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.core.errors import Invalid
from catalog.iceberg import LiveFile, file_schema, select_stored, stored_names
from catalog.query.run.engine import Session, quote_identifier, quote_text
from catalog.query.scan.lake_files import LakeObject, QueryFiles
from catalog.query.scan.relations import Relation, engine_type
from catalog.query.scan.schema_cache import cache_by_schema

_TYPES: dict[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMP WITH TIME ZONE",
    TimestampNanoType: "TIMESTAMP_NS",
    TimestamptzNanoType: "TIMESTAMP WITH TIME ZONE",
    StringType: "VARCHAR",
    UUIDType: "UUID",
    BinaryType: "BLOB",
    FixedType: "BLOB",
}
_ROW_NUMBERS = frozenset({"file_index", "file_row_number"})
"""DuckDB's own columns of a file, by which deletes are found: a file with such columns is read as Arrow."""
FILE, ROW = "strandline_file", "strandline_row"
"""The columns of a row's address: the path of its data file, and its position there, counted from 0."""


def engine_type_name(type_: IcebergType) -> str:
    """The DuckDB type of an Iceberg type."""
    if isinstance(type_, DecimalType):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if isinstance(type_, ListType):
        return f"{engine_type_name(type_.element_type)}[]"
    if isinstance(type_, MapType):
        return f"MAP({engine_type_name(type_.key_type)}, {engine_type_name(type_.value_type)})"
    if isinstance(type_, StructType):
        parts = (f"{quote_identifier(part.name)} {engine_type_name(part.field_type)}" for part in type_.fields)
        return f"STRUCT({', '.join(parts)})"
    name = _TYPES.get(type(type_))
    if name is None:
        raise Invalid(f"a column of type {type_} cannot be queried")
    return name


@cache_by_schema
def empty_relation_sql(schema: Schema) -> str:
    """A SELECT with the schema's columns and no rows: says all that DuckDB needs of a table to bind a statement."""
    return f"SELECT {', '.join(_null(field_) for field_ in schema.fields)} WHERE false"


def addressed_relation_sql(schema: Schema) -> str:
    """The same with the columns of a row's address."""
    address = f"CAST(NULL AS VARCHAR) AS {FILE}, CAST(NULL AS BIGINT) AS {ROW}"
    return f"SELECT *, {address} FROM ({empty_relation_sql(schema)})"  # noqa: S608


def check_names(relation: Relation) -> None:
    """Invalid for a table whose columns DuckDB cannot tell apart: it compares names without case."""
    seen: dict[str, str] = {}
    for field_ in relation.schema.fields:
        other = seen.setdefault(field_.name.lower(), field_.name)
        if other != field_.name:
            raise Invalid(
                f"columns {other} and {field_.name} of {relation.name} differ only in case: rename one of them",
                subject=relation.name,
            )


@dataclass
class _Group:
    """Files that are read by one `read_parquet`: `items` is its select list. `paths`: if rows have addresses."""

    items: tuple[str, ...]
    paths: list[str] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)
    deleted: list[np.ndarray] = field(default_factory=list)


@dataclass(frozen=True)
class ScanBuilder:
    """Builds the SQL of one relation's scan.

    `open`: an object and its Arrow schema. `deleted`: the deleted positions of a file. `read`: the rows of files that
    DuckDB does not read itself, as Arrow.
    """

    session: Session
    files: QueryFiles
    pool: ThreadPoolExecutor
    open: Callable[[LiveFile], tuple[LakeObject, pa.Schema]]
    deleted: Callable[[LiveFile], np.ndarray]
    read: Callable[[Sequence[LiveFile]], pa.Table]

    def sql(self, relation: Relation, live_files: Sequence[LiveFile], *, addressed: bool = False) -> str:
        """A SELECT with all of the relation's columns, of which DuckDB reads those that the statement needs.

        `addressed`: and with ADDRESS_COLUMNS, the file and the position of each row."""
        parquet = [live for live in live_files if live.file.file_format == FileFormat.PARQUET]
        others = [live for live in live_files if live.file.file_format != FileFormat.PARQUET]
        opened = list(self.pool.map(self.open, parquet) if len(parquet) > 1 else map(self.open, parquet))
        groups: dict[tuple[tuple[str, ...], bool], _Group] = {}
        for live, (object_, physical) in zip(parquet, opened, strict=True):
            items = _items(relation, physical)
            has_deletes = bool(live.own or live.shared)
            numbered = has_deletes or addressed
            if items is None or (numbered and _ROW_NUMBERS & {name.lower() for name in physical.names}):
                others.append(live)
                continue
            group = groups.setdefault((items, has_deletes), _Group(items))
            group.urls.append(self.files.add(object_))
            if addressed:
                group.paths.append(live.file.file_path)
            if has_deletes:
                group.deleted.append(self.deleted(live))
        parts = [self._group_sql(group, number) for number, group in enumerate(groups.values())]
        if others and addressed:
            raise Invalid(
                f"{relation.name} has files whose rows have no addresses (ORC, or nested columns that were changed): "
                "compact it with `strandline table compact`, or change its rows with a Spark job",
                subject=relation.name,
            )
        if others:
            name = f"strandline_rows_{self.files.token}_{len(self.files)}"
            parts.append(registered_sql(relation, self.session.register(name, self.read(others))))
        return " UNION ALL ".join(parts) or (addressed_relation_sql if addressed else empty_relation_sql)(
            relation.schema
        )

    def _group_sql(self, group: _Group, number: int) -> str:
        urls = ", ".join(map(quote_text, group.urls))
        scan = f"read_parquet([{urls}], can_have_nan = true, hive_partitioning = false)"
        items = group.items
        if group.paths:
            paths = ", ".join(map(quote_text, group.paths))
            items = (
                *items,
                f"[{paths}][CAST(file_index AS BIGINT) + 1] AS {FILE}",
                f"CAST(file_row_number AS BIGINT) AS {ROW}",
            )
        select = f"SELECT {', '.join(items)} FROM {scan}"  # noqa: S608
        if not group.deleted:
            return select
        rows = pa.table(
            {
                "strandline_file": pa.array(
                    np.repeat(np.arange(len(group.deleted), dtype=np.uint64), [len(part) for part in group.deleted])
                ),
                "strandline_row": pa.array(np.concatenate(group.deleted)),
            }
        )
        deletes = self.session.register(f"strandline_deletes_{self.files.token}_{len(self.files)}_{number}", rows)
        return (
            f"{select} AS strandline_scan ANTI JOIN {deletes} AS strandline_deletes ON strandline_scan.file_index = "
            "strandline_deletes.strandline_file AND strandline_scan.file_row_number = strandline_deletes.strandline_row"
        )


def registered_sql(relation: Relation, name: str) -> str:
    """A SELECT of the relation's columns from Arrow rows that were registered under this name."""
    items = []
    for field_ in relation.schema.fields:
        column = quote_identifier(field_.name)
        value = f"CAST(lower(hex({column})) AS UUID)" if isinstance(field_.field_type, UUIDType) else column
        items.append(f"CAST({value} AS {engine_type_name(field_.field_type)}) AS {column}")
    return f"SELECT {', '.join(items)} FROM {name}"  # noqa: S608


def _items(relation: Relation, physical: pa.Schema) -> tuple[str, ...] | None:
    """The select list that gives a file's columns the relation's names and types; None if SQL cannot do that."""
    if len({name.lower() for name in physical.names}) != len(physical.names):
        return None
    names = stored_names(physical, relation.metadata)
    items = []
    for wanted in relation.schema.fields:
        stored = names.get(wanted.field_id)
        item = _null(wanted) if stored is None else _item(relation, wanted, stored, physical)
        if item is None:
            return None
        items.append(item)
    return tuple(items)


def _item(relation: Relation, wanted: NestedField, stored: str, physical: pa.Schema) -> str | None:
    column, alias = quote_identifier(stored), quote_identifier(wanted.name)
    type_ = physical.field(stored).type
    if isinstance(wanted.field_type, UUIDType):
        return f"{column} AS {alias}" if isinstance(type_, pa.BaseExtensionType) else None
    if isinstance(wanted.field_type, PrimitiveType):
        if engine_type(type_) == relation.arrow.field(wanted.name).type:
            return f"{column} AS {alias}"
        return f"CAST({column} AS {engine_type_name(wanted.field_type)}) AS {alias}"
    requested = Schema(wanted, schema_id=relation.schema.schema_id)
    part = select_stored(file_schema(pa.schema([physical.field(stored)]), relation.metadata), requested)
    same = len(part.fields) == 1 and _is_same(part.fields[0].field_type, wanted.field_type)
    return f"{column} AS {alias}" if same else None


def _is_same(stored: IcebergType, wanted: IcebergType) -> bool:
    """Whether a file has a nested column as the table has it now: the same fields, ids and names, in the same order."""
    if isinstance(stored, StructType) and isinstance(wanted, StructType):
        return len(stored.fields) == len(wanted.fields) and all(
            one.field_id == two.field_id and one.name == two.name and _is_same(one.field_type, two.field_type)
            for one, two in zip(stored.fields, wanted.fields, strict=True)
        )
    if isinstance(stored, ListType) and isinstance(wanted, ListType):
        return stored.element_id == wanted.element_id and _is_same(stored.element_type, wanted.element_type)
    if isinstance(stored, MapType) and isinstance(wanted, MapType):
        return (
            (stored.key_id, stored.value_id) == (wanted.key_id, wanted.value_id)
            and _is_same(stored.key_type, wanted.key_type)
            and _is_same(stored.value_type, wanted.value_type)
        )
    return stored == wanted


def _null(field_: NestedField) -> str:
    return f"CAST(NULL AS {engine_type_name(field_.field_type)}) AS {quote_identifier(field_.name)}"
