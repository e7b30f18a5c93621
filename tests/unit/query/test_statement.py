"""The text of a query: one SELECT, the tables it names, the versions it asks for, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from catalog.core.errors import Invalid
from catalog.core.point_in_time import Moment, NamedSnapshot, SnapshotId, TimelineIndex
from catalog.query.sql.statement import parse, splice


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
        ("FOR SYSTEM_TIME AS OF TIMESTAMP '2026-03-01 12:00:00'", Moment(datetime(2026, 3, 1, 12, tzinfo=UTC))),
        ("FOR SYSTEM_TIME AS OF '2026-03-01T12:00:00+00:00'", Moment(datetime(2026, 3, 1, 12, tzinfo=UTC))),
        ("FOR TIMESTAMP AS OF TIMESTAMP '2026-03-01'", Moment(datetime(2026, 3, 1, tzinfo=UTC))),
        ("TIMESTAMP AS OF '2026-03-01'", Moment(datetime(2026, 3, 1, tzinfo=UTC))),
        ("VERSION AS OF 7", TimelineIndex(7)),
        ("FOR VERSION AS OF 7", TimelineIndex(7)),
        ("VERSION AS OF 'spring'", NamedSnapshot("spring")),
        ("AS OF 'end of Q1'", NamedSnapshot("end of Q1")),
        ("as of 12", TimelineIndex(12)),
        ("VERSION AS OF 'snapshot:5551234567890123456'", SnapshotId(5551234567890123456)),
        ("AS OF '2026-03-01T13:00+01:00'", Moment(datetime(2026, 3, 1, 12, tzinfo=UTC))),
    ],
    ids=range(11),
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
    with pytest.raises(Invalid, match=r"needs a point in time|is not a time"):
        parse(sql)


@pytest.mark.parametrize(
    ("clause", "told"),
    [
        ("VERSION AS OF 5551234567890123456", "write snapshot:5551234567890123456 .* quote everything but an index"),
        ("VERSION AS OF '@42'", "write 42"),
        ("VERSION AS OF 4.2", "neither a timeline index nor a name"),
        ("AS OF '2026-03-01 12:00:00'", "has no zone: write 2026-03-01T12:00:00Z"),
        ("AS OF 'sequence:7'", "only a table's change feed"),
        ("TIMESTAMP AS OF 7", "write VERSION AS OF"),
        ("FOR SYSTEM_TIME AS OF 'spring'", "write VERSION AS OF"),
    ],
)
def test_a_version_that_could_be_read_in_two_ways_is_refused_with_what_to_write(clause: str, told: str) -> None:
    with pytest.raises(Invalid, match=f"line 1, column .*{told}"):
        parse(f"SELECT 1 FROM t {clause}")


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


def test_spans_are_replaced_in_place() -> None:
    assert splice("from a join b", [(5, 6, "XX"), (12, 13, "Y")]) == "from XX join Y"


def test_a_text_is_read_once_and_a_long_one_is_not_kept() -> None:
    short = "SELECT x FROM a.t WHERE y = $1"
    assert parse(short) is parse(short)
    long = short + " " * 10_000
    assert parse(long) is not parse(long) and parse(long).normalised == parse(short).normalised


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT * FROM c ORDER BY n DESC",
        "SELECT DISTINCT ON (g) id FROM a.t ORDER BY g, id NULLS FIRST LIMIT 3 OFFSET 2",
        "SELECT g, count(*) FILTER (WHERE id > 1) FROM a.t GROUP BY ROLLUP (g) HAVING count(*) > 1",
        "SELECT g FROM a.t GROUP BY ALL",
        "SELECT g, id FROM a.t GROUP BY GROUPING SETS ((g), (id), ())",
        "SELECT sum(id) OVER w FROM a.t WINDOW w AS (PARTITION BY g) QUALIFY sum(id) OVER w > 3",
        "SELECT * EXCLUDE (id) FROM a.t",
        "SELECT x.id FROM a.t AS x(id, g) NATURAL JOIN a.u LEFT JOIN a.v USING (id), LATERAL (SELECT 1) z",
        "(SELECT id FROM a.t LIMIT 1) UNION ALL (SELECT id FROM a.t) ORDER BY 1 LIMIT 2",
        "SELECT * FROM (a.t JOIN a.u ON true) JOIN a.v ON true, unnest([1]) AS n(e), (VALUES (1, 2)) AS w(p, q)",
        "SELECT g FROM a.t EXCEPT SELECT 1 INTERSECT SELECT 2",
        "SELECT g FROM a.t EXCEPT ALL SELECT 1",
        "SELECT id FROM a.t AS x TABLESAMPLE reservoir(3 ROWS) REPEATABLE (3)",
        "SELECT * FROM a.t PIVOT (count(id) FOR g IN (1, 2))",
        "FROM a.t",
        "FROM a.t SELECT g WHERE id > 3",
        "VALUES (1, 2), (3, 4)",
        "SUMMARIZE SELECT * FROM a.t",
        "SELECT * FROM a.t ASOF JOIN a.u ON t.id >= u.id",
    ],
)
def test_clauses_that_are_run_are_read(sql: str) -> None:
    assert parse(sql).text == sql
