"""`transform`: computes a table from other tables, by SQL or by a Python function. Does nothing for unchanged inputs.

    --sql "SELECT … FROM silver.processed_notes"      or    --module package.module:function

The function takes the session and the inputs' snapshots, and returns a frame. Inputs are named, so that each is read at
one snapshot, which the commit's summary records; SQL names them `{silver.processed_notes}` or silver.processed_notes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from typing import Any, Literal

from pydantic import Field, model_validator
from pyiceberg.table.snapshots import Operation
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from catalog import Invalid, NotFound
from spark_jobs.arguments import TABLE
from spark_jobs.inputs import INPUTS, Inputs, input_summary
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.outputs import head, snapshot_properties
from spark_jobs.session import CATALOG

RECIPE = "strandline.recipe"
"""Summary property: digest of the computation. Together with the inputs it identifies a commit's work."""


FileFormat = Literal["parquet", "orc"]


class TransformArguments(Arguments):
    table: str = Field(pattern=TABLE, description="the output; created if it does not exist")
    inputs: list[str] = Field(default_factory=list)
    sql: str | None = None
    module: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    mode: Literal["append", "overwrite", "merge"] = "overwrite"
    key: list[str] = Field(default_factory=list, description="for merge: the columns that identify a row")
    again: bool = Field(default=False, description="even if these inputs were processed before")
    file_format: FileFormat = Field(default="parquet", description="of a table that is created")

    @model_validator(mode="after")
    def _check(self) -> TransformArguments:
        if (self.sql is None) == (self.module is None):
            raise ValueError("give either sql or module")
        if (self.mode == "merge") != bool(self.key):
            raise ValueError("mode merge needs a key, and other modes take none")
        if invalid := [name for name in self.inputs if not re.match(TABLE, name)]:
            raise ValueError(f"not table names: {', '.join(invalid)}")
        return self


def transform(context: Context, arguments: TransformArguments) -> Mapping[str, Any]:
    inputs = Inputs.pin(context.lake, {name: name for name in arguments.inputs})
    for name, at in inputs.pinned.items():
        if at is None:
            raise NotFound(f"the input {name} does not exist, or has no rows yet", subject=name)
        context.reads(name, at)
    recipe = f"{arguments.sql}\n{arguments.module}\n{arguments.mode}\n{arguments.key}"
    summary = {**input_summary(inputs.pinned, context.run_id), RECIPE: sha256(recipe.encode()).hexdigest()}
    if not arguments.again and arguments.inputs and _done(context, arguments, summary):
        return {"how": "nothing new"}
    with context.stage("transform") as stage:
        frame = _frame(context, arguments, inputs)
        write(context, arguments, frame, summary)
        snapshot = context.lake.tables.load(arguments.table).current_snapshot()
        added = snapshot.summary if snapshot is not None else None
        stage.rows, stage.bytes = (int((added[n] or 0) if added else 0) for n in ("added-records", "added-files-size"))
    context.committed(arguments.table, head(context.lake, arguments.table), rows=stage.rows)
    return {"how": arguments.mode, "rows": stage.rows}


def write(context: Context, arguments: TransformArguments, frame: DataFrame, summary: Mapping[str, str]) -> None:
    """Writes the frame in one commit with these summary properties. Creates a missing table with its columns."""
    spark, table, mode, key = context.spark, arguments.table, arguments.mode, arguments.key
    try:
        context.lake.tables.load(table)
    except NotFound:
        database = table.partition(".")[0]
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{database}")
        columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
        properties = f"'format-version'='2', 'write.format.default'='{arguments.file_format}'"
        spark.sql(f"CREATE TABLE {CATALOG}.{table} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
    if mode == "merge":
        frame.createOrReplaceTempView("transformed")
        on = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in key)
        with snapshot_properties(spark, summary):
            spark.sql(
                f"MERGE INTO {CATALOG}.{table} t USING transformed s ON {on} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        return
    writer = frame.writeTo(f"{CATALOG}.{table}").option("check-nullability", "false")
    for name, value in summary.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    if mode == "append":
        writer.append()
    else:
        writer.overwrite(lit(True))


def pinned_sql(sql: str, inputs: Inputs) -> str:
    """The query with every input at its snapshot. Tables that are not inputs are read at their current snapshot."""
    for name, at in inputs.pinned.items():
        table = inputs.names[name]
        pinned = f"(SELECT * FROM {CATALOG}.{table} VERSION AS OF {at})"
        sql = re.sub(rf"\{{{re.escape(name)}\}}|(?<![\w.]){re.escape(name)}(?![\w.])", pinned, sql)
    return sql


def _frame(context: Context, arguments: TransformArguments, inputs: Inputs) -> DataFrame:
    if arguments.sql is not None:
        return context.spark.sql(pinned_sql(arguments.sql, inputs))
    assert arguments.module is not None
    module, _, function = arguments.module.partition(":")
    try:
        compute = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise Invalid(f"--module {arguments.module} cannot be imported: {error}") from None
    frame = compute(context.spark, dict(inputs.pinned))
    if not isinstance(frame, DataFrame):
        raise Invalid(f"{arguments.module} returned a {type(frame).__name__}, not a Spark DataFrame")
    return frame


def _done(context: Context, arguments: TransformArguments, summary: Mapping[str, str]) -> bool:
    """Whether the table already has the result of this computation from these inputs.

    Appended rows are there if any commit of the table's history appended them. What overwrites or merges must be the
    last commit that changed rows: another computation, or another writer, may have replaced its result since.
    """
    try:
        history = context.lake.tables.history(arguments.table)
    except NotFound:
        return False
    if arguments.mode != "append":
        history = [s for s in history if s.summary is None or s.summary.operation is not Operation.REPLACE][:1]
    work = {name: summary[name] for name in (INPUTS, RECIPE)}
    return any(s.summary is not None and {n: s.summary[n] for n in work} == work for s in history)


JOB = Job("transform", TransformArguments, transform)

if __name__ == "__main__":
    sys.exit(run(JOB))
