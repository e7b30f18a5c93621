"""`maintain`: keeps a table fast and its bucket clean without changing a row.

remove_orphans     removes objects below the table that no snapshot refers to and that are old enough to be abandoned
rewrite_manifests  merges small manifests
analyze            counts the distinct values of each column, for planners (a Puffin file beside the metadata)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlparse

from pydantic import Field

from spark_jobs.arguments import TABLE
from spark_jobs.job import Arguments, Context, Job, run
from spark_jobs.outputs import head
from spark_jobs.session import CATALOG

_LISTING = "strandline_listing"


class MaintainArguments(Arguments):
    table: str = Field(pattern=TABLE)
    do: list[Literal["remove_orphans", "rewrite_manifests", "analyze"]] = Field(min_length=1)
    older_than_days: float = Field(
        default=3.0, ge=1.0, description="of orphans: younger ones may belong to a running write"
    )
    dry_run: bool = Field(default=False, description="of orphans: only list them")


def maintain(context: Context, arguments: MaintainArguments) -> Mapping[str, Any]:
    results: dict[str, Any] = {}
    for action in dict.fromkeys(arguments.do):
        with context.stage(action):
            results[action] = _ACTIONS[action](context, arguments)
    return results


def _remove_orphans(context: Context, arguments: MaintainArguments) -> list[str]:
    """Lists S3 on the driver: Spark would need a Hadoop file system for it."""
    location = context.lake.tables.load(arguments.table).location()
    url = urlparse(location)
    pages = context.lake.s3.get_paginator("list_objects_v2").paginate(
        Bucket=url.netloc, Prefix=url.path.strip("/") + "/"
    )
    objects = [
        (f"s3://{url.netloc}/{listed['Key']}", listed["LastModified"])
        for page in pages
        for listed in page.get("Contents", ())
    ]
    spark = context.spark
    spark.createDataFrame(objects, "file_path string, last_modified timestamp").createOrReplaceTempView(_LISTING)
    limit = datetime.now(UTC) - timedelta(days=arguments.older_than_days)
    rows = spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{arguments.table}', file_list_view => '{_LISTING}', "
        f"older_than => TIMESTAMP '{limit:%Y-%m-%d %H:%M:%S}', dry_run => {str(arguments.dry_run).lower()})"
    ).collect()
    return sorted(row[0] for row in rows)


def _rewrite_manifests(context: Context, arguments: MaintainArguments) -> dict[str, int]:
    call = f"CALL {CATALOG}.system.rewrite_manifests(table => '{arguments.table}')"
    before, (row,) = head(context.lake, arguments.table), context.spark.sql(call).collect()
    if (after := head(context.lake, arguments.table)) != before:
        context.committed(arguments.table, after, rewritten_manifests=row.rewritten_manifests_count)
    return {"rewritten": row.rewritten_manifests_count, "added": row.added_manifests_count}


def _analyze(context: Context, arguments: MaintainArguments) -> str | None:
    if head(context.lake, arguments.table) is None:
        return None
    (row,) = context.spark.sql(f"CALL {CATALOG}.system.compute_table_stats(table => '{arguments.table}')").collect()
    context.committed(arguments.table, head(context.lake, arguments.table), statistics=row.statistics_file)
    return str(row.statistics_file)


_ACTIONS: dict[str, Callable[[Context, MaintainArguments], Any]] = {
    "remove_orphans": _remove_orphans,
    "rewrite_manifests": _rewrite_manifests,
    "analyze": _analyze,
}

JOB = Job("maintain", MaintainArguments, maintain)

if __name__ == "__main__":
    sys.exit(run(JOB))
