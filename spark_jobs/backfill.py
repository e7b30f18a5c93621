"""`backfill`: a stretch of days made anew by SQL, a day in a commit, each day once.

The query stands for one day, with `:day` where the day belongs. A day's rows replace those of that day by the target's
day column; its commit says so in its summary, so a run that was killed goes on with the first day that is missing.
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

from catalog.errors import Invalid, NotFound
from spark_jobs.arguments import TABLE
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.outputs import head
from spark_jobs.session import CATALOG

DAY = "strandline.backfill"
MOST_DAYS = 3660
_DAY = re.compile(r"(?<![\w:]):day\b")


class BackfillArguments(Arguments):
    table: str = Field(pattern=TABLE)
    sql: str = Field(min_length=1)
    day_column: str = Field(pattern=r"^\w+$", description="of type date")
    first: date
    last: date
    again: bool = Field(default=False, description="also days that were filled by this query before")

    @model_validator(mode="after")
    def _check(self) -> BackfillArguments:
        if not 0 <= (self.last - self.first).days < MOST_DAYS:
            raise ValueError(f"from {self.first} to {self.last} is no stretch of 1 to {MOST_DAYS} days")
        if not _DAY.search(self.sql):
            raise ValueError("the query has no :day in it")
        return self


def backfill(context: Context, arguments: BackfillArguments) -> Mapping[str, Any]:
    tables, recipe = context.lake.tables, sha256(arguments.sql.encode()).hexdigest()[:16]
    try:
        history = tables.history(arguments.table)
    except NotFound:
        raise NotFound(f"{arguments.table} is not there: create it first", subject=arguments.table) from None
    filled = {str(snapshot.summary[DAY]) for snapshot in history if snapshot.summary is not None}
    done, skipped = [], 0
    for number in range((arguments.last - arguments.first).days + 1):
        day = arguments.first + timedelta(days=number)
        mark = f"{recipe}/{day}"
        if mark in filled and not arguments.again:
            skipped += 1
            continue
        with context.stage(str(day)) as stage:
            # As text: Iceberg's SQL extensions lose the parameters of a query on their way to Spark.
            frame = context.spark.sql(_DAY.sub(f"DATE'{day}'", arguments.sql))
            if arguments.day_column not in frame.columns:
                raise Invalid(f"the query gives no column {arguments.day_column}; it gives {', '.join(frame.columns)}")
            this_day = frame.where(col(arguments.day_column) == lit(day))
            writer = this_day.writeTo(f"{CATALOG}.{arguments.table}").option("check-nullability", "false")
            writer.option(f"snapshot-property.{DAY}", mark).overwrite(col(arguments.day_column) == lit(day))
            snapshot = tables.load(arguments.table).current_snapshot()
            told = snapshot.summary if snapshot is not None else None
            stage.rows = int((told["added-records"] or 0) if told else 0)
        context.committed(arguments.table, head(context.lake, arguments.table), day=str(day), rows=stage.rows)
        done.append(str(day))
    return {"filled": done, "skipped": skipped}


JOB = Job("backfill", BackfillArguments, backfill)

if __name__ == "__main__":
    sys.exit(run(JOB))
