"""Rows of a data file under a table's schema: columns are matched by field id, never by name or position.

So a renamed column is the same column, a promoted one is widened, and one that is younger than the file is null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.metadata import TableMetadata

from catalog.iceberg.pyiceberg_internals import project_batch

_FIELD_ID = b"PARQUET:field_id"


def file_schema(physical: pa.Schema, metadata: TableMetadata) -> Schema:
    """The Iceberg schema of a file, from its Arrow one. Files without field ids get the table's name mapping."""
    return pyarrow_to_schema(physical, metadata.name_mapping(), downcast_ns_timestamp_to_us=True, format_version=2)


def stored_names(physical: pa.Schema, metadata: TableMetadata) -> dict[int, str]:
    """Field id -> the name of the top-level column in the file."""
    names = {}
    for column in physical:
        stated = (column.metadata or {}).get(_FIELD_ID)
        if stated is not None:
            names[int(stated)] = column.name
    if names or not len(physical):
        return names
    fields = file_schema(physical, metadata).fields
    return {field.field_id: name for field, name in zip(fields, physical.names, strict=False)}


def select_stored(stored: Schema, schema: Schema) -> Schema:
    """The part of a file's schema that has the fields of `schema`; empty if the file is older than all of them."""
    return prune_columns(stored, schema.field_ids, select_full_types=True)


def project_rows(rows: pa.Table, stored: Schema, schema: Schema) -> pa.Table:
    """Rows with the columns of `stored`, as `schema` has them."""
    batches = [project_batch(schema, stored, batch, downcast_ns_timestamp_to_us=True) for batch in rows.to_batches()]
    if not batches:
        return schema_to_pyarrow(schema, include_field_ids=False).empty_table()
    return pa.concat_tables((pa.Table.from_batches([batch]) for batch in batches), promote_options="permissive")


def project_schema(schema: Schema, columns: Sequence[str]) -> Schema:
    """The schema's part for these top-level columns, in their order."""
    return Schema(*(schema.find_field(name) for name in columns), schema_id=schema.schema_id)


def cast_column(column: Any, kind: pa.DataType) -> Any:
    return column if column.type == kind else pc.cast(column, kind)
