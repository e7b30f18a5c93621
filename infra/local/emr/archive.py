"""Creates the JVM class archive that halves the start-up of local Spark: `python -m infra.local.emr.archive`.

The JVM archives the classes that it has loaded when it exits, so a short session first runs statements of each kind.
The archive is a cache in build/: without it everything works, only slower.
"""

from __future__ import annotations

import os
import sys
import time

from catalog import load_settings
from infra.local.server import ApiServer
from spark_jobs.session import class_archive, spark_session

BUCKET = "archive"

EXERCISE = (
    "CREATE NAMESPACE warm",
    "CREATE TABLE warm.{0} (id bigint, text string, at timestamp) USING iceberg PARTITIONED BY (days(at))"
    " TBLPROPERTIES ('write.merge.mode'='{1}', 'write.update.mode'='{1}', 'write.delete.mode'='{1}')",
    "INSERT INTO warm.{0} SELECT id, concat('note ', id), timestamp'2026-01-01' FROM range(20)",
    "MERGE INTO warm.{0} t USING (SELECT id, 'new' AS text FROM range(10, 30)) s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET text = s.text"
    " WHEN NOT MATCHED THEN INSERT (id, text, at) VALUES (s.id, s.text, timestamp'2026-01-02')",
    "UPDATE warm.{0} SET text = 'old' WHERE id < 3",
    "DELETE FROM warm.{0} WHERE id = 5",
    "SELECT text, count(*), max(at) FROM warm.{0} GROUP BY text ORDER BY text",
    "SELECT * FROM warm.{0}.snapshots",
)


def create_archive() -> None:
    target = class_archive()
    partial = target.with_suffix(f".{os.getpid()}")
    server = ApiServer()
    server.start()
    server.endpoint.client("s3").create_bucket(Bucket=BUCKET)
    os.environ |= server.endpoint.environment("archive")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={partial}"
    try:
        with spark_session("archive", load_settings({**os.environ, "STRANDLINE_BUCKET": BUCKET}), local=True) as spark:
            for table, mode in (("cow", "copy-on-write"), ("mor", "merge-on-read")):
                for statement in EXERCISE[0 if table == "cow" else 1 :]:
                    spark.sql(statement.format(table, mode)).collect()
        os.replace(partial, target)  # atomic: a JVM must not map an incomplete archive
    finally:
        partial.unlink(missing_ok=True)
        server.stop()


def main() -> int:
    target = class_archive()
    if target.exists():
        return 0
    sys.stderr.write("setup: archiving Spark's classes, so that every later start is quicker (a minute)\n")
    started = time.monotonic()
    for stale in target.parent.glob("spark-*.jsa"):  # of other versions of Java or Spark: 200 MB each
        stale.unlink()
    create_archive()
    sys.stderr.write(f"setup: {target.name} made in {time.monotonic() - started:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
