"""Statements that ended a worker, or kept one busy for minutes, each with the limit that refuses it.

As a program (`python -m tests.worlds.hostile_statements`) it runs every one of them in a process of its own, which the
test outlives: one JSON line as each begins, and one with its result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from catalog.core.errors import LakeError
from catalog.core.settings import load_settings
from catalog.lake import open_lake

_VALUES = "(VALUES (1)) AS t(a)"


def _nested(opening: str, closing: str, times: int) -> str:
    return f"SELECT {opening * times}1{closing * times}"


def _cross_joins(count: int) -> str:
    return "SELECT 1 FROM (VALUES (1)) AS t(a)" + "".join(f", (VALUES (1)) AS t{n}(a)" for n in range(count))


TOO_LARGE: dict[str, tuple[str, str]] = {
    "bytes": ("SELECT '" + "x" * 300_000 + "'", "262144 bytes"),
    "bytes of wide characters": ("SELECT '" + "é" * 140_000 + "'", "262144 bytes"),
    "words": ("SELECT 1 IN (" + "1," * 30_000 + "1)", "limit of 50000"),
    "lone surrogate": ("SELECT '\ud800'", "no valid Unicode"),
    "sum": ("SELECT " + "+".join(["1"] * 20_000), "250 operators"),
    "difference of columns": (f"SELECT {'-'.join(['a'] * 20_000)} FROM {_VALUES}", "250 operators"),
    "texts": ("SELECT " + "||".join(["'a'"] * 16_000), "250 operators"),
    "casts": ("SELECT 1" + "::int" * 19_000, "250 operators"),
    "casts in brackets": (_nested("cast(", " as int)", 300), "nested more than 40"),
    "comparisons": ("SELECT 1" + " = 1" * 19_000, "250 operators"),
    "is null": ("SELECT 1" + " IS NULL" * 16_000, "250 operators"),
    "between": ("SELECT 1" + " BETWEEN 1 AND 2" * 8_000, "250 operators"),
    "like": ("SELECT 'a'" + " LIKE 'a'" * 16_000, "250 operators"),
    "intervals": ("SELECT now()" + " + interval '1 day'" * 8_000, "250 operators"),
    "time zones": ("SELECT now()" + " AT TIME ZONE 'UTC'" * 9_000, "nested|250 operators"),
    "fields": (f"SELECT a{'.a' * 20_000} FROM {_VALUES}", "250 operators"),
    "arrows": (f"SELECT a{'->1' * 16_000} FROM {_VALUES}", "250 operators"),
    "nots": ("SELECT " + "NOT " * 20_000 + "true", "nested too deep"),
    "signs": ("SELECT " + "- " * 20_000 + "1", "nested too deep"),
    "ands": ("SELECT " + " AND ".join(["true"] * 20_000), "at most 1000 ANDs"),
    "ors": (f"SELECT 1 FROM {_VALUES} WHERE " + " OR ".join(f"a={n}" for n in range(9_000)), "at most 1000 ANDs"),
    "brackets": (_nested("(", ")", 5_000), "nested more than 40"),
    "functions": (_nested("abs(", ")", 5_000), "nested more than 40"),
    "lists": (_nested("[", "]", 5_000), "nested more than 40"),
    "objects": (_nested("{'a':", "}", 5_000), "nested more than 40"),
    "cases": (_nested("CASE WHEN true THEN ", " END", 5_000), "nested more than 40"),
    "cases and brackets": (_nested("(CASE WHEN true THEN ", " END)", 30), "nested more than 40"),
    "windows": (_nested("sum(", ") OVER ()", 1_000), "nested more than 40"),
    "arrays": (_nested("array[", "]", 30), "more than 8 deep"),
    "structs": (_nested("struct(", ")", 30), "more than 8 deep"),
    "types as functions": (_nested("varchar(", ")", 30), "more than 8 deep"),
    "types as lists": (_nested("int[", "]", 30), "more than 8 deep"),
    "types and brackets": (_nested("int((", "))", 19), "more than 8 deep"),
    "many arrays": ("SELECT " + ",".join(["array[" * 7 + "1" + "]" * 7] * 500), "too many of them"),
    "subscripts": ("SELECT [1]" + "[1]" * 5_000, "more than 8 deep"),
    "subqueries": ("SELECT * FROM (" * 2_000 + "SELECT 1" + ") t" * 2_000, "nested more than 40"),
    "scalar subqueries": (_nested("(SELECT ", ")", 2_000), "nested more than 40"),
    "exists": ("SELECT 1 WHERE " + "EXISTS (SELECT 1 WHERE " * 1_000 + "true" + ")" * 1_000, "nested more than 40"),
    "unions": ("SELECT 1" + " UNION ALL SELECT 1" * 9_000, "at most 200 SELECTs"),
    "intersections": ("SELECT 1" + " INTERSECT SELECT 1" * 1_000, "at most 200 SELECTs"),
    "common tables": (
        "WITH c0 AS (SELECT 1 AS x)"
        + "".join(f", c{n + 1} AS (SELECT * FROM c{n})" for n in range(2_000))
        + " SELECT 1 FROM c2000",
        "at most 200 SELECTs",
    ),
    "joins": (_cross_joins(400), "at most 100 joins"),
    "columns": ("SELECT " + ",".join(f"1 AS c{n}" for n in range(5_000)), "limit of 2000"),
    "cube": (f"SELECT 1 FROM {_VALUES} GROUP BY CUBE({','.join(f'a+{n}' for n in range(30))})", "at most 12"),
}

WITHIN_LIMITS: dict[str, str] = {
    "a long list": f"SELECT a IN ({','.join(map(str, range(20_000)))}) FROM {_VALUES}",
    "a long sum": "SELECT " + "+".join(["1"] * 240),
    "casts": "SELECT 1" + "::int" * 240,
    "many conditions": f"SELECT a FROM {_VALUES} WHERE " + " OR ".join(f"a = {n}" for n in range(1_000)),
    "brackets": _nested("(", ")", 30),
    "alternating": "SELECT " + "(true OR false) AND (" * 39 + "true" + ")" * 39,
    "cases": _nested("CASE WHEN true THEN ", " END", 30),
    "unions": "SELECT 1" + " UNION ALL SELECT 1" * 199,
    "intersections": "SELECT 1" + " INTERSECT SELECT 1" * 199,
    "joins": _cross_joins(60),
    "columns": "SELECT " + ",".join(f"1 AS c{n}" for n in range(2_000)),
    "an array of arrays": "SELECT array[array[array[1, 2], array[3]]]",
    "subscripts": "SELECT [[[1]]][1][1][1]",
}
"""Statements that must keep running: each is near a limit, or looks like one that is refused."""


def statements() -> Iterator[tuple[str, str]]:
    yield from ((f"large: {name}", sql) for name, (sql, _) in TOO_LARGE.items())
    yield from ((f"within: {name}", sql) for name, sql in WITHIN_LIMITS.items())


def _say(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    queries = open_lake(load_settings()).queries
    for name, sql in statements():
        _say(begins=name)
        try:
            result: dict[str, object] = {"rows": queries.run(sql).table().num_rows}
        except LakeError as error:
            result = error.as_dict()
        _say(name=name, **result)


if __name__ == "__main__":
    main()
