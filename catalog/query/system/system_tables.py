"""The rows of a statement's references to the lake itself, and the SQL that stands for each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from catalog.query.run.engine import Session, quote_identifier
from catalog.query.sql.system_refs import SystemRef

Replacement = tuple[int, int, str]


@dataclass(frozen=True)
class SystemTables:
    """The references of one statement with their rows, which were made when it was bound."""

    rows: tuple[tuple[SystemRef, pa.Table], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rows)

    def placeholders(self) -> list[Replacement]:
        """For the syntax tree: subqueries with the same columns, without types and rows."""
        return [
            _replace(ref, f"(SELECT {', '.join(f'NULL AS {quote_identifier(name)}' for name in table.column_names)})")
            for ref, table in self.rows
        ]

    def registered(self, session: Session, register: Callable[[pa.Table], str] | None = None) -> list[Replacement]:
        """For the engine: the rows themselves, registered in its session."""
        register = register or (lambda rows: session.register(f"strandline_system_{id(rows)}", rows))
        return [_replace(ref, f"(SELECT * FROM {register(table)})") for ref, table in self.rows]  # noqa: S608


NO_SYSTEM_TABLES = SystemTables()


def _replace(ref: SystemRef, source: str) -> Replacement:
    alias = "" if ref.aliased else f" AS {quote_identifier(ref.name.rpartition('.')[2])}"
    return ref.start, ref.end, source + alias
