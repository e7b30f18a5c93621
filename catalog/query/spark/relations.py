"""The Spark SQL that reads a bound table: at its snapshot, with the schema at the query's cut, matched by field id.

Spark reads a snapshot with the schema it was written with. Columns that were renamed, dropped or added later, without a
new snapshot, are corrected here; so a query's column names mean the same in both engines.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from catalog.core.errors import Invalid
from catalog.query.scan.relations import Relation

CATALOG = "lake"
"""The name of the Glue catalog in the jobs' Spark session (spark_jobs.session.CATALOG)."""

_PRIMITIVES: dict[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INT",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimestampType: "TIMESTAMP_NTZ",
    TimestamptzType: "TIMESTAMP",
    StringType: "STRING",
    BinaryType: "BINARY",
    FixedType: "BINARY",
}


@dataclass(frozen=True)
class SparkRelation:
    """`view`: its name in the translated query. `columns`: Spark types by name, in order. `sql`: reads the table."""

    view: str
    table: str
    snapshot_id: int | None
    columns: dict[str, str]
    sql: str


def spark_relation(relation: Relation, view: str) -> SparkRelation:
    """The table as Spark reads it. Invalid if Spark cannot read one of its types."""
    columns = {field.name: _spark_type(field.field_type, field.name, relation.name) for field in relation.schema.fields}
    return SparkRelation(view, relation.name, relation.snapshot_id, columns, _select(relation, columns))


def _select(relation: Relation, columns: dict[str, str]) -> str:
    if relation.snapshot_id is None:
        items = [f"CAST(NULL AS {kind}) AS {quote_with_backticks(name)}" for name, kind in columns.items()]
        return f"SELECT {', '.join(items)} WHERE false"
    written = {field.field_id: field for field in _written_schema(relation).fields}
    items = [_column(field, written.get(field.field_id), relation.name) for field in relation.schema.fields]
    table = ".".join(map(quote_with_backticks, (CATALOG, *relation.name.split("."))))
    return f"SELECT {', '.join(items)} FROM {table} VERSION AS OF {relation.snapshot_id}"  # noqa: S608


def _written_schema(relation: Relation) -> Schema:
    metadata = relation.metadata
    snapshot = metadata.snapshot_by_id(relation.snapshot_id) if relation.snapshot_id is not None else None
    schema_id = snapshot.schema_id if snapshot is not None else None
    if schema_id is None:
        schema_id = metadata.current_schema_id
    return next(schema for schema in metadata.schemas if schema.schema_id == schema_id)


def _column(field: NestedField, written: NestedField | None, table: str) -> str:
    kind = _spark_type(field.field_type, field.name, table)
    if written is None:
        return f"CAST(NULL AS {kind}) AS {quote_with_backticks(field.name)}"
    value = quote_with_backticks(written.name)
    if field.field_type != written.field_type:
        if not field.field_type.is_primitive:
            raise Invalid(
                f"{table}.{field.name} is nested and its type changed after the last rows were written, so Spark would "
                "read the old type: query it after the next commit of rows",
                subject=table,
            )
        value = f"CAST({value} AS {kind})"
    return f"{value} AS {quote_with_backticks(field.name)}"


def _spark_type(type_: IcebergType, name: str, table: str, *, nested: bool = False) -> str:
    if isinstance(type_, UUIDType) and not nested:
        return "STRING"
    if isinstance(type_, DecimalType):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if isinstance(type_, ListType):
        return f"ARRAY<{_spark_type(type_.element_type, name, table, nested=True)}>"
    if isinstance(type_, MapType):
        key, value = (_spark_type(part, name, table, nested=True) for part in (type_.key_type, type_.value_type))
        return f"MAP<{key}, {value}>"
    if isinstance(type_, StructType):
        parts = (
            f"{quote_with_backticks(field.name)}: {_spark_type(field.field_type, name, table, nested=True)}"
            for field in type_.fields
        )
        return f"STRUCT<{', '.join(parts)}>"
    primitive = _PRIMITIVES.get(type(type_))
    if primitive is None:
        raise Invalid(
            f"{table}.{name} is {type_}, which Spark cannot read: narrow the query so that it runs without Spark",
            subject=table,
        )
    return primitive


def quote_with_backticks(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
