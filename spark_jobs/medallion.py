"""`medallion`: the notes pipeline, bronze to gold. Updates each table from its inputs' changes, or rebuilds it.

One function, `_step`, processes one table: pin the inputs, compute their changes, apply the rules to the touched
units, commit rows and watermark together. After a crash anywhere, the next run completes the work with the same code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from pydantic import Field
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.types import from_arrow_schema

from catalog import Conflict, Invalid, NotFound
from catalog.notes import (
    BRONZE,
    DERIVED,
    NOTE_EMBEDDINGS,
    REJECTS,
    TableSpec,
    apply_rule,
    gather,
    reject_rows,
    spec_of,
    staged_schema,
    touched_units,
    transform_batches,
)
from catalog.tables import UNIT_PROPERTY
from spark_jobs.embeddings import embed_notes
from spark_jobs.facts import all_facts
from spark_jobs.inputs import Inputs, TooManyChanges, input_summary, watermark
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.outputs import head, overwrite, replace_rows, rows_of_units
from spark_jobs.session import CATALOG


class MedallionArguments(Arguments):
    tables: list[str] = Field(default_factory=list, description="only these; default: all")
    full: bool = Field(default=False, description="rebuild tables, whatever changed")
    prefix: str = Field(default="", pattern=r"^[a-z0-9_]*$", description="of every database's name")
    most_share: float = Field(
        default=0.2, ge=0, le=1, description="share of changed rows above which a table is rebuilt"
    )
    file_format: Literal["parquet", "orc"] = "parquet"


def medallion(context: Context, arguments: MedallionArguments) -> Mapping[str, Any]:
    vectors = {NOTE_EMBEDDINGS.name, NOTE_EMBEDDINGS.table}
    selected = {spec_of(table).name for table in arguments.tables if table not in vectors}
    embed = not arguments.tables or not vectors.isdisjoint(arguments.tables)
    if not arguments.tables:
        selected = {spec.name for spec in DERIVED}
    if unknown := selected - {spec.name for spec in DERIVED}:
        raise Invalid(
            f"{', '.join(sorted(unknown))} is not derived from other tables: name derived ones, or none for all"
        )
    for spec in (*BRONZE, *DERIVED, REJECTS):
        _create(context, spec, arguments)
    results = {spec.name: _step(context, spec, arguments) for spec in DERIVED if spec.name in selected}
    if embed:
        results[NOTE_EMBEDDINGS.name] = embed_notes(context, arguments.prefix, full=arguments.full)
    return results


def _create(context: Context, spec: TableSpec, arguments: MedallionArguments) -> None:
    """Creates the table if it does not exist. Sets the unit property of a bronze table that ingestion created."""
    table, tables = arguments.prefix + spec.name, context.lake.tables
    unit_property = {UNIT_PROPERTY: spec.unit} if spec.layer == "bronze" else {}
    try:
        current = tables.load(table).properties
    except NotFound:
        properties = {"write.format.default": arguments.file_format, "strandline.layer": spec.layer, **unit_property}
        with suppress(Conflict):  # another run created it first
            tables.create(table, spec.schema, mode="mor", key=spec.key, properties=properties)
        return
    if unit_property and current.get(UNIT_PROPERTY) != spec.unit:
        # Merge-on-read, since copy-on-write would give old rows the sequence number of a new commit.
        tables.alter(table, mode="mor", properties=unit_property)


def _step(context: Context, spec: TableSpec, arguments: MedallionArguments) -> dict[str, Any]:
    table = arguments.prefix + spec.name
    inputs = Inputs.pin(context.lake, {name: arguments.prefix + name for name in spec.inputs})
    for name, at in inputs.pinned.items():
        context.reads(inputs.names[name], at)
    with context.stage(spec.name) as stage:
        since = None if arguments.full else watermark(context.lake.tables.load(table))
        if since is None and not arguments.full and head(context.lake, table) is None:
            since = dict.fromkeys(inputs.pinned)  # an empty table is the result of empty inputs
        if since is not None and since == inputs.pinned:
            return {"how": "nothing new", "rows": 0}
        try:
            if since is None:
                raise TooManyChanges("asked for" if arguments.full else "it has no watermark of these rules")
            changes = inputs.changes(since, arguments.most_share)
            units = touched_units(spec, changes, inputs)
        except TooManyChanges as reason:
            stage.rows, rejected = _rebuild(context, spec, table, inputs, arguments)
            return {"how": "anew", "why": str(reason), "rows": stage.rows, "rejected": rejected}
        stage.rows, rejected = _update(context, spec, table, inputs, units, arguments)
        return {"how": "mended", "units": len(units), "rows": stage.rows, "rejected": rejected}


def _update(
    context: Context, spec: TableSpec, table: str, inputs: Inputs, units: set[Any], arguments: MedallionArguments
) -> tuple[int, int]:
    """Applies the rules here to the touched units. Commits rejects first, since the watermark must not pass them."""
    lake = context.lake
    rows, rejects = apply_rule(spec, gather(spec, units, inputs))
    rejected = reject_rows(spec, rejects)
    earlier_rejects = rows_of_units(lake, arguments.prefix + REJECTS.name, REJECTS, units)
    _replace_rejects(context, spec, arguments, earlier_rejects, rejected)
    # After a crash here, the next run computes the same rejects and does not commit them again.
    summary = input_summary(inputs.pinned, context.run_id)
    before = rows_of_units(lake, table, spec, units)
    snapshot, count = replace_rows(lambda: context.spark, lake, table, spec, before, rows, summary)
    context.committed(table, snapshot, rows=count)
    return count, len(rejected)


def _rebuild(
    context: Context, spec: TableSpec, table: str, inputs: Inputs, arguments: MedallionArguments
) -> tuple[int, int]:
    """Applies the same rules on Spark to every unit. One pass gives rows and rejects."""
    lake = context.lake
    staged = _staged(context, spec, inputs).persist()
    try:
        columns = [col(f"reject_{name}").alias(name) for name in REJECTS.schema.names[1:]]
        bad = staged.where("reject_reason IS NOT NULL").select(lit(spec.name).alias("table_name"), *columns).collect()
        rejected = list({(row["unit"], row["row_key"]): row.asDict() for row in bad}.values())
        rejects = arguments.prefix + REJECTS.name
        earlier_rejects = lake.tables.scan(rejects).to_pylist() if head(lake, rejects) is not None else []
        _replace_rejects(context, spec, arguments, earlier_rejects, rejected)
        good = staged.where("reject_reason IS NULL").select(*spec.schema.names)
        snapshot = overwrite(good, lake, table, input_summary(inputs.pinned, context.run_id))
        current = lake.tables.load(table).current_snapshot()
        rows = int(current.summary["total-records"] or 0) if current and current.summary else 0
        context.committed(table, snapshot, rows=rows)
        return rows, len(rejected)
    finally:
        staged.unpersist()


def _replace_rejects(
    context: Context,
    spec: TableSpec,
    arguments: MedallionArguments,
    earlier: list[dict[str, Any]],
    rejected: list[dict[str, Any]],
) -> None:
    """Replaces the table's earlier rejects, unless they are the same."""
    before = [row for row in earlier if row["table_name"] == spec.name]
    if sorted(map(repr, before)) == sorted(map(repr, rejected)):
        return
    rejects = arguments.prefix + REJECTS.name
    summary = {"strandline.of": spec.name, "strandline.run": context.run_id}
    snapshot, _ = replace_rows(lambda: context.spark, context.lake, rejects, REJECTS, before, rejected, summary)
    context.committed(rejects, snapshot, rejects_of=spec.name)


def _staged(context: Context, spec: TableSpec, inputs: Inputs) -> DataFrame:
    """The rows and rejects of every unit, from the inputs at their pinned snapshots."""
    spark, relations = context.spark, dict[str, str]()
    for name, at in inputs.pinned.items():
        table = f"{CATALOG}.{inputs.names[name]}"
        if at is None:  # no snapshot, but the table has columns
            relations[name] = f"(SELECT * FROM {table} LIMIT 0)"
        else:
            relations[name] = f"(SELECT * FROM {table} VERSION AS OF {at})"
    facts = spark.sql(all_facts(spec, relations))
    # Few input files would give few tasks; this gives every core work.
    distributed = facts.repartition(spark.sparkContext.defaultParallelism * 2)
    return distributed.mapInArrow(partial(transform_batches, spec), from_arrow_schema(staged_schema(spec)))


JOB = Job("medallion", MedallionArguments, medallion)

if __name__ == "__main__":
    sys.exit(run(JOB))
