"""A filter means to delete and scan what WHERE means to a query: DuckDB says which rows it is true for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest
from pyiceberg.expressions import BooleanExpression, GreaterThan, In, IsNaN, LessThan, Not, NotEqualTo, Or

from catalog.core.errors import Invalid
from catalog.core.point_in_time import SnapshotId
from infra.local.server import ApiServer
from tests.worlds.query_kinds import Kinds, kinds_on


@pytest.fixture(scope="module")
def kinds(server: ApiServer) -> Iterator[Kinds]:
    with kinds_on(server) as made:
        yield made


def expected(kinds: Kinds, where: str) -> set[int]:
    return {row[0] for row in kinds.duck.sql(f"SELECT id FROM qa.k WHERE {where}").fetchall()}


def deleted(kinds: Kinds, where: str | BooleanExpression) -> set[int]:
    """What a delete takes away; the table is as it was afterwards."""
    tables = kinds.lake.tables
    before = tables.table_store.load("qa.k").metadata.current_snapshot_id
    assert before is not None
    tables.delete("qa.k", where)
    left = set(tables.scan("qa.k", columns=["id"])["id"].to_pylist())
    tables.rollback("qa.k", SnapshotId(before))
    return set(range(30)) - left


def scanned(kinds: Kinds, where: str | BooleanExpression) -> set[int]:
    return set(kinds.lake.tables.scan("qa.k", where=where, columns=["id"])["id"].to_pylist())


FILTERS = [
    "x > 1",
    "x >= 5",
    "x > 1000000000000000000000000",
    "id < 99999999999999999999",
    "g != 99999999999",
    "g < 99999999999",
    "g > -99999999999",
    "price > 1.5",
    "price in (1.5, 2.0)",
    "x < 3",
    "x <= 3",
    "x = 5",
    "x != 5",
    "not x > 1",
    "not x <= 1",
    "not x = 5",
    "not (x > 1 and id < 15)",
    "x in (5, 3)",
    "x not in (5, 3)",
    "f > 3",
    "f != 2.5",
    "x > 2 or id = 29",
    "x is null",
    "x is not null",
    "name != 'apple'",
    "name != 'no such name'",
    "name not in ('apple', 'ash')",
    "name not in ('no', 'such')",
    "not name in ('apple', 'ash')",
    "not name = 'ash'",
    "name like 'a%'",
    "name not like 'a%'",
    "name not like 'q%'",
    "flag != true",
    "flag = false",
    "flag != false",
    "g != 9",
    "g not in (9, 10)",
    "not g = 2",
    "not (g = 2 or name = 'ash')",
    "id > 2",
    "id = 3.0",
    "price > 1.50",
    "price = 1.50",
    "ts > '2024-02-05T12:30:00'",
    "ts != '2024-02-05T12:30:00'",
    "day < '2024-01-05'",
    "day != '2024-01-05'",
]


@pytest.mark.parametrize("where", FILTERS)
def test_a_filter_is_true_for_duckdbs_rows(kinds: Kinds, where: str) -> None:
    rows = expected(kinds, where)
    assert scanned(kinds, where) == rows
    assert deleted(kinds, where) == rows


def test_expressions_are_read_as_their_text(kinds: Kinds) -> None:
    for where, duck in [
        (GreaterThan("x", 1.0), "x > 1"),
        (Not(LessThan("x", 1.0)), "NOT x < 1"),
        (NotEqualTo("name", "apple"), "name <> 'apple'"),
        (Not(In("g", [1, 2])), "g NOT IN (1, 2)"),
        (IsNaN("x"), "isnan(x)"),
        (Not(IsNaN("x")), "NOT isnan(x)"),
        (Or(IsNaN("f"), GreaterThan("f", 100.0)), "f > 100"),
    ]:
        assert scanned(kinds, where) == expected(kinds, duck), where
        assert deleted(kinds, where) == expected(kinds, duck), where


@pytest.mark.parametrize(
    "where",
    [
        "id = 2.5",
        "id < 2.5",
        "id in (1.5, 2.5)",
        "g != 1.25",
        "id = '2.5'",
        "price > 1.555",
        "f = 0.1",
        "not f > 0.1",
        GreaterThan("price", 1.555),
        LessThan("day", datetime(2024, 1, 5, 12)),
    ],
    ids=str,
)
def test_a_literal_that_the_column_cannot_hold_is_refused_and_not_rounded(
    kinds: Kinds, where: str | BooleanExpression
) -> None:
    with pytest.raises(Invalid, match=r"qa\.k: .*: write "):
        kinds.lake.tables.delete("qa.k", where)
    with pytest.raises(Invalid, match=r"qa\.k: .*: write "):
        kinds.lake.tables.scan("qa.k", where=where)
