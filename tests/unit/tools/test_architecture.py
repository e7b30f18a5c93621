"""docs/architecture.md leads to the code: every hop's file and name exist, and doors open to what they list."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOPS = re.findall(r"^\d+\. `([\w/]+\.py)` `([\w.]+)`", (ROOT / "docs" / "architecture.md").read_text(), flags=re.M)
DOORS = sorted(ROOT.glob("catalog/**/__init__.pyi"))


def defined(path: Path) -> set[str]:
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            names |= {f"{node.name}.{one.name}" for one in inner if isinstance(one, ast.FunctionDef)}
    return names


@pytest.mark.parametrize(("file", "name"), HOPS, ids=[f"{file}:{name}" for file, name in HOPS])
def test_a_hop_leads_to_code(file: str, name: str) -> None:
    assert name in defined(ROOT / file)


def test_both_ways_are_described() -> None:
    assert len(HOPS) > 20


@pytest.mark.parametrize("stub", DOORS, ids=[stub.parent.name for stub in DOORS])
def test_a_door_opens_to_what_it_lists(stub: Path) -> None:
    room = import_module(".".join(stub.parent.relative_to(ROOT).parts))
    for node in ast.parse(stub.read_text()).body:
        assert isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names:
            assert alias.asname == alias.name, f"{stub}: write `import {alias.name} as {alias.name}`"
            assert getattr(room, alias.name) is getattr(import_module(node.module), alias.name)


def test_a_name_that_a_door_does_not_list_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"__init__\.pyi"):
        import_module("catalog.timeline").Frontier  # noqa: B018
