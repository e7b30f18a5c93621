"""TPC-DS's tables and its 99 queries, by DuckDB's extension in an environment of its own (tools/setup/separate.py)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tools.setup.separate import TPCDS

# Runs there. No code or text of the suite is kept here: it comes out of the package when it is asked for.
GENERATE = """
import json, pathlib, sys
import duckdb, duckdb_extension_tpcds as package
folder, scale = pathlib.Path(sys.argv[1]), float(sys.argv[2])
(extension,) = pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension")
duck = duckdb.connect()
duck.execute(f"LOAD '{extension}'")
duck.execute(f"CALL dsdgen(sf={scale})")
for (name,) in duck.execute("SELECT table_name FROM duckdb_tables()").fetchall():
    duck.execute(f"COPY {name} TO '{folder / name}.parquet'")
queries = duck.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall()
(folder / "queries.json").write_text(json.dumps(queries))
"""


def generate(folder: Path, scale: float) -> dict[int, str]:
    """Writes one Parquet file per table. Returns the queries by number."""
    TPCDS.ensure()
    command = [TPCDS.python, "-c", GENERATE, str(folder), str(scale)]
    subprocess.run(command, check=True, capture_output=True)
    return {number: text.strip().rstrip(";") for number, text in json.loads((folder / "queries.json").read_text())}
