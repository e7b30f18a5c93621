"""write_rows.py TABLE COUNT: writes COUNT rows, and says on stdout what it was started with."""

import json
import os
import sys

from catalog.core.settings import load_settings
from spark_jobs.session import spark_session

table, count = sys.argv[1], int(sys.argv[2])
with spark_session("write_rows", load_settings(), local=False) as spark:
    spark.sql(f"CREATE TABLE {table} (id bigint, text string) USING iceberg")
    spark.sql(f"INSERT INTO {table} SELECT id, concat('row ', id) FROM range({count})")
    seen = {
        "application": spark.conf.get("spark.strandline.application", ""),
        "run": spark.conf.get("spark.strandline.run", ""),
        "submit": spark.conf.get("spark.strandline.submit", ""),
        "variable": os.environ.get("GREETING", ""),
        "as": os.environ["AWS_ACCESS_KEY_ID"],
    }
sys.stdout.write(json.dumps(seen) + "\n")
