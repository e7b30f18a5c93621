"""What every function's cold start pays for: the heavy engines are imported by nobody who may never use them."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys

import functions

HEAVY = ("datafusion", "duckdb", "lance", "lancedb", "pyspark", "sqlglot", "wordllama")


def test_no_handler_imports_an_engine_at_start() -> None:
    modules = [f"functions.{module.name}" for module in pkgutil.iter_modules(functions.__path__)]
    assert "functions.api" in modules
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
