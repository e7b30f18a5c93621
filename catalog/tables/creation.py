"""Tables come and go: creating, listing and dropping them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter, ValidationError
from pyiceberg.catalog.glue import GlueCatalog, _construct_table_input
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, FloatType, IcebergType, NestedField, PrimitiveType

from catalog.errors import Conflict, Invalid, NotFound
from catalog.refusals import explain, explained
from catalog.tables.commits import Committer
from catalog.tables.modes import MODES, Mode
from catalog.tables.partitions import make_order, make_spec
from catalog.tables.versions import Catalogue, Version, split_name
from catalog.tables.writes import KEY, MODE

DEFAULTS = {
    "format-version": "2",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
}
# What Spark and Trino call the modes, so that they write as the table is meant to be written.
_FOREIGN = {"cow": "copy-on-write", "mor": "merge-on-read", "hybrid": "merge-on-read"}
CLONE_TAG = "clone-"


def mode_properties(mode: str) -> dict[str, str]:
    if mode not in MODES:
        raise Invalid(f"{mode!r} is no mode: choose from {', '.join(MODES)}")
    return {MODE: mode, **{f"write.{verb}.mode": _FOREIGN[mode] for verb in ("delete", "update", "merge")}}


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
) -> Table:
    """Four requests: the database's location, one metadata file, CreateTable, and the database if it is new."""
    database, table = split_name(name)
    keyed = with_key(as_schema(schema), key)
    settled = {**DEFAULTS, **mode_properties(mode), **dict(properties or {})}
    if key:
        settled[KEY] = ",".join(key)
    catalogue = committer.catalogue
    with explained(name):
        make_database(catalogue.catalog, database)
        staged = catalogue.catalog._create_staged_table(
            (database, table), keyed, None, make_spec(keyed, partition), make_order(keyed, sort), settled
        )
        metadata, location = staged.metadata, staged.metadata_location
        catalogue.io.store.put(location, metadata.model_dump_json(exclude_none=True).encode())
    register(catalogue, name, metadata, location)
    version = catalogue.load(name)
    committer.announce(version, None, ())
    return catalogue.table(version)


def register(catalogue: Catalogue, name: str, metadata: Any, location: str) -> None:
    """Puts a new table into the catalog; Conflict if the name is taken by anything but this very metadata."""
    database, table = split_name(name)
    entry = _construct_table_input(table, location, metadata.properties, metadata)
    try:
        catalogue.catalog.glue.create_table(DatabaseName=database, TableInput=entry)
    except (ClientError, BotoCoreError) as error:
        # Taken, or the answer to our own request was lost and the SDK asked again: only a look can tell.
        try:
            if catalogue.load(name).metadata.table_uuid == metadata.table_uuid:
                return
        except NotFound:
            raise explain(error, name) from error
        catalogue.io.store.delete([location])
        raise Conflict(f"{name} exists already: drop it first, or alter it", subject=name) from None


def list_tables(catalog: GlueCatalog, database: str | None) -> list[str]:
    with explained(database or "the catalog"):
        databases = [database] if database is not None else [found[0] for found in catalog.list_namespaces()]
        try:
            return sorted(f"{db}.{table}" for name in databases for db, table in catalog.list_tables(name))
        except NoSuchNamespaceError:
            raise NotFound(f"there is no database {database}", subject=database) from None


def as_schema(schema: Any) -> Schema:
    """An Iceberg schema with fresh ids, from Iceberg's own, Arrow's, or {name: type}."""
    if isinstance(schema, Schema):
        return assign_fresh_schema_ids(schema)
    if isinstance(schema, pa.Schema):
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema, format_version=2))
    if isinstance(schema, Mapping):
        fields = [
            NestedField(i, name, as_type(kind), required=False) for i, (name, kind) in enumerate(schema.items(), 1)
        ]
        return assign_fresh_schema_ids(Schema(*fields))
    raise Invalid(f"a schema is Iceberg's, Arrow's or a mapping of names to types, not {type(schema).__name__}")


def as_type(kind: Any) -> IcebergType:
    """A type from Iceberg, Arrow, or its Iceberg name: `long`, `decimal(10, 2)`, `timestamptz`."""
    if isinstance(kind, IcebergType):
        return kind
    if isinstance(kind, pa.DataType):
        return _pyarrow_to_schema_without_ids(pa.schema([("x", kind)]), format_version=2).fields[0].field_type
    try:
        return (
            TypeAdapter(NestedField).validate_python({"id": 1, "name": "x", "type": kind, "required": False}).field_type
        )
    except (ValidationError, ValueError, TypeError):
        raise Invalid(f"{kind!r} is no type of Iceberg's: write long, string, decimal(10, 2), timestamptz, …") from None


def with_key(schema: Schema, key: Sequence[str]) -> Schema:
    """The schema with the key's columns required and named as its identifier."""
    if len(set(key)) < len(key):
        raise Invalid(f"a column stands twice in the key {list(key)}")
    fields = {field.name: field for field in schema.fields}
    for column in key:
        if column not in fields:
            raise Invalid(f"the key {column!r} is no column of the schema")
        kind = fields[column].field_type
        if not isinstance(kind, PrimitiveType) or isinstance(kind, (FloatType, DoubleType)):
            raise Invalid(f"{column!r} is a {kind}, which cannot be compared for equality: choose another key")
        fields[column] = fields[column].model_copy(update={"required": True})
    identifiers = [fields[column].field_id for column in key]
    return Schema(*fields.values(), schema_id=schema.schema_id, identifier_field_ids=identifiers)


def drop_table(committer: Committer, version: Version, *, purge: bool) -> None:
    """Refuses to purge while a clone reads the table's files: the tags that say so are made by `clone`."""
    name, catalogue = version.name, committer.catalogue
    clones = [ref for ref in version.metadata.refs if ref.startswith(CLONE_TAG)]
    if clones and purge:
        raise Conflict(
            f"{name} cannot be purged: clones read its files ({', '.join(clones)}); drop and purge those first",
            subject=name,
        )
    with explained(name):
        try:
            catalogue.catalog.drop_table(split_name(name))
        except NoSuchTableError:
            raise NotFound(f"there is no table {name}", subject=name) from None
        catalogue.forget(name)
        if purge:
            catalogue.io.store.delete_below(version.metadata.location)
    committer.announce(version, None, ())


def make_database(catalog: GlueCatalog, database: str) -> None:
    try:
        catalog.load_namespace_properties(database)
    except NoSuchNamespaceError:
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(database)
