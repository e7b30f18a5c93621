"""Strandline from Python: tables, SQL, changes and proofs of a lake, over its HTTP API.

    import strandline

    lake = strandline.connect()
    lake.sql("select station, max(metres) from silver.tides group by station")
    lake.table("silver.tides").insert([{"station": "Brest", "metres": 4.2}])

Needs httpx and pyarrow, and cryptography to verify; pandas and polars are used if installed. `strandline.verify` checks
proofs offline, so that nobody has to trust the lake's operator. Every name is imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline import verify
    from strandline.changes import ChangeSet
    from strandline.client import Pending
    from strandline.errors import (
        Conflict,
        Denied,
        Internal,
        Invalid,
        MissingDependency,
        NotFound,
        StrandlineError,
        TooLarge,
        Unauthenticated,
        Unavailable,
        Unverified,
    )
    from strandline.ingest import IngestedFile
    from strandline.lake import Lake, connect
    from strandline.proofs import Proof
    from strandline.row_proofs import AnswerProof, RowProof
    from strandline.rows import Result, Rows
    from strandline.table import Table

    __version__: str

__all__ = [
    "AnswerProof",
    "ChangeSet",
    "Conflict",
    "Denied",
    "IngestedFile",
    "Internal",
    "Invalid",
    "Lake",
    "MissingDependency",
    "NotFound",
    "Pending",
    "Proof",
    "Result",
    "RowProof",
    "Rows",
    "StrandlineError",
    "Table",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unverified",
    "connect",
    "verify",
]

if not TYPE_CHECKING:
    _MODULES = {
        "ChangeSet": "changes",
        "IngestedFile": "ingest",
        "Lake": "lake",
        "Pending": "client",
        "Proof": "proofs",
        "Result": "rows",
        "AnswerProof": "row_proofs",
        "RowProof": "row_proofs",
        "Rows": "rows",
        "Table": "table",
        "connect": "lake",
    }

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("strandline")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        if name == "verify":
            return import_module("strandline.verify")
        return getattr(import_module(f"strandline.{_MODULES.get(name, 'errors')}"), name)

    def __dir__() -> list[str]:
        return __all__
