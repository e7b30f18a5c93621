"""A bound table as Spark has to read it: at its snapshot, under the schema the query's cut states, found by field id.

Spark reads a snapshot under the schema it was written with. Columns renamed, dropped or added since, without a commit
of rows, are put right here; so the names in a query mean the same in both engines.
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

from catalog.errors import Invalid
from catalog.query.relations import Relation

CATALOG = "lake"
"""What the jobs' session calls the Glue catalog (spark_jobs.session.CATALOG)."""

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
    """`view`: the name the query's text has for it. `columns`: name -> type, in order, in Spark's words."""

    view: str
    table: str
    snapshot_id: int | None
    columns: dict[str, str]
    sql: str


def spark_relation(relation: Relation, view: str) -> SparkRelation:
    """Invalid if Spark cannot read what the table holds."""
    columns = {field.name: _type(field.field_type, field.name, relation.name) for field in relation.schema.fields}
    return SparkRelation(view, relation.name, relation.snapshot_id, columns, _sql(relation, columns))


def _sql(relation: Relation, columns: dict[str, str]) -> str:
    if relation.snapshot_id is None:
        shown = [f"CAST(NULL AS {kind}) AS {ticked(name)}" for name, kind in columns.items()]
        return f"SELECT {', '.join(shown)} WHERE false"
    written = {field.field_id: field for field in _written_schema(relation).fields}
    shown = [_column(field, written.get(field.field_id), relation.name) for field in relation.schema.fields]
    place = ".".join(map(ticked, (CATALOG, *relation.name.split("."))))
    return f"SELECT {', '.join(shown)} FROM {place} VERSION AS OF {relation.snapshot_id}"  # noqa: S608


def _written_schema(relation: Relation) -> Schema:
    metadata = relation.metadata
    snapshot = metadata.snapshot_by_id(relation.snapshot_id) if relation.snapshot_id is not None else None
    schema_id = snapshot.schema_id if snapshot is not None else None
    wanted = metadata.current_schema_id if schema_id is None else schema_id
    return next(schema for schema in metadata.schemas if schema.schema_id == wanted)


def _column(field: NestedField, written: NestedField | None, table: str) -> str:
    kind = _type(field.field_type, field.name, table)
    if written is None:
        return f"CAST(NULL AS {kind}) AS {ticked(field.name)}"
    value = ticked(written.name)
    if isinstance(field.field_type, UUIDType):  # text to Spark, its 16 bytes to everybody else
        value = f"unhex(replace({value}, '-', ''))"
    elif field.field_type != written.field_type:
        if not field.field_type.is_primitive:
            raise Invalid(
                f"{table}.{field.name} changed inside since its last rows were written, and Spark would read it as it "
                "was: query it after the next commit of rows",
                subject=table,
            )
        value = f"CAST({value} AS {kind})"
    return f"{value} AS {ticked(field.name)}"


def _type(kind: IcebergType, name: str, table: str, *, nested: bool = False) -> str:
    if isinstance(kind, UUIDType) and not nested:
        return "BINARY"
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, ListType):
        return f"ARRAY<{_type(kind.element_type, name, table, nested=True)}>"
    if isinstance(kind, MapType):
        key, value = (_type(part, name, table, nested=True) for part in (kind.key_type, kind.value_type))
        return f"MAP<{key}, {value}>"
    if isinstance(kind, StructType):
        parts = (f"{ticked(one.name)}: {_type(one.field_type, name, table, nested=True)}" for one in kind.fields)
        return f"STRUCT<{', '.join(parts)}>"
    found = _PRIMITIVES.get(type(kind))
    if found is None:
        raise Invalid(f"{table}.{name} is {kind}, which Spark does not read: the query cannot run there", subject=table)
    return found


def ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
