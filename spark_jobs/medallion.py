"""`medallion`: the notes pipeline, bronze to gold. Each table from the change feed of its inputs, or made anew.

The flow of one table is one function, `_step`: pin the inputs, see what changed, apply the rules to the units it
touched, commit rows and watermark together. A crash anywhere is mended by the next run, which is the same code.
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

from catalog.errors import Conflict, Invalid, NotFound
from catalog.pipeline.facts import gather, touched_units
from catalog.pipeline.layers import BRONZE, DERIVED, NOTE_EMBEDDINGS, REJECTS, TableSpec, spec_of
from catalog.pipeline.medallion import apply_rule, reject_rows, staged_schema, transform_batches
from spark_jobs import inputs as feeding
from spark_jobs import outputs as writing
from spark_jobs.embeddings import embed_notes
from spark_jobs.facts import all_facts
from spark_jobs.inputs import Inputs, TooMuch
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.session import CATALOG
from spark_jobs.settle import UNIT


class MedallionArguments(Arguments):
    tables: list[str] = Field(default_factory=list, description="only these; default: all, in order")
    full: bool = Field(default=False, description="make tables anew, whatever changed")
    prefix: str = Field(default="", pattern=r"^[a-z0-9_]*$", description="before every database's name")
    most_share: float = Field(default=0.2, ge=0, le=1, description="changed rows beyond which a table is made anew")
    file_format: Literal["parquet", "orc"] = "parquet"


def medallion(context: Context, arguments: MedallionArguments) -> Mapping[str, Any]:
    vectors = {NOTE_EMBEDDINGS.name, NOTE_EMBEDDINGS.table}
    chosen = {spec_of(table).name for table in arguments.tables if table not in vectors}
    embedding = not arguments.tables or not vectors.isdisjoint(arguments.tables)
    if not arguments.tables:
        chosen = {spec.name for spec in DERIVED}
    if unknown := chosen - {spec.name for spec in DERIVED}:
        raise Invalid(f"{', '.join(sorted(unknown))} is not made from other tables: nothing to run")
    for spec in (*BRONZE, *DERIVED, REJECTS):
        _create(context, spec, arguments)
    made = {spec.name: _step(context, spec, arguments) for spec in DERIVED if spec.name in chosen}
    if embedding:
        made[NOTE_EMBEDDINGS.name] = embed_notes(context, arguments.prefix, full=arguments.full)
    return made


def _create(context: Context, spec: TableSpec, arguments: MedallionArguments) -> None:
    """Makes the table if it is not there. A bronze one that ingestion made is told what its rows are about."""
    table, tables = arguments.prefix + spec.name, context.lake.tables
    about = {UNIT: spec.unit} if spec.layer == "bronze" else {}
    try:
        known = tables.load(table).properties
    except NotFound:
        properties = {"write.format.default": arguments.file_format, "strandline.layer": spec.layer, **about}
        with suppress(Conflict):  # another run was quicker
            tables.create(table, spec.schema, mode="mor", key=spec.key, properties=properties)
        return
    if about and known.get(UNIT) != spec.unit:
        # Merge-on-read from now on: copy-on-write would give old rows the sequence number of a new commit.
        tables.alter(table, mode="mor", properties=about)


def _step(context: Context, spec: TableSpec, arguments: MedallionArguments) -> dict[str, Any]:
    table = arguments.prefix + spec.name
    inputs = Inputs.pin(context.lake, {name: arguments.prefix + name for name in spec.inputs})
    for name, at in inputs.pinned.items():
        context.reads(inputs.names[name], at)
    with context.stage(spec.name) as stage:
        since = None if arguments.full else feeding.watermark(context.lake.tables.load(table))
        if since is None and not arguments.full and writing.head(context.lake, table) is None:
            since = dict.fromkeys(inputs.pinned)  # an empty table is what no input makes
        if since is not None and since == inputs.pinned:
            return {"how": "nothing new", "rows": 0}
        try:
            if since is None:
                raise TooMuch("asked for" if arguments.full else "it has no watermark of these rules")
            changes = inputs.changes(since, arguments.most_share)
            units = touched_units(spec, changes, inputs)
        except TooMuch as reason:
            stage.rows, rejected = _anew(context, spec, table, inputs, arguments)
            return {"how": "anew", "why": str(reason), "rows": stage.rows, "rejected": rejected}
        stage.rows, rejected = _mended(context, spec, table, inputs, units, arguments)
        return {"how": "mended", "units": len(units), "rows": stage.rows, "rejected": rejected}


def _mended(
    context: Context, spec: TableSpec, table: str, inputs: Inputs, units: set[Any], arguments: MedallionArguments
) -> tuple[int, int]:
    """The rules on this machine, for the touched units only. Rejects first: the watermark must not pass them."""
    lake = context.lake
    rows, rejects = apply_rule(spec, gather(spec, units, inputs))
    rejected = reject_rows(spec, rejects)
    _keep_rejects(
        context, spec, arguments, writing.existing(lake, arguments.prefix + REJECTS.name, REJECTS, units), rejected
    )
    # A crash here is harmless: the rejects are found again, the same ones.
    said = feeding.summary(inputs.pinned, context.run_id)
    known = writing.existing(lake, table, spec, units)
    snapshot, count = writing.mend(lambda: context.spark, lake, table, spec, known, rows, said)
    context.committed(table, snapshot, rows=count)
    return count, len(rejected)


def _anew(
    context: Context, spec: TableSpec, table: str, inputs: Inputs, arguments: MedallionArguments
) -> tuple[int, int]:
    """The same rules on Spark, for every unit. One pass: rows and rejects come out of it together."""
    lake = context.lake
    staged = _staged(context, spec, inputs).persist()
    try:
        columns = [col(f"reject_{name}").alias(name) for name in REJECTS.schema.names[1:]]
        bad = staged.where("reject_reason IS NOT NULL").select(lit(spec.name).alias("table_name"), *columns).collect()
        rejected = list({(row["unit"], row["row_key"]): row.asDict() for row in bad}.values())
        into = arguments.prefix + REJECTS.name
        known = lake.tables.scan(into).to_pylist() if writing.head(lake, into) is not None else []
        _keep_rejects(context, spec, arguments, known, rejected)
        good = staged.where("reject_reason IS NULL").select(*spec.schema.names)
        snapshot = writing.make_anew(good, lake, table, feeding.summary(inputs.pinned, context.run_id))
        loaded = lake.tables.load(table).current_snapshot()
        rows = int(loaded.summary["total-records"] or 0) if loaded and loaded.summary else 0
        context.committed(table, snapshot, rows=rows)
        return rows, len(rejected)
    finally:
        staged.unpersist()


def _keep_rejects(
    context: Context,
    spec: TableSpec,
    arguments: MedallionArguments,
    known: list[dict[str, Any]],
    rejected: list[dict[str, Any]],
) -> None:
    """The table's rejects among the known are replaced, if they are others now."""
    mine = [row for row in known if row["table_name"] == spec.name]
    if sorted(map(repr, mine)) == sorted(map(repr, rejected)):
        return
    into = arguments.prefix + REJECTS.name
    said = {"strandline.of": spec.name, "strandline.run": context.run_id}
    snapshot, _ = writing.mend(lambda: context.spark, context.lake, into, REJECTS, mine, rejected, said)
    context.committed(into, snapshot, rejects_of=spec.name)


def _staged(context: Context, spec: TableSpec, inputs: Inputs) -> DataFrame:
    spark, places = context.spark, dict[str, str]()
    for name, at in inputs.pinned.items():
        table = f"{CATALOG}.{inputs.names[name]}"
        if at is None:  # nothing in it, but its columns are there
            places[name] = f"(SELECT * FROM {table} LIMIT 0)"
        else:
            places[name] = f"(SELECT * FROM {table} VERSION AS OF {at})"
    facts = spark.sql(all_facts(spec, places))
    # A few files are few tasks: every core gets its share of the work.
    spread = facts.repartition(spark.sparkContext.defaultParallelism * 2)
    return spread.mapInArrow(partial(transform_batches, spec), from_arrow_schema(staged_schema(spec)))


JOB = Job("medallion", MedallionArguments, medallion)

if __name__ == "__main__":
    sys.exit(run(JOB))
