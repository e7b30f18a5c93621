"""`transform`: a table from other tables, by SQL or by a Python function. Run again on the same inputs it does nothing.

    --sql "SELECT … FROM silver.processed_notes"      or    --module package.module:function
The function takes the session and gives a frame. Inputs are named, so that each is read at one snapshot throughout
and the commit can say which: in SQL they stand as `{silver.processed_notes}` or by their plain name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from typing import Any, Literal

from pydantic import Field, model_validator
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from catalog.errors import Invalid, NotFound
from spark_jobs.arguments import TABLE
from spark_jobs.inputs import INPUTS, Inputs, summary
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.outputs import head, snapshot_properties
from spark_jobs.session import CATALOG

RECIPE = "strandline.recipe"
"""Summary property: digest of how the rows were made. With the inputs it names the work that a commit did."""


FileFormat = Literal["parquet", "orc"]


class TransformArguments(Arguments):
    table: str = Field(pattern=TABLE, description="where the rows go; made if it is not there")
    inputs: list[str] = Field(default_factory=list)
    sql: str | None = None
    module: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    mode: Literal["append", "overwrite", "merge"] = "overwrite"
    key: list[str] = Field(default_factory=list, description="for merge: the columns that name a row")
    again: bool = Field(default=False, description="also if these inputs were dealt with before")
    file_format: FileFormat = Field(default="parquet", description="of a table that is made")

    @model_validator(mode="after")
    def _check(self) -> TransformArguments:
        if (self.sql is None) == (self.module is None):
            raise ValueError("give either sql or module")
        if (self.mode == "merge") != bool(self.key):
            raise ValueError("merge needs a key, and nothing else takes one")
        if wrong := [name for name in self.inputs if not re.match(TABLE, name)]:
            raise ValueError(f"no tables: {', '.join(wrong)}")
        return self


def transform(context: Context, arguments: TransformArguments) -> Mapping[str, Any]:
    inputs = Inputs.pin(context.lake, {name: name for name in arguments.inputs})
    for name, at in inputs.pinned.items():
        if at is None:
            raise NotFound(f"the input {name} is not there, or has no rows yet", subject=name)
        context.reads(name, at)
    recipe = f"{arguments.sql}\n{arguments.module}\n{arguments.mode}\n{arguments.key}"
    said = {**summary(inputs.pinned, context.run_id), RECIPE: sha256(recipe.encode()).hexdigest()}
    if not arguments.again and arguments.inputs and _done(context, arguments.table, said):
        return {"how": "nothing new"}
    with context.stage("transform") as stage:
        frame = _frame(context, arguments, inputs)
        write(context, arguments, frame, said)
        snapshot = context.lake.tables.load(arguments.table).current_snapshot()
        told = snapshot.summary if snapshot is not None else None
        stage.rows, stage.bytes = (int((told[n] or 0) if told else 0) for n in ("added-records", "added-files-size"))
    context.committed(arguments.table, head(context.lake, arguments.table), rows=stage.rows)
    return {"how": arguments.mode, "rows": stage.rows}


def write(context: Context, arguments: TransformArguments, frame: DataFrame, said: Mapping[str, str]) -> None:
    """One commit, with what is said in its summary. A table that is not there is made with the frame's columns."""
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
        with snapshot_properties(spark, said):
            spark.sql(
                f"MERGE INTO {CATALOG}.{table} t USING transformed s ON {on} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        return
    writer = frame.writeTo(f"{CATALOG}.{table}").option("check-nullability", "false")
    for name, value in said.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    if mode == "append":
        writer.append()
    else:
        writer.overwrite(lit(True))


def pinned_sql(sql: str, inputs: Inputs) -> str:
    """The query with every input at its snapshot. What is not named as an input is read as it is."""
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
        make = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise Invalid(f"--module {arguments.module} cannot be had: {error}") from None
    frame = make(context.spark, dict(inputs.pinned))
    if not isinstance(frame, DataFrame):
        raise Invalid(f"{arguments.module} gives a {type(frame).__name__}, not a frame")
    return frame


def _done(context: Context, table: str, said: Mapping[str, str]) -> bool:
    """Whether a commit of this table's history did this very work."""
    try:
        history = context.lake.tables.history(table)
    except NotFound:
        return False
    wanted = {name: said[name] for name in (INPUTS, RECIPE)}
    return any(s.summary is not None and {n: s.summary[n] for n in wanted} == wanted for s in history)


JOB = Job("transform", TransformArguments, transform)

if __name__ == "__main__":
    sys.exit(run(JOB))
