"""Roles: what a caller may do with which tables. Pure.

A role is `<level>:<tables>`: `reader:gold.notes`, `writer:bronze.*`, `admin:*`; `admin` alone is `admin:*`. A writer
may read, an admin may write. A reader sees rows, changes, history and proofs; a writer writes rows, named snapshots and
watermarks; an admin creates, alters and drops tables. `eraser:<tables>` stands beside them: it may erase rows from a
table's history, and do nothing else; no other role may.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

_NAME = r"[a-z0-9_]{1,128}"
_ROLE = re.compile(rf"(?P<level>reader|writer|admin|eraser):(?P<tables>\*|{_NAME}\.(?:\*|{_NAME}))")


class Level(IntEnum):
    ERASE = 0
    """Below all others: none of them includes it, and it includes none."""
    READ = 1
    WRITE = 2
    ADMIN = 3


_LEVELS = {"eraser": Level.ERASE, "reader": Level.READ, "writer": Level.WRITE, "admin": Level.ADMIN}


@dataclass(frozen=True, slots=True)
class Role:
    """`tables` is `*`, `<database>.*` or one table's name."""

    level: Level
    tables: str

    @classmethod
    def parse(cls, text: str) -> Role | None:
        """None if the text is not such a role: tokens also carry roles for other programs."""
        if text == "admin":
            return cls(Level.ADMIN, "*")
        match = _ROLE.fullmatch(text)
        return cls(_LEVELS[match["level"]], match["tables"]) if match else None

    def covers(self, table: str) -> bool:
        if self.tables == "*":
            return True
        database, dot, _ = table.partition(".")
        return self.tables == table or (bool(dot) and self.tables == f"{database}.*")


def level_on(roles: Iterable[Role], table: str) -> Level | None:
    """The highest level that the roles give on the table; None: the caller may not know that it exists."""
    return max((role.level for role in roles if role.level != Level.ERASE and role.covers(table)), default=None)


def may_erase(roles: Iterable[Role], table: str) -> bool:
    """Whether one of the roles is to erase rows of the table."""
    return any(role.level == Level.ERASE and role.covers(table) for role in roles)
