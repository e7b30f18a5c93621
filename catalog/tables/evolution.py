"""Schema, partition, sort order, key and property changes. No data file is written or read.

Files keep the schema they were written with; readers find columns by field id, so every change is one small commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Transaction
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, UNSORTED_SORT_ORDER_ID
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    RemovePropertiesUpdate,
    SetDefaultSortOrderUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from catalog.core.errors import Invalid
from catalog.iceberg import CommitIO, add_updates, transaction_updates
from catalog.tables.commit_tokens import has_altered, note_alteration
from catalog.tables.committer import AttemptResult, Committer
from catalog.tables.creation import as_type, mode_properties
from catalog.tables.delta import Delta
from catalog.tables.glue_store import TableVersion
from catalog.tables.partitions import check_term, make_order, parse_term
from catalog.tables.planner import KEY_PROPERTY

_PYICEBERG_ERRORS = (ValueError, ValidationError, TypeError)


@dataclass(frozen=True)
class TableChange:
    """Everything one `alter` changes, in this order: drops, renames, promotions, additions."""

    add: Mapping[str, Any] = field(default_factory=dict)
    drop: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    promote: Mapping[str, Any] = field(default_factory=dict)
    partition: Sequence[str] | None = None
    sort: Sequence[str] | None = None
    key: Sequence[str] | None = None
    mode: str | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)


def alter_table(committer: Committer, name: str, change: TableChange, token: str | None = None) -> None:
    """Commits all of the change or nothing, and at most once for a token. Invalid names what cannot be changed."""

    def attempt(version: TableVersion, io: CommitIO) -> AttemptResult:
        if token is not None and has_altered(version, token):
            return (), version.head(), Delta()
        transaction = Transaction(committer.table_store.table(version))
        _check_drops(version, change)
        try:
            _change_columns(transaction, change)
            if change.partition is not None:
                _change_partitions(transaction, change.partition)
            if change.sort is not None:
                _change_order(transaction, change.sort)
        except _PYICEBERG_ERRORS as error:
            raise Invalid(f"{name}: {error}", subject=name) from None
        updates = [*transaction_updates(transaction), *_properties(version, transaction, change)]
        if token is not None:
            updates.append(note_alteration(version, token))
        return updates, version.head(), Delta()

    committer.commit(name, attempt)


def _check_drops(version: TableVersion, change: TableChange) -> None:
    """Invalid if a dropped column is in the key, in the sort order, or in a partition spec."""
    key = version.properties.get(KEY_PROPERTY, "").split(",")
    used = {f.source_id: "partitioned" for spec in version.metadata.partition_specs for f in spec.fields}
    used |= {f.source_id: "sorted" for f in version.metadata.sort_order().fields}
    for column in change.drop:
        try:
            field_id = version.schema.find_field(column).field_id
        except ValueError:
            raise Invalid(f"{version.name}: there is no column {column!r} to drop", subject=version.name) from None
        if column in key:
            raise Invalid(f"{version.name}: {column!r} is in the key: change the key first", subject=version.name)
        if field_id in used:
            raise Invalid(
                f"{version.name}: {column!r} cannot be dropped: the table is or was {used[field_id]} by it",
                subject=version.name,
            )


def _change_columns(transaction: Transaction, change: TableChange) -> None:
    if not (change.add or change.drop or change.rename or change.promote or change.key):
        return
    with UpdateSchema(transaction) as update:
        for column in change.drop:
            update.delete_column(_path(column))
        for old, new in change.rename.items():
            update.rename_column(_path(old), new)
        for column, kind in change.promote.items():
            # pyiceberg checks that it is legal: int to long, float to double, decimal to more digits of the same scale.
            update.update_column(_path(column), field_type=_primitive(as_type(kind), column))
        for column, kind in change.add.items():
            # Existing rows have no value for it, so a new column is never required.
            update.add_column(_path(column), as_type(kind), required=False)
    if change.key:
        _check_key(transaction, change.key)


def _check_key(transaction: Transaction, key: Sequence[str]) -> None:
    schema = transaction.table_metadata.schema()
    for column in key:
        kind = schema.find_field(column).field_type
        if not isinstance(kind, PrimitiveType) or isinstance(kind, (FloatType, DoubleType)):
            raise ValueError(f"{column!r} is a {kind}, which cannot be a key")


def _primitive(kind: Any, column: str) -> PrimitiveType:
    if not isinstance(kind, PrimitiveType):
        raise ValueError(f"{column!r} cannot become a {kind}")
    return kind


def _change_partitions(transaction: Transaction, terms: Sequence[str]) -> None:
    """Evolves the partition spec; existing files keep theirs."""
    metadata = transaction.table_metadata
    schema = metadata.schema()
    requested = {(check_term(schema, term := parse_term(text), text), str(term.transform)): term for text in terms}
    current = {(f.source_id, str(f.transform)): f for f in metadata.spec().fields}
    with transaction.update_spec() as update:
        for identity, partition_field in current.items():
            if identity not in requested:
                update.remove_field(partition_field.name)
        for identity, term in requested.items():
            if identity not in current:
                update.add_field(term.column, term.transform, term.name)


def _change_order(transaction: Transaction, terms: Sequence[str]) -> None:
    order = make_order(transaction.table_metadata.schema(), terms)
    if not order.fields:
        # pyiceberg would select the order with the highest id, but the order without fields always has id 0.
        exists = transaction.table_metadata.sort_order_by_id(UNSORTED_SORT_ORDER_ID) is not None
        add = () if exists else (AddSortOrderUpdate(sort_order=UNSORTED_SORT_ORDER),)
        add_updates(transaction, (*add, SetDefaultSortOrderUpdate(sort_order_id=UNSORTED_SORT_ORDER_ID)))
        return
    with transaction.update_sort_order() as update:
        schema = transaction.table_metadata.schema()
        for sort in order.fields:
            column = schema.find_column_name(sort.source_id) or ""
            append = update.asc if sort.direction.value == "asc" else update.desc
            append(column, sort.transform, sort.null_order)


def _properties(version: TableVersion, transaction: Transaction, change: TableChange) -> list[TableUpdate]:
    changed = {name: value for name, value in change.properties.items() if value is not None}
    if change.mode is not None:
        changed |= mode_properties(change.mode)
    key = (
        change.key if change.key is not None else [k for k in version.properties.get(KEY_PROPERTY, "").split(",") if k]
    )
    renamed = ",".join(change.rename.get(column, column) for column in key)
    if renamed != version.properties.get(KEY_PROPERTY, ""):
        changed[KEY_PROPERTY] = renamed
    removed = [name for name, value in change.properties.items() if value is None and name in version.properties]
    updates: list[TableUpdate] = [SetPropertiesUpdate(updates=changed)] if changed else []
    return [*updates, RemovePropertiesUpdate(removals=removed)] if removed else updates


def _path(column: str) -> tuple[str, ...]:
    return tuple(column.split("."))
