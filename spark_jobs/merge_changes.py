"""`merge_changes`: one table follows another by its change feed. Both have the same key; deletes follow too.

The target's own commits say how far it has come, so a run that was killed goes on without doing anything twice. What
is too much to follow row by row is copied whole, to the same rows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pydantic import Field
from pyiceberg.io.pyarrow import schema_to_pyarrow

from catalog.changes import net_changes
from catalog.errors import Invalid, NotFound
from catalog.pipeline.layers import TableSpec
from catalog.tables.requests import key_of
from spark_jobs import inputs as feeding
from spark_jobs import outputs as writing
from spark_jobs.arguments import TABLE
from spark_jobs.inputs import MOST_ROWS, Inputs, TooMuch
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.session import CATALOG


class MergeArguments(Arguments):
    source: str = Field(pattern=TABLE)
    target: str = Field(pattern=TABLE, description="made like the source if it is not there")
    full: bool = False


def merge_changes(context: Context, arguments: MergeArguments) -> Mapping[str, Any]:
    lake, source, target = context.lake, arguments.source, arguments.target
    inputs = Inputs.pin(lake, {source: source})
    until = inputs.pinned[source]
    context.reads(source, until)
    loaded = lake.tables.load(source)
    key = key_of(lake.tables.catalogue.load(source))
    if not key:
        raise Invalid(f"{source} has no key, so its changes cannot be told apart: set one with alter", subject=source)
    schema = schema_to_pyarrow(loaded.schema(), include_field_ids=False)
    try:
        known = lake.tables.load(target)
    except NotFound:
        kept = {"write.format.default": loaded.properties.get("write.format.default", "parquet")}
        known = lake.tables.create(target, loaded.schema(), mode="mor", key=key, properties=kept)
    missing = [name for name in schema.names if name not in known.schema().column_names]
    if missing:
        lake.tables.alter(target, add={name: loaded.schema().find_field(name).field_type for name in missing})
    said = feeding.summary(inputs.pinned, context.run_id)
    with context.stage("merge") as stage:
        since = None if arguments.full else feeding.watermark(known)
        if until is None or (since is not None and since == inputs.pinned):
            return {"how": "nothing new", "rows": 0}
        try:
            from_snapshot = None if since is None else since.get(source)
            if from_snapshot is None:
                raise TooMuch("it has no watermark")
            if feeding.moved_rows(loaded, from_snapshot, until) > MOST_ROWS:
                raise TooMuch("too many rows moved")
            changes = net_changes(loaded, from_snapshot, until)
        except TooMuch as reason:
            frame = context.spark.sql(f"SELECT * FROM {CATALOG}.{source} VERSION AS OF {until}")
            snapshot = writing.make_anew(frame, lake, target, said)
            context.committed(target, snapshot)
            return {"how": "copied", "why": str(reason)}
        spec = TableSpec(target.partition(".")[2], schema, key, key[0])
        before, after = (_rows(changes.changes, side) for side in ("before", "after"))
        snapshot, stage.rows = writing.mend(lambda: context.spark, lake, target, spec, before, after, said)
        context.committed(target, snapshot, rows=stage.rows)
        return {"how": "merged", "rows": stage.rows}


def _rows(changes: pa.Table, side: str) -> list[dict[str, Any]]:
    return [row for row in changes[side].to_pylist() if row is not None]


JOB = Job("merge_changes", MergeArguments, merge_changes)

if __name__ == "__main__":
    sys.exit(run(JOB))
