"""pyiceberg's private names are used in one module, so that an upgrade has one place to check."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
INTERNALS = ROOT / "catalog" / "iceberg" / "pyiceberg_internals.py"
ROOMS = ("catalog", "functions", "spark_jobs", "cli", "infra", "strandline")
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path != INTERNALS)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pyiceberg":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from filter(is_private, names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "pyiceberg":
                    yield from filter(is_private, alias.name.split("."))


def private_attributes(tree: ast.AST) -> set[str]:
    """Private attributes of objects other than `self`."""
    attributes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_private(node.attr))
    return {node.attr for node in attributes if not (isinstance(node.value, ast.Name) and node.value.id == "self")}


def test_the_walk_sees_private_names() -> None:
    tree = ast.parse(INTERNALS.read_text())
    assert "_read_deletes" in set(private_imports(tree))
    assert "_get_glue_table" in private_attributes(tree)
    assert set(private_imports(ast.parse("import pyiceberg._x\nfrom pyiceberg.io import a, _b"))) == {"_x", "_b"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_uses_no_private_name_of_pyiceberg(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not set(private_imports(tree)), "import it in catalog/iceberg/pyiceberg_internals.py, with a plain name"
    assert not private_attributes(tree) & private_attributes(ast.parse(INTERNALS.read_text()))
