"""Creates, lists and drops tables, and makes Iceberg schemas from what callers give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter, ValidationError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, PrimitiveType

from catalog.core.aws_errors import translate_aws_error, translate_aws_errors
from catalog.core.errors import Conflict, Invalid, NotFound
from catalog.iceberg import glue_table_input, listed_tables, schema_without_ids, stage_table
from catalog.tables.committer import Committer
from catalog.tables.glue_store import GlueTableStore, TableVersion, split_name
from catalog.tables.legal_hold import check_hold
from catalog.tables.partitions import make_order, make_spec
from catalog.tables.planner import KEY_PROPERTY, MODE_PROPERTY
from catalog.tables.write_modes import MODES, Mode

DEFAULTS = {
    "format-version": "2",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
}
# Iceberg's own write mode properties, so that Spark and Trino write in the table's mode.
_ICEBERG_MODES = {"cow": "copy-on-write", "mor": "merge-on-read", "hybrid": "merge-on-read"}
CLONE_TAG = "clone-"


def mode_properties(mode: str) -> dict[str, str]:
    if mode not in MODES:
        raise Invalid(f"{mode!r} is not a write mode: choose from {', '.join(MODES)}")
    operations = ("delete", "update", "merge")
    return {MODE_PROPERTY: mode, **{f"write.{operation}.mode": _ICEBERG_MODES[mode] for operation in operations}}


def create_table(
    committer: Committer,
    name: str,
    schema: Any,
    *,
    mode: Mode,
    key: Sequence[str],
    partition: Sequence[str],
    sort: Sequence[str],
    properties: Mapping[str, str] | None,
    uuid: UUID | None = None,
) -> Table:
    """Requests: GetDatabase, CreateDatabase if it is new, one PUT of metadata, CreateTable, and GetTable."""
    database, table = split_name(name)
    keyed = with_key(as_schema(schema), key)
    all_properties = {**DEFAULTS, **mode_properties(mode), **dict(properties or {})}
    if key:
        all_properties[KEY_PROPERTY] = ",".join(key)
    table_store = committer.table_store
    with translate_aws_errors(name):
        make_database(table_store.catalog, database)
        spec, order = make_spec(keyed, partition), make_order(keyed, sort)
        staged = stage_table(table_store.catalog, (database, table), keyed, spec, order, all_properties)
        metadata, location = staged.metadata, staged.metadata_location
        if uuid is not None:
            metadata = metadata.model_copy(update={"table_uuid": uuid})
        table_store.io.store.put(location, metadata.model_dump_json(exclude_none=True).encode())
    register(table_store, name, metadata, location)
    version = table_store.load(name)
    committer.announce(version, None, ())
    return table_store.table(version)


def register(table_store: GlueTableStore, name: str, metadata: Any, location: str) -> None:
    """Creates the table's entry in Glue; Conflict if the name belongs to a table with another uuid."""
    database, table = split_name(name)
    entry = glue_table_input(table, location, metadata.properties, metadata)
    try:
        table_store.catalog.glue.create_table(DatabaseName=database, TableInput=entry)
    except (ClientError, BotoCoreError) as error:
        # The name exists, or our own response was lost and the SDK sent the request again: the table's uuid tells.
        try:
            existing = table_store.load(name)
            if existing.metadata.table_uuid == metadata.table_uuid:
                if location not in {existing.location, *(log.metadata_file for log in existing.metadata.metadata_log)}:
                    table_store.io.store.delete([location])  # the table has the metadata file of an earlier call
                return
        except NotFound:
            raise translate_aws_error(error, name) from error
        table_store.io.store.delete([location])
        raise Conflict(f"{name} already exists: drop it first, or alter it", subject=name) from None


def list_tables(catalog: GlueCatalog, database: str | None) -> list[str]:
    with translate_aws_errors(database or "the catalog"):
        databases = [database] if database is not None else [namespace[0] for namespace in catalog.list_namespaces()]
        try:
            return sorted(f"{db}.{table}" for name in databases for db, table in catalog.list_tables(name))
        except NoSuchNamespaceError:
            raise NotFound(f"there is no database {database}", subject=database) from None


def as_schema(schema: Any) -> Schema:
    """An Iceberg schema with fresh ids, from an Iceberg schema, an Arrow schema, or {name: type}."""
    if isinstance(schema, Schema):
        return assign_fresh_schema_ids(schema)
    if isinstance(schema, pa.Schema):
        return assign_fresh_schema_ids(schema_without_ids(schema, format_version=2))
    if isinstance(schema, Mapping):
        fields = [
            NestedField(i, name, as_type(kind), required=False) for i, (name, kind) in enumerate(schema.items(), 1)
        ]
        return assign_fresh_schema_ids(Schema(*fields))
    raise Invalid(f"a schema is Iceberg's or Arrow's, or a mapping of names to types, not a {type(schema).__name__}")


def as_type(kind: Any) -> IcebergType:
    """A type from Iceberg, Arrow, or its Iceberg name: `long`, `decimal(10, 2)`, `timestamptz`."""
    if isinstance(kind, IcebergType):
        return kind
    if isinstance(kind, pa.DataType):
        return schema_without_ids(pa.schema([("x", kind)]), format_version=2).fields[0].field_type
    try:
        return (
            TypeAdapter(NestedField).validate_python({"id": 1, "name": "x", "type": kind, "required": False}).field_type
        )
    except (ValidationError, ValueError, TypeError):
        raise Invalid(f"{kind!r} is not an Iceberg type: write long, string, decimal(10, 2), timestamptz, …") from None


def with_key(schema: Schema, key: Sequence[str]) -> Schema:
    """The schema with the key's columns required, and as its identifier fields."""
    if len(set(key)) < len(key):
        raise Invalid(f"a column is twice in the key {list(key)}")
    fields = {field.name: field for field in schema.fields}
    for column in key:
        if column not in fields:
            raise Invalid(f"the key column {column!r} is not in the schema")
        kind = fields[column].field_type
        if not isinstance(kind, PrimitiveType) or isinstance(kind, (FloatType, DoubleType)):
            raise Invalid(f"{column!r} is a {kind}, which cannot be compared for equality: choose another key")
        fields[column] = fields[column].model_copy(update={"required": True})
    identifiers = [fields[column].field_id for column in key]
    return Schema(*fields.values(), schema_id=schema.schema_id, identifier_field_ids=identifiers)


def drop_table(committer: Committer, version: TableVersion, *, purge: bool) -> None:
    """Drops the table. Denied under a legal hold. A purge is a Conflict while a clone reads its files, which are pinned
    by tags, or while another table has its files in the same folder."""
    name, table_store = version.name, committer.table_store
    check_hold(version, "dropped")
    clones = [ref for ref in version.metadata.refs if ref.startswith(CLONE_TAG)]
    if clones and purge:
        raise Conflict(
            f"{name} cannot be purged: clones read its files ({', '.join(clones)}); drop and purge those first",
            subject=name,
        )
    if purge:
        check_own_folder(table_store, name, version.metadata.location)
    with translate_aws_errors(name):
        try:
            table_store.catalog.drop_table(split_name(name))
        except NoSuchTableError:
            raise NotFound(f"there is no table {name}", subject=name) from None
        table_store.forget(name)
        if purge:
            table_store.io.store.delete_below(version.metadata.location)
    committer.announce(version, None, ())


def check_own_folder(table_store: GlueTableStore, name: str, location: str) -> None:
    """Conflict if another table has its metadata below the location, whose files a purge would delete.

    A renamed table keeps its folder, a new one of the old name gets the same, and a writer can set any location. One
    request for each hundred tables.
    """
    folder = f"{location.rstrip('/')}/"
    for other, metadata_file in listed_tables(table_store.catalog).items():
        if other != name and metadata_file is not None and metadata_file.startswith(folder):
            raise Conflict(
                f"{name} cannot be purged: {folder} is also the folder of {other}; drop it without purging",
                subject=name,
            )


def make_database(catalog: GlueCatalog, database: str) -> None:
    try:
        catalog.load_namespace_properties(database)
    except NoSuchNamespaceError:
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(database)
