"""`backfill`: computes a range of days again by SQL, with one commit for each day.

The query computes one day, which it names `:day`. The day's rows replace the rows with that day in the target's day
column. The commit's summary names the day, so a run after a crash continues with the first missing day.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import date, timedelta
from hashlib import sha256
from typing import Any

from pydantic import Field, model_validator
from pyspark.sql.functions import col, lit

from catalog import Invalid, NotFound
from spark_jobs.arguments import TABLE
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.outputs import head
from spark_jobs.session import CATALOG

DAY = "strandline.backfill"
MAX_DAYS = 3660
_DAY_PARAMETER = re.compile(r"(?<![\w:]):day\b")


class BackfillArguments(Arguments):
    table: str = Field(pattern=TABLE)
    sql: str = Field(min_length=1)
    day_column: str = Field(pattern=r"^\w+$", description="of type date")
    first: date
    last: date
    again: bool = Field(default=False, description="also days that this query has filled before")

    @model_validator(mode="after")
    def _check(self) -> BackfillArguments:
        if not 0 <= (self.last - self.first).days < MAX_DAYS:
            raise ValueError(f"from {self.first} to {self.last} is not a range of 1 to {MAX_DAYS} days")
        if not _DAY_PARAMETER.search(self.sql):
            raise ValueError("the query does not use :day")
        return self


def backfill(context: Context, arguments: BackfillArguments) -> Mapping[str, Any]:
    tables, recipe = context.lake.tables, sha256(arguments.sql.encode()).hexdigest()[:16]
    try:
        history = tables.history(arguments.table)
    except NotFound:
        raise NotFound(f"{arguments.table} does not exist: create it first", subject=arguments.table) from None
    filled = {str(snapshot.summary[DAY]) for snapshot in history if snapshot.summary is not None}
    done, skipped = [], 0
    for number in range((arguments.last - arguments.first).days + 1):
        day = arguments.first + timedelta(days=number)
        token = f"{recipe}/{day}"
        if token in filled and not arguments.again:
            skipped += 1
            continue
        with context.stage(str(day)) as stage:
            # Substituted as text: Iceberg's SQL extensions drop the parameters of a query.
            frame = context.spark.sql(_DAY_PARAMETER.sub(f"DATE'{day}'", arguments.sql))
            if arguments.day_column not in frame.columns:
                raise Invalid(
                    f"the query has no column {arguments.day_column}; its columns are {', '.join(frame.columns)}"
                )
            day_rows = frame.where(col(arguments.day_column) == lit(day))
            writer = day_rows.writeTo(f"{CATALOG}.{arguments.table}").option("check-nullability", "false")
            writer.option(f"snapshot-property.{DAY}", token).overwrite(col(arguments.day_column) == lit(day))
            snapshot = tables.load(arguments.table).current_snapshot()
            summary = snapshot.summary if snapshot is not None else None
            stage.rows = int((summary["added-records"] or 0) if summary else 0)
        context.committed(arguments.table, head(context.lake, arguments.table), day=str(day), rows=stage.rows)
        done.append(str(day))
    return {"filled": done, "skipped": skipped}


JOB = Job("backfill", BackfillArguments, backfill)

if __name__ == "__main__":
    sys.exit(run(JOB))
