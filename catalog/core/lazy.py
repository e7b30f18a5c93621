"""Lazy exports: a package's `__init__.pyi` lists what others may import, and each name is loaded on first use.

A Lambda image has only the packages of its own function, and a cold start pays for every module it imports: so
`from catalog.timeline import Leaf` must not load SlateDB. The stub is the only list; type checkers read it as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str, init_file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package, from the `from … import …` lines of its stub.

    >>> names, load, _ = lazy_exports("catalog", __file__.replace("core/lazy.py", "__init__.py"))
    >>> load("Settings").__module__
    'catalog.core.settings'
    """
    stub = Path(init_file).with_suffix(".pyi")
    modules = {
        alias.name: node.module
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} exports no {name!r}: see {stub.name}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(modules), load, lambda: sorted(modules)
