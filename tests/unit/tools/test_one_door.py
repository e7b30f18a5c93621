"""One door for foreign bytes: nothing but `catalog/formats` parses what strangers send, except where a reason is given.

A parser that is not listed here fails the test, and so does an entry that no module needs any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOOR = "catalog/formats/"
ROOMS = ("catalog", "functions", "spark_jobs", "strandline", "cli")
PARSERS = frozenset(
    {
        "PIL", "bz2", "csv", "fastavro", "gzip", "lzma", "marshal", "pickle", "pyarrow.csv", "pyarrow.feather",
        "pyarrow.ipc", "pyarrow.json", "pyarrow.orc", "pyarrow.parquet", "pyromark", "shelve", "tarfile", "tomllib",
        "xml", "yaml", "zipfile", "zlib",
    }
)  # fmt: skip
OPENERS = frozenset({"open_stream", "open_file", "read_message", "read_record_batch", "read_schema", "read_tensor"})
"""Of pyarrow.ipc, which is reached through `pa.ipc` without an import."""

WRITES = "writes only: rows of ours"
OURS = "objects below tables/ that a commit names: written by the lake, or by an engine with a writer's AWS permissions"
NOTES = "Markdown of notes that are rows: text that passed the door, with its size"
RESPONSE = "a client's own responses from the lake that it chose; the rows are its own"
EXCEPTIONS = {
    "catalog/tables/file_writer.py": ({"pyarrow.parquet"}, WRITES),
    "catalog/tables/history_rewrite.py": ({"pyarrow.parquet"}, OURS),
    "catalog/changes/row_reader.py": ({"pyarrow.orc", "pyarrow.parquet"}, OURS),
    "catalog/changes/serialization.py": (
        {"pyarrow.ipc"},
        "a change feed: its bytes pass the door's Arrow reader first",
    ),
    "catalog/query/scan/dictionary_columns.py": ({"pyarrow.parquet"}, OURS),
    "catalog/query/scan/parquet_footers.py": ({"pyarrow.parquet"}, OURS),
    "catalog/query/scan/parquet_objects.py": ({"pyarrow.parquet"}, OURS),
    "catalog/query/scan/relations.py": ({"pyarrow.parquet"}, OURS),
    "catalog/query/scan/row_group_statistics.py": ({"pyarrow.parquet"}, OURS),
    "catalog/query/spark/spark_queries.py": ({"pyarrow.parquet"}, "a Spark job's result below results/, the job's own"),
    "catalog/query/spark/query_record.py": ({"pyarrow.ipc"}, "a schema in a record of ours below results/"),
    "catalog/timeline/verify/statistics.py": ({"pyarrow.parquet"}, OURS),
    "catalog/notes/prose.py": ({"pyromark"}, NOTES),
    "functions/api/row_formats.py": ({"csv", "pyarrow.parquet"}, WRITES),
    "spark_jobs/query.py": ({"pyarrow.parquet"}, WRITES),
    "strandline/changes.py": ({"pyarrow.ipc"}, RESPONSE),
    "strandline/connection.py": ({"pyarrow.ipc"}, RESPONSE),
    "cli/demo_notes.py": ({"csv"}, WRITES),
    "cli/imports.py": ({"pyarrow.parquet"}, "a person's own file, on that person's machine"),
    "cli/job.py": ({"gzip"}, "logs of the lake's own jobs"),
    "cli/log_copies.py": ({"tarfile"}, WRITES),
    "cli/query.py": ({"pyarrow.csv", "pyarrow.parquet"}, WRITES),
    "cli/row_files.py": ({"pyarrow.parquet"}, "a person's own file, on that person's machine"),
}


def parsers_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names = list[str]()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute) and node.attr in OPENERS and ast.unparse(node.value).endswith("ipc"):
            names = ["pyarrow.ipc"]
        for name in names:
            parts = name.split(".")
            yield from PARSERS & {".".join(parts[:length]) for length in range(1, len(parts) + 1)}


def test_nothing_else_parses_foreign_bytes() -> None:
    found = dict[str, set[str]]()
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            parsers = set() if name.startswith(DOOR) else set(parsers_in(path))
            if parsers:
                found[name] = parsers
    declared = {name: parsers for name, (parsers, _) in EXCEPTIONS.items()}
    assert {name: new for name, parsers in found.items() if (new := parsers - declared.get(name, set()))} == {}
    assert [name for name in declared if name not in found and (ROOT / name).exists()] == []


def test_the_test_sees_every_way_to_import_one(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    for text, parser in {
        "import yaml": "yaml",
        "import pyarrow.json as pj": "pyarrow.json",
        "from pyarrow import parquet": "pyarrow.parquet",
        "from pyarrow.csv import read_csv": "pyarrow.csv",
        "def f():\n    import pickle": "pickle",
        "import pyarrow as pa\npa.ipc.open_stream(b'')": "pyarrow.ipc",
        "from xml.etree import ElementTree": "xml",
    }.items():
        module.write_text(text)
        assert set(parsers_in(module)) == {parser}, text
