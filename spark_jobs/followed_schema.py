"""Keeps the columns of a table like those of the table it follows: by field id, so a renamed column keeps its values.

The followed schema's id is a property of the target, set in the commit that changes the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from catalog import Invalid, Lake

FOLLOWED = "strandline.followed-schema"
"""Table property: `<uuid>:<schema id>` of the source whose columns the target has."""


def follow_schema(lake: Lake, source: Table, target: str, key: Sequence[str], since: int | None) -> None:
    """Renames, drops, promotes and adds columns of the target as the source's were; one commit, none if equal.

    `since`: the source's snapshot that the target's rows are from; the schema it was written with, if the target has no
    record of one. Invalid if the schemas cannot be compared: then no row is written.
    """
    loaded = lake.tables.load(target)
    new, name = source.schema(), ".".join(source.name())
    columns, old = loaded.schema(), _followed(source, loaded, since)
    change = _by_name(name, new, target, columns) if old is None else _by_id(name, old, new, columns)
    renamed = change.get("rename", {})
    key_now = [renamed.get(column, column) for column in lake.tables.describe(target).key]
    if sorted(key_now) != sorted(key):
        raise Invalid(f"the key of {target} is {', '.join(key_now)}, but {name} has {', '.join(key)}", subject=target)
    followed = f"{source.metadata.table_uuid}:{new.schema_id}"
    if any(change.values()) or loaded.properties.get(FOLLOWED) != followed:
        new_key = list(key) if renamed else None
        lake.tables.alter(target, **change, key=new_key, properties={FOLLOWED: followed})


def _followed(source: Table, target: Table, since: int | None) -> Schema | None:
    """The source's schema that the target has; None if it is not known."""
    uuid, _, schema_id = target.properties.get(FOLLOWED, "").partition(":")
    if uuid == str(source.metadata.table_uuid):
        return source.schemas().get(int(schema_id))
    snapshot = None if since is None else source.snapshot_by_id(since)
    return None if snapshot is None or snapshot.schema_id is None else source.schemas().get(snapshot.schema_id)


def _by_id(source: str, old: Schema, new: Schema, target: Schema) -> dict[str, Any]:
    """What happened to the source's columns between two of its schemas, as arguments of `alter`."""
    before, after = ({field.field_id: field for field in schema.fields} for schema in (old, new))
    rename, promote, drop = dict[str, str](), dict[str, Any](), list[str]()
    for field_id, field in before.items():
        if field.name not in target.column_names:
            continue
        now = after.get(field_id)
        if now is None:
            drop.append(field.name)
            continue
        if now.name != field.name:
            rename[field.name] = now.name
        if now.field_type != field.field_type:
            _check_promotion(source, field, now)
            promote[now.name] = now.field_type
    kept = (set(target.column_names) - set(drop) - rename.keys()) | set(rename.values())
    return {"drop": drop, "rename": rename, "promote": promote, "add": _missing(new, kept)}


def _by_name(source: str, new: Schema, target_name: str, target: Schema) -> dict[str, Any]:
    """Columns to add. Invalid if the target has others as well: one may be the old name of the other."""
    add = _missing(new, set(target.column_names))
    others = [name for name in target.column_names if name not in new.column_names]
    if add and others:
        raise Invalid(
            f"{source} has columns that {target_name} does not have ({', '.join(add)}), and {target_name} has others "
            f"({', '.join(others)}): rename them with `strandline table alter {target_name} --rename OLD=NEW`, or drop "
            "them, then run the job again",
            subject=target_name,
        )
    return {"add": add}


def _missing(new: Schema, names: set[str]) -> dict[str, Any]:
    return {field.name: field.field_type for field in new.fields if field.name not in names}


def _check_promotion(source: str, old: NestedField, new: NestedField) -> None:
    if not (old.field_type.is_primitive and new.field_type.is_primitive):
        raise Invalid(
            f"the nested column {new.name} of {source} has changed, which cannot be followed: write to another target, "
            "or change the target's column likewise",
            subject=source,
        )
