"""The text of a query: one SELECT, the tables it names, the versions it asks for, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from catalog.errors import Invalid
from catalog.query.statement import as_of_text, parse, splice


def named(sql: str) -> list[tuple[str, object]]:
    return [(ref.written, ref.as_of) for ref in parse(sql).refs]


def test_tables_are_found_wherever_they_stand() -> None:
    sql = """SELECT (SELECT max(x) FROM a.one) FROM a.two t JOIN "A"."Three" USING (id)
             WHERE EXISTS (SELECT 1 FROM Four) AND id IN (SELECT id FROM a.five UNION SELECT id FROM a.six)"""
    assert [name for name, _ in named(sql)] == ["a.one", "a.two", "A.Three", "four", "a.five", "a.six"]


def test_common_tables_and_row_functions_are_no_tables_of_the_lake() -> None:
    assert named("WITH c AS (SELECT 1) SELECT * FROM c, a.c, generate_series(1, 3) g, unnest([1]) u") == [("a.c", None)]
    recursive = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, a.t) SELECT * FROM r"
    assert named(recursive) == [("a.t", None)]


@pytest.mark.parametrize(
    ("clause", "version"),
    [
        ("FOR SYSTEM_TIME AS OF TIMESTAMP '2026-03-01 12:00:00'", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("FOR SYSTEM_TIME AS OF '2026-03-01T12:00:00+00:00'", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("FOR TIMESTAMP AS OF TIMESTAMP '2026-03-01'", datetime(2026, 3, 1, tzinfo=UTC)),
        ("TIMESTAMP AS OF '2026-03-01'", datetime(2026, 3, 1, tzinfo=UTC)),
        ("VERSION AS OF 7", 7),
        ("FOR VERSION AS OF 7", 7),
        ("VERSION AS OF 'spring'", "spring"),
        ("AS OF 'end of Q1'", "end of Q1"),
        ("as of 12", 12),
    ],
    ids=range(9),
)
def test_a_version_belongs_to_the_table_before_it_and_leaves_the_text(clause: str, version: object) -> None:
    sql = f"SELECT x FROM a.t {clause} AS y JOIN b.u z ON y.id = z.id WHERE y.note = 'VERSION AS OF 3'"
    statement = parse(sql)
    assert [(ref.written, ref.as_of, ref.aliased) for ref in statement.refs] == [
        ("a.t", version, True),
        ("b.u", None, True),
    ]
    assert clause not in statement.text and len(statement.text) == len(sql)
    assert "'VERSION AS OF 3'" in statement.text
    at = statement.refs[1]
    assert statement.text[at.start : at.end] == "b.u"


def test_an_alias_may_be_called_of() -> None:
    assert named("SELECT of.x FROM a.t AS of WHERE of.x = 1") == [("a.t", None)]


@pytest.mark.parametrize(
    "sql", ["SELECT 1 FROM t VERSION AS OF now()", "SELECT 1 FROM t FOR SYSTEM_TIME AS OF TIMESTAMP 'x'"]
)
def test_a_version_must_be_a_value(sql: str) -> None:
    with pytest.raises(Invalid, match=r"AS OF what|is not a time"):
        parse(sql)


def test_questions_that_differ_in_layout_only_are_the_same_question() -> None:
    same = parse("select  A.x from a.T -- why\n where s = 'It''s' ;").normalised
    assert parse("SELECT a.X FROM A.t WHERE s='It''s'").normalised == same
    assert parse("SELECT a.X FROM A.t WHERE s='it''s'").normalised != same
    assert parse('SELECT "X" FROM a.t').normalised != parse('SELECT "x" FROM a.t').normalised


def test_what_depends_on_more_than_the_snapshots_is_known() -> None:
    assert parse("SELECT now()").volatile and parse("SELECT random() FROM t").volatile
    assert not parse("SELECT 'now', x FROM t").volatile


def test_explain_route_is_said_before_the_query() -> None:
    assert parse("explain  Route SELECT 1").explain and not parse("SELECT 1").explain


def test_words_of_a_person_become_a_moment() -> None:
    assert as_of_text("42") == 42
    assert as_of_text("2026-03-01") == datetime(2026, 3, 1, tzinfo=UTC)
    assert as_of_text("before the flood") == "before the flood"


def test_spans_are_replaced_in_place() -> None:
    assert splice("from a join b", [(5, 6, "XX"), (12, 13, "Y")]) == "from XX join Y"


def test_a_text_is_read_once_and_a_long_one_is_not_kept() -> None:
    short = "SELECT x FROM a.t WHERE y = $1"
    assert parse(short) is parse(short)
    long = short + " " * 10_000
    assert parse(long) is not parse(long) and parse(long).normalised == parse(short).normalised
