"""`merge_changes`: applies the changes of one table to another with the same key, deletes included.

The target's columns follow the source's, renamed and dropped ones too (followed_schema.py). Its commits contain its
watermark, so a run after a crash applies nothing twice. Too many changes to apply row by row are not applied: the
source is copied instead, with the same result.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pydantic import Field
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog import Invalid, NotFound
from catalog.changes import net_changes
from catalog.notes import TableSpec
from catalog.tables import table_key
from spark_jobs.arguments import TABLE
from spark_jobs.followed_schema import follow_schema
from spark_jobs.inputs import MAX_ROWS, Inputs, TooManyChanges, input_summary, moved_rows, watermark
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.outputs import overwrite, replace_rows
from spark_jobs.session import CATALOG


class MergeArguments(Arguments):
    source: str = Field(pattern=TABLE)
    target: str = Field(pattern=TABLE, description="created like the source if it does not exist")
    full: bool = False


def merge_changes(context: Context, arguments: MergeArguments) -> Mapping[str, Any]:
    lake, source, target = context.lake, arguments.source, arguments.target
    inputs = Inputs.pin(lake, {source: source})
    until = inputs.pinned[source]
    context.reads(source, until)
    loaded = lake.tables.load(source)
    key = table_key(lake.tables.table_store.load(source))
    if not key:
        raise Invalid(
            f"{source} has no key, so its changes cannot be applied by key: set one with alter", subject=source
        )
    schema = schema_to_pyarrow(loaded.schema(), include_field_ids=False)
    try:
        target_table = lake.tables.load(target)
    except NotFound:
        properties = {"write.format.default": loaded.properties.get("write.format.default", "parquet")}
        target_table = lake.tables.create(target, loaded.schema(), mode="mor", key=key, properties=properties)
    since = watermark(target_table)
    follow_schema(lake, loaded, target, key, None if since is None else since.get(source))
    summary = input_summary(inputs.pinned, context.run_id)
    with context.stage("merge") as stage:
        if until is None or (since == inputs.pinned and not arguments.full):
            return {"how": "nothing new", "rows": 0}
        try:
            from_snapshot = None if since is None or arguments.full else since.get(source)
            if from_snapshot is None:
                raise TooManyChanges("it has no watermark")
            if moved_rows(loaded, from_snapshot, until) > MAX_ROWS:
                raise TooManyChanges("too many rows are in added or removed files")
            changes = net_changes(loaded, from_snapshot, until)
        except TooManyChanges as reason:
            frame = context.spark.sql(f"SELECT * FROM {CATALOG}.{source} VERSION AS OF {until}")
            snapshot = overwrite(frame, lake, target, summary)
            context.committed(target, snapshot)
            return {"how": "copied", "why": str(reason)}
        spec = TableSpec(target.partition(".")[2], schema, key, key[0])
        before, after = (_rows(changes.changes, side) for side in ("before", "after"))
        snapshot, stage.rows = replace_rows(lambda: context.spark, lake, target, spec, before, after, summary)
        context.committed(target, snapshot, rows=stage.rows)
        return {"how": "merged", "rows": stage.rows}


def _rows(changes: pa.Table, side: str) -> list[dict[str, Any]]:
    return [row for row in changes[side].to_pylist() if row is not None]


JOB = Job("merge_changes", MergeArguments, merge_changes)

if __name__ == "__main__":
    sys.exit(run(JOB))
