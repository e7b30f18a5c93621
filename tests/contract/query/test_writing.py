"""INSERT, UPDATE, DELETE, CREATE, ALTER, DROP and BEGIN … COMMIT: what they write, what they refuse, and to whom."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from catalog.access import Caller, Level, Role
from catalog.core.errors import Conflict, Denied, Invalid, LakeError, NotFound
from catalog.lake import Lake
from catalog.query import Writes
from catalog.query.run.queries import AccessRules, Queries
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import rows_of


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture(params=["cow", "mor"])
def name(lake: Lake, request: pytest.FixtureRequest) -> str:
    name = f"db{uuid4().hex[:8]}.tides"
    lake.tables.create(name, {"id": "long", "station": "string", "metres": "double"}, mode=request.param)
    lake.tables.insert(name, [{"id": n, "station": s, "metres": n / 2} for n, s in ((1, "Brest"), (2, "Dover"))])
    lake.tables.insert(name, [{"id": 3, "station": "Leith", "metres": float("nan")}, {"id": 4}])
    return name


def write(lake: Lake, sql: str, caller: Caller | None = None, ask: Callable[..., Any] | None = None) -> list[Any]:
    return [(done.statement, done.rows) for done in Writes(lake.tables, ask or lake.queries.ask, caller).run(sql)]


def rows(lake: Lake, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return rows_of(lake.queries.run(f"SELECT {columns} FROM {name} ORDER BY ALL", fresh=True))


def test_insert_values_and_select(lake: Lake, name: str) -> None:
    assert write(lake, f"INSERT INTO {name} VALUES (5, 'Ayr', 2.5), (6, NULL, 1)") == [("INSERT", 2)]
    assert write(lake, f"insert into {name} (metres, id) select metres + 1, id + 10 from {name} where id < 3;") == [
        ("INSERT", 2)
    ]
    assert rows(lake, name, "id, metres")[4:] == [(5, 2.5), (6, 1.0), (11, 1.5), (12, 2.0)]


def test_update_changes_only_the_named_columns_of_the_matching_rows(lake: Lake, name: str) -> None:
    assert write(lake, f"UPDATE {name} SET station = upper(station), metres = id WHERE metres > 0.5") == [("UPDATE", 2)]
    assert rows(lake, name) == [(1, "Brest", 0.5), (2, "DOVER", 2.0), (3, "LEITH", 3.0), (4, None, None)]
    text = f"UPDATE {name} AS t SET station = s.n FROM (VALUES (1, 'one'), (4, 'four')) s(i, n) WHERE t.id = s.i"
    assert write(lake, text) == [("UPDATE", 2)]
    assert rows(lake, name, "id, station") == [(1, "one"), (2, "DOVER"), (3, "LEITH"), (4, "four")]
    assert write(lake, f"UPDATE {name} SET id = 9 WHERE false") == [("UPDATE", 0)]


def test_delete_by_any_condition(lake: Lake, name: str) -> None:
    assert write(lake, f"DELETE FROM {name} WHERE id IN (SELECT max(id) FROM {name})") == [("DELETE", 1)]
    other = f"DELETE FROM {name} t USING (VALUES (2), (2)) s(i) WHERE t.id = s.i"
    assert write(lake, other) == [("DELETE", 1)]
    assert write(lake, f"DELETE FROM {name} WHERE isnan(metres)") == [("DELETE", 1)]
    assert rows(lake, name, "id") == [(1,)]
    assert write(lake, f"DELETE FROM {name}") == [("DELETE", 1)] and rows(lake, name) == []


def test_a_deleted_row_is_not_found_again(lake: Lake, name: str) -> None:
    lake.tables.delete(name, "id = 1")
    assert write(lake, f"UPDATE {name} SET metres = 7") == [("UPDATE", 3)]
    assert rows(lake, name, "id, metres") == [(2, 7.0), (3, 7.0), (4, 7.0)]


def test_values_are_never_rounded(lake: Lake) -> None:
    name = f"db{uuid4().hex[:8]}.exact"
    columns = "i INTEGER, l BIGINT, d DECIMAL(6, 2), f DOUBLE, b BOOLEAN, t DATE, s TIMESTAMP"
    assert write(lake, f"CREATE TABLE {name} ({columns})") == [("CREATE TABLE", 0)]
    for column, value in (
        ("i", "2.5"), ("i", "2.5e0"), ("i", "'2.5'"), ("i", "3000000000"), ("i", "'x'"), ("d", "1.005"), ("d", "1e-3"),
        ("d", "10000"), ("d", "'1.005'"), ("f", "9007199254740993"), ("b", "5"), ("l", "'NaN'::DOUBLE"), ("b", "1"),
        ("t", "TIMESTAMP '2026-03-01 12:00'"), ("i", "true"), ("t", "5"), ("s", "'yesterday'"), ("i", "[1]"),
    ):  # fmt: skip
        with pytest.raises(LakeError) as caught:
            write(lake, f"INSERT INTO {name} ({column}) VALUES ({value})")
        assert isinstance(caught.value, Invalid), (column, value)
    assert rows(lake, name) == []
    exact = "2.0, '7', 1.5, 0.1, 'true', TIMESTAMP '2026-03-01', DATE '2026-03-02'"
    assert write(lake, f"INSERT INTO {name} VALUES ({exact})") == [("INSERT", 1)]
    (row,) = rows(lake, name)
    assert row[:5] == (2, 7, 1.5, 0.1, True) and str(row[5]) == "2026-03-01" and str(row[6]) == "2026-03-02 00:00:00"
    write(lake, f"INSERT INTO {name} (f) VALUES ('NaN'::DOUBLE), (-0.0e0), ('Infinity'::DOUBLE)")
    stored = [row[3] for row in rows(lake, name) if row[0] is None]
    assert any(math.isnan(v) for v in stored) and any(v == 0 and math.copysign(1, v) < 0 for v in stored)
    with pytest.raises(Invalid, match="whole number"):
        write(lake, f"UPDATE {name} SET i = f WHERE i = 2")


def test_create_alter_and_drop(lake: Lake) -> None:
    name = f"db{uuid4().hex[:8]}.made"
    text = "(id BIGINT PRIMARY KEY, tags VARCHAR[], at STRUCT(x DOUBLE, y DOUBLE), note VARCHAR NOT NULL)"
    assert write(lake, f"CREATE TABLE {name} {text}") == [("CREATE TABLE", 0)]
    assert lake.tables.describe(name).key == ("id",)
    with pytest.raises(Conflict):
        write(lake, f"CREATE TABLE {name} (id INTEGER)")
    assert write(lake, f"CREATE TABLE IF NOT EXISTS {name} (id INTEGER)") == [("CREATE TABLE", 0)]
    write(lake, f"INSERT INTO {name} VALUES (1, ['a', 'b'], {{'x': 1, 'y': 2}}, 'n')")
    with pytest.raises(Invalid, match="required"):
        write(lake, f"INSERT INTO {name} (id) VALUES (2)")
    write(lake, f"ALTER TABLE {name} ADD COLUMN small INTEGER")
    write(lake, f"ALTER TABLE {name} ALTER COLUMN small TYPE BIGINT")
    write(lake, f"ALTER TABLE {name} RENAME COLUMN small TO large")
    write(lake, f"UPDATE {name} SET large = 5000000000")
    assert rows(lake, name, 'id, tags, "at".y, large') == [(1, ["a", "b"], 2.0, 5000000000)]
    with pytest.raises(Invalid):
        write(lake, f"ALTER TABLE {name} ALTER COLUMN large TYPE INTEGER")
    write(lake, f"ALTER TABLE {name} DROP COLUMN large")
    assert write(lake, f"DROP TABLE {name}") == [("DROP TABLE", None)]
    with pytest.raises(NotFound):
        write(lake, f"DROP TABLE {name}")
    assert write(lake, f"DROP TABLE IF EXISTS {name}") == [("DROP TABLE", None)]


def test_create_table_as_select(lake: Lake, name: str) -> None:
    copy = f"{name}_copy"
    text = (
        f"CREATE TABLE {copy} AS SELECT station, count(*) AS n, sum(id) AS ids, 1::SMALLINT AS s FROM {name} GROUP BY 1"
    )
    assert write(lake, text) == [("CREATE TABLE", 4)]
    types = {column.name: column.type for column in lake.tables.describe(copy).columns}
    assert types == {"station": "string", "n": "long", "ids": "decimal(38, 0)", "s": "int"}
    for failing in ("SELECT error('no')", "SELECT NULL AS x", "SELECT 1 AS a, 2 AS A", "SELECT * FROM db.absent"):
        with pytest.raises(LakeError):
            write(lake, f"CREATE TABLE {name}_no AS {failing}")
    assert f"{name}_no" not in lake.tables.list()


def test_a_transaction_writes_all_or_nothing(lake: Lake, name: str) -> None:
    other = f"{name}_other"
    write(lake, f"CREATE TABLE {other} (id BIGINT)")
    text = f"BEGIN; UPDATE {name} SET metres = 0 WHERE id = 1; INSERT INTO {other} SELECT 7; COMMIT;"
    assert write(lake, text) == [("UPDATE", 1), ("INSERT", 1)]
    assert rows(lake, other) == [(7,)] and (1, 0.0) in rows(lake, name, "id, metres")
    before = rows(lake, other)
    with pytest.raises(Invalid):
        write(lake, f"BEGIN; INSERT INTO {other} VALUES (8); INSERT INTO {name} (id) VALUES (1.5); COMMIT")
    with pytest.raises(Invalid, match="reads"):
        write(lake, f"BEGIN; INSERT INTO {other} VALUES (8); DELETE FROM {other} WHERE id = 8; COMMIT")
    assert rows(lake, other) == before
    sequence(lake, name, other)
    size = lake.timeline.head().checkpoint.size
    operations = [lake.timeline.commit(index).operation for index in range(size)]
    assert operations.count("transaction") >= 2


def test_roles_are_those_of_the_routes(lake: Lake, name: str) -> None:
    reads, writes = (Caller("ada", (Role(level, name),)) for level in (Level.READ, Level.WRITE))
    stranger = Caller("eve", (Role(Level.WRITE, "db.x"),))
    before = rows(lake, name, "id")
    statements = (f"INSERT INTO {name} VALUES (9, 'x', 1)", f"UPDATE {name} SET id = 1", f"DELETE FROM {name}")
    for text in statements:
        with pytest.raises(Denied):
            write(lake, text, reads)
        with pytest.raises(NotFound) as hidden:
            write(lake, text, stranger)
        with pytest.raises(NotFound) as absent:
            write(lake, text.replace(name, "db.absent"), stranger)
        assert hidden.value.message.replace(name, "db.absent") == absent.value.message
    for text in (f"DROP TABLE {name}", f"ALTER TABLE {name} ADD COLUMN x BIGINT", f"CREATE TABLE {name} (i BIGINT)"):
        with pytest.raises(Denied):
            write(lake, text, writes)
    with pytest.raises(NotFound):
        write(lake, f"DROP TABLE IF EXISTS {name}", stranger)
    assert rows(lake, name, "id") == before
    # A source that the caller may not read is not there, also when it may write to the target.
    secret = f"{name}_secret"
    write(lake, f"CREATE TABLE {secret} AS SELECT 42 AS id")
    for text in (
        f"INSERT INTO {name} (id) SELECT id FROM {secret}",
        f"UPDATE {name} SET id = (SELECT id FROM {secret})",
        f"DELETE FROM {name} WHERE id IN (SELECT id FROM {secret})",
        f"BEGIN; INSERT INTO {name} (id) SELECT id FROM {secret}; COMMIT",
    ):
        with pytest.raises(NotFound):
            write(lake, text, writes)
    assert rows(lake, name, "id") == before


def test_rows_behind_a_filter_are_not_changed(lake: Lake, name: str) -> None:
    rules = AccessRules("station = 'Brest'")
    guarded = Queries(lake.tables, lambda: lake.timeline, lake.attestations, rules=lambda caller, table: rules)
    before = rows(lake, name, "id")
    for text in (f"DELETE FROM {name}", f"UPDATE {name} SET id = 0"):
        with pytest.raises(Denied):
            write(lake, text, ask=guarded.ask)
    assert rows(lake, name, "id") == before


def test_rows_that_were_changed_meanwhile_are_found_again(lake: Lake, name: str) -> None:
    """Another writer commits between the search and the commit: twice, then no more."""
    commits = iter((11, 12))

    def ask(sql: str, **options: Any) -> Any:
        answer = lake.queries.ask(sql, **options)
        if "DISTINCT" in sql and (number := next(commits, None)) is not None:
            lake.tables.insert(name, [{"id": number, "station": "new"}])
        return answer

    assert write(lake, f"DELETE FROM {name} WHERE id >= 4", ask=ask) == [("DELETE", 3)]
    assert rows(lake, name, "id") == [(1,), (2,), (3,)]

    def always(sql: str, **options: Any) -> Any:
        answer = lake.queries.ask(sql, **options)
        lake.tables.insert(name, [{"id": 50}])
        return answer

    with pytest.raises(Conflict, match="try again"):
        write(lake, f"DELETE FROM {name} WHERE id = 1", ask=always)
    assert (1,) in rows(lake, name, "id")


def test_a_row_that_is_found_twice_is_not_updated(lake: Lake, name: str) -> None:
    with pytest.raises(Invalid, match="ambiguous"):
        write(lake, f"UPDATE {name} t SET metres = s.v FROM (VALUES (1, 5), (1, 6)) s(i, v) WHERE t.id = s.i")
    assert (1, 0.5) in rows(lake, name, "id, metres")


def test_what_is_too_large_for_a_function_is_refused(lake: Lake, name: str) -> None:
    small = partial(lake.queries.ask, limit_bytes=1)
    with pytest.raises(Invalid, match="Spark job"):
        write(lake, f"UPDATE {name} SET metres = metres + 1", ask=small)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO tides VALUES (1)", "INSERT INTO {0}", "INSERT {0} VALUES (1)",
        "INSERT INTO {0} (id, id) VALUES (1, 2)",
        "INSERT INTO {0} (absent) VALUES (1)", "INSERT INTO {0} VALUES (1)", "INSERT INTO {0} (id) SELECT 1, 2",
        "INSERT INTO {0} (id) VALUES (1) RETURNING id", "INSERT INTO {0} (id) VALUES (1) ON CONFLICT DO NOTHING",
        "INSERT INTO {0} (id) SELECT 1; DROP TABLE {0}", "INSERT INTO {0} (id) SELECT 1) x; --", "DELETE {0}",
        "INSERT INTO {0} (id) SELECT n FROM read_csv('/etc/passwd') t(n)", "DELETE FROM {0} WHERE", "UPDATE {0} SET",
        "DELETE FROM {0} WHERE id = 1 RETURNING *", "UPDATE {0} SET id = 1, ID = 2", "UPDATE {0} SET absent = 1",
        "UPDATE {0} WHERE id = 1 SET id = 2", "UPDATE {0} SET id = 1 WHERE absent = 2",
        "DELETE FROM {0} WHERE 1) OR (1",
        "CREATE TABLE {0}x (id SMALLINT)", "CREATE TABLE {0}x (id BIGINT DEFAULT 3)",
        "CREATE OR REPLACE TABLE {0}x (i INT)",
        "CREATE TABLE {0}x (id BIGINT CHECK (id > 0))", "CREATE VIEW {0}x AS SELECT 1", "CREATE TABLE nodb (id BIGINT)",
        "CREATE TABLE a.b.c (id BIGINT)", "CREATE TEMP TABLE {0}x (id BIGINT)", "ALTER TABLE {0} RENAME TO {0}x",
        "ALTER TABLE {0} ADD COLUMN a INT, ADD COLUMN b INT", "DROP SCHEMA db", "DROP TABLE {0} CASCADE", "BEGIN",
        "COMMIT", "ROLLBACK", "BEGIN; DROP TABLE {0}; COMMIT", "BEGIN; SELECT 1; COMMIT", "MERGE INTO {0} USING x ON 1",
        "TRUNCATE {0}", "INSERT INTO {0} (id) SELECT 1 FROM {0} AS OF 'absent'",
        "INSERT INTO information_schema.tables VALUES (1)",
    ],
)  # fmt: skip
def test_other_statements_write_nothing(lake: Lake, text: str) -> None:
    name = f"db{uuid4().hex[:8]}.tides"
    lake.tables.create(name, {"id": "long", "station": "string"})
    lake.tables.insert(name, [{"id": 1, "station": "Brest"}])
    with pytest.raises((Invalid, NotFound)):
        write(lake, text.format(name))
    assert rows(lake, name) == [(1, "Brest")]
