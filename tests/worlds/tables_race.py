"""What a writer process does in the race of the concurrency tests: upserts, each with a token that tells its rows."""

from __future__ import annotations

import random
from typing import Any

from catalog.tables.manager import Tables

KEYS = 12


def batch(writer: int, turn: int) -> list[dict[str, Any]]:
    """The rows of one upsert: the same in every process, so that the model can apply them too."""
    chosen = random.Random(writer * 1000 + turn).sample(range(KEYS), 5)
    return [{"id": key, "who": f"{writer}/{turn}"} for key in chosen]


def write(tables: Tables, name: str, writer: int, turns: int) -> None:
    for turn in range(turns):
        tables.upsert(name, batch(writer, turn), token=f"{writer}/{turn}")


def replayed(tables: Tables, name: str) -> dict[int, str]:
    """The model: every upsert that the table's history names, in its order, applied to a dict."""
    rows: dict[int, str] = {}
    for snapshot in reversed(tables.history(name)):
        writer, _, turn = str(snapshot.summary["strandline.token"]).partition("/")
        rows |= {row["id"]: row["who"] for row in batch(int(writer), int(turn))}
    return rows
