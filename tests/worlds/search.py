"""A table with vectors, asked twice: with the direct way of answering a search, and with the engine alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from catalog.core.errors import LakeError
from catalog.lake import Lake
from catalog.query.plan.planning import Plan
from catalog.query.run.engine import Session
from catalog.query.run.queries import Queries
from catalog.query.run.results import Answer

TABLE, ID = "silver.things", "silver.things.text"
SCHEMA = {
    "id": "long",
    "text": "string",
    "stars": "int",
    "weight": "double",
    "flag": "boolean",
    "word": "string",
    "day": "date",
    "at": "timestamptz",
    "price": "decimal(9,2)",
    "Odd Name": "string",
    "author": "long",
}
KEPT = ["stars", "weight", "flag", "word", "day", "at", "price", "Odd Name"]
WORDS = [
    "tide",
    "onion",
    "compiler",
    "roses",
    "harbour",
    "pepper",
    "machine",
    "garden",
    "storm",
    "soup",
    "types",
    "soil",
]
ROWS = 240


def thing(number: int, chance: random.Random) -> dict[str, Any]:
    """Values that engines like to differ about; no two texts alike, so that no two rows are equally far."""
    text = " ".join(chance.choices(WORDS, k=6)) + f" {number * 7919}"
    return {
        "id": number,
        "text": text,
        "stars": chance.choice([None, -3, 0, 1, 2, 3, 4, 5]),
        "weight": chance.choice([None, float("nan"), float("inf"), -0.0, 0.0, 0.1, 2.5, -7.25]),
        "flag": chance.choice([None, True, False]),
        "word": chance.choice([None, "", "a", "A", "ab", "a%b", "a_b", "it's", "größe", "back\\slash", "5"]),
        "day": chance.choice([None, date(2026, 3, 1) + timedelta(days=chance.randrange(40))]),
        "at": chance.choice([None, datetime(2026, 3, 1, 12, tzinfo=UTC) + timedelta(seconds=number)]),
        "price": chance.choice([None, Decimal("0.10"), Decimal("12.34"), Decimal("-5.00")]),
        "Odd Name": chance.choice([None, "x", "y"]),
        "author": number % 7,
    }


class EngineOnly(Queries):
    """Queries that always run the engine, and cache no plan."""

    def _plan(self, *arguments: Any) -> Plan:
        self._plans = {}
        return replace(super()._plan(*arguments), direct=None)


@dataclass
class World:
    lake: Lake
    direct: Queries
    engine: Queries
    runs: list[Session]
    """One for each time that the engine ran."""

    def same(self, sql: str, **options: Any) -> tuple[pa.Table | str, bool]:
        """What both ways give, rows or a refusal, which must be one; and whether rows came without the engine."""
        before = len(self.runs)
        actual, answer = _outcome(self.direct, sql, options)
        alone = answer is not None and len(self.runs) == before
        expected, other = _outcome(self.engine, sql, options)
        if answer is None or other is None:
            assert actual == expected, sql
            return str(actual), False
        assert repr(actual.to_pylist()) == repr(expected.to_pylist()), sql
        assert actual.schema.equals(expected.schema, check_metadata=True), sql
        assert answer.receipt == other.receipt, sql
        assert answer.explanation == other.explanation, sql
        return actual, alone


def _outcome(queries: Queries, sql: str, options: dict[str, Any]) -> tuple[Any, Answer | None]:
    try:
        answer = queries.run(sql, **options)
        return answer.table(), answer
    except LakeError as error:
        return f"{type(error).__name__}: {error}", None


def parts_of(lake: Lake) -> dict[str, Any]:
    return {
        "tables": lake.tables,
        "timeline": lambda: lake.timeline,
        "attestations": lake.attestations,
        "ranking": lambda: lake.vectors.ranking,
    }
