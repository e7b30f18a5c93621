"""The lake itself. Programs that have its AWS credentials start with `open_lake`.

`__init__.pyi` lists what can be imported from here. Each name is loaded at its first use, and so is the loader:
`catalog.merkle` can be imported without any other part of the lake.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    from catalog.core.lazy import lazy_exports

    _, load, _ = lazy_exports(__name__, __file__)
    return load(name)
