"""Schema and partition evolution: checked changes of a table's shape. No data file is written or read.

Files keep the shape they were written in; Iceberg finds their columns by id, so every change is one small commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot
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

from catalog.errors import Invalid
from catalog.tables.commits import Committer
from catalog.tables.creation import as_type, mode_properties
from catalog.tables.deltas import Delta
from catalog.tables.fileio import CommitIO
from catalog.tables.partitions import check_term, make_order, parse_term
from catalog.tables.versions import Version
from catalog.tables.writes import KEY

_REFUSED = (ValueError, ValidationError, TypeError)


@dataclass(frozen=True)
class Change:
    """Everything one `alter` asks for. Drops come first, then renames, promotions and additions."""

    add: Mapping[str, Any] = field(default_factory=dict)
    drop: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    promote: Mapping[str, Any] = field(default_factory=dict)
    partition: Sequence[str] | None = None
    sort: Sequence[str] | None = None
    key: Sequence[str] | None = None
    mode: str | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)


def alter_table(committer: Committer, name: str, change: Change) -> None:
    """One commit of metadata, all of the change or nothing. Invalid says what cannot be."""

    def attempt(version: Version, io: CommitIO) -> tuple[Sequence[TableUpdate], Snapshot | None, Delta]:
        transaction = Transaction(committer.catalogue.table(version))
        _check_drops(version, change)
        try:
            _change_columns(transaction, change)
            if change.partition is not None:
                _change_partitions(transaction, change.partition)
            if change.sort is not None:
                _change_order(transaction, change.sort)
        except _REFUSED as error:
            raise Invalid(f"{name}: {error}", subject=name) from None
        updates = [*transaction._updates, *_properties(version, transaction, change)]
        return updates, version.head(), Delta()

    committer.commit(name, attempt)


def _check_drops(version: Version, change: Change) -> None:
    """A column that keys, partitions or orders the table cannot go while it does."""
    key = version.properties.get(KEY, "").split(",")
    used = {f.source_id: "partitioned" for spec in version.metadata.partition_specs for f in spec.fields}
    used |= {f.source_id: "sorted" for f in version.metadata.sort_order().fields}
    for column in change.drop:
        try:
            found = version.schema.find_field(column)
        except ValueError:
            raise Invalid(f"{version.name}: there is no column {column!r} to drop", subject=version.name) from None
        if column in key:
            raise Invalid(f"{version.name}: {column!r} is in the key: change the key first", subject=version.name)
        if found.field_id in used:
            how = used[found.field_id]
            raise Invalid(f"{version.name}: it is or was {how} by {column!r}, which must stay", subject=version.name)


def _change_columns(transaction: Transaction, change: Change) -> None:
    if not (change.add or change.drop or change.rename or change.promote or change.key):
        return
    with UpdateSchema(transaction) as update:
        for column in change.drop:
            update.delete_column(_path(column))
        for old, new in change.rename.items():
            update.rename_column(_path(old), new)
        for column, kind in change.promote.items():
            # pyiceberg knows the legal ones: int to long, float to double, decimal to more digits of one scale.
            update.update_column(_path(column), field_type=_primitive(as_type(kind), column))
        for column, kind in change.add.items():
            # Rows that are there already have no value for it: a new column is never required.
            update.add_column(_path(column), as_type(kind), required=False)
    if change.key:
        _check_key(transaction, change.key)


def _check_key(transaction: Transaction, key: Sequence[str]) -> None:
    schema = transaction.table_metadata.schema()
    for column in key:
        found = schema.find_field(column)
        if not isinstance(found.field_type, PrimitiveType) or isinstance(found.field_type, (FloatType, DoubleType)):
            raise ValueError(f"{column!r} is a {found.field_type}, which cannot be a key")


def _primitive(kind: Any, column: str) -> PrimitiveType:
    if not isinstance(kind, PrimitiveType):
        raise ValueError(f"{column!r} cannot become a {kind}")
    return kind


def _change_partitions(transaction: Transaction, terms: Sequence[str]) -> None:
    """The new spec; files written before keep theirs."""
    metadata = transaction.table_metadata
    schema = metadata.schema()
    wanted = {(check_term(schema, term := parse_term(text), text), str(term.transform)): term for text in terms}
    present = {(f.source_id, str(f.transform)): f for f in metadata.spec().fields}
    with transaction.update_spec() as update:
        for identity, partition_field in present.items():
            if identity not in wanted:
                update.remove_field(partition_field.name)
        for identity, term in wanted.items():
            if identity not in present:
                update.add_field(term.column, term.transform, term.name)


def _change_order(transaction: Transaction, terms: Sequence[str]) -> None:
    order = make_order(transaction.table_metadata.schema(), terms)
    if not order.fields:
        # pyiceberg asks for the order added last, by the highest id; the one without fields always has the lowest.
        known = transaction.table_metadata.sort_order_by_id(UNSORTED_SORT_ORDER_ID) is not None
        add = () if known else (AddSortOrderUpdate(sort_order=UNSORTED_SORT_ORDER),)
        transaction._apply((*add, SetDefaultSortOrderUpdate(sort_order_id=UNSORTED_SORT_ORDER_ID)))
        return
    with transaction.update_sort_order() as update:
        schema = transaction.table_metadata.schema()
        for sort in order.fields:
            column = schema.find_column_name(sort.source_id) or ""
            append = update.asc if sort.direction.value == "asc" else update.desc
            append(column, sort.transform, sort.null_order)


def _properties(version: Version, transaction: Transaction, change: Change) -> list[TableUpdate]:
    given = {name: value for name, value in change.properties.items() if value is not None}
    if change.mode is not None:
        given |= mode_properties(change.mode)
    key = change.key if change.key is not None else [k for k in version.properties.get(KEY, "").split(",") if k]
    renamed = ",".join(change.rename.get(column, column) for column in key)
    if renamed != version.properties.get(KEY, ""):
        given[KEY] = renamed
    gone = [name for name, value in change.properties.items() if value is None and name in version.properties]
    updates: list[TableUpdate] = [SetPropertiesUpdate(updates=given)] if given else []
    return [*updates, RemovePropertiesUpdate(removals=gone)] if gone else updates


def _path(column: str) -> tuple[str, ...]:
    return tuple(column.split("."))
