"""SHOW, DESCRIBE, SUMMARIZE, information_schema, functions in FROM, and EXPLAIN: what they show, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from catalog.access import Caller, Level, Role
from catalog.core.errors import Denied, Invalid, LakeError, NotFound
from catalog.lake import Lake
from catalog.query.run.queries import AccessRules, Queries
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import rows_of


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture
def database() -> str:
    return f"db{uuid4().hex[:8]}"


@pytest.fixture
def name(lake: Lake, database: str) -> str:
    """A table with three commits: an insert, a delete, and an insert after a rename and an added column."""
    name = f"{database}.tides"
    lake.tables.create(name, {"id": "long", "station": "string", "metres": "double"}, key=["id"])
    lake.tables.insert(name, rows((1, "Brest"), (2, "Dover")))
    lake.tables.delete(name, "id = 2")
    lake.tables.alter(name, rename={"station": "port"}, add={"at": "date"})
    lake.tables.insert(name, [{"id": 3, "port": "Leith", "metres": 1.5}])
    sequence(lake, name)
    return name


def rows(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": number, "station": station, "metres": number / 2} for number, station in pairs]


def reader(*tables: str) -> Caller:
    return Caller("ada", tuple(Role(Level.READ, table) for table in tables))


def guarded(lake: Lake, rules: AccessRules) -> Queries:
    return Queries(lake.tables, lambda: lake.timeline, lake.attestations, rules=lambda caller, table: rules)


def asked(queries: Queries, sql: str, **options: Any) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = queries.run(sql, **options).table().to_pylist()
    return answer


def test_show_tables_lists_what_the_caller_may_read(lake: Lake, name: str, database: str) -> None:
    lake.tables.create(f"{database}.secret", {"id": "long"})
    assert asked(lake.queries, f"SHOW TABLES FROM {database}") == [
        {"database": database, "name": "secret"},
        {"database": database, "name": "tides"},
    ]
    assert asked(lake.queries, f"show tables from {database} like 'ti%';") == [{"database": database, "name": "tides"}]
    ada = reader(name)
    assert asked(lake.queries, "SHOW TABLES", caller=ada) == [{"database": database, "name": "tides"}]
    assert asked(lake.queries, "SHOW TABLES", caller=Caller("eve")) == []
    everything = "SELECT table_name FROM information_schema.{0} GROUP BY ALL"
    for view in ("tables", "columns"):
        assert asked(lake.queries, everything.format(view), caller=ada) == [{"table_name": "tides"}]
    assert asked(lake.queries, "SELECT count(*) AS n FROM information_schema.columns", caller=Caller("eve")) == [
        {"n": 0}
    ]


def test_describe_shows_types_key_and_nullability(lake: Lake, name: str) -> None:
    shown = asked(lake.queries, f"DESCRIBE {name}")
    assert [(row["column_name"], row["column_type"], row["null"], row["key"]) for row in shown] == [
        ("id", "BIGINT", "NO", "PRI"),
        ("port", "VARCHAR", "YES", None),
        ("metres", "DOUBLE", "YES", None),
        ("at", "DATE", "YES", None),
    ]
    assert asked(lake.queries, f"SHOW COLUMNS FROM {name}") == shown
    first = asked(lake.queries, f"SELECT min(index) AS i FROM history('{name}')")[0]["i"]
    assert [row["column_name"] for row in asked(lake.queries, f"FROM table_columns('{name}', {first})")] == [
        "id", "station", "metres",
    ]  # fmt: skip
    nested = asked(lake.queries, f"SELECT column_name FROM (DESCRIBE {name}) WHERE key = 'PRI'")
    assert nested == [{"column_name": "id"}]
    listed = asked(
        lake.queries,
        "SELECT column_name, is_nullable, data_type FROM information_schema.columns c WHERE c.table_schema = $db "
        "ORDER BY ordinal_position",
        parameters={"db": name.partition(".")[0]},
    )
    assert listed[0] == {"column_name": "id", "is_nullable": "NO", "data_type": "BIGINT"}


def test_describe_and_summarize_of_a_query(lake: Lake, name: str) -> None:
    shown = asked(lake.queries, f"DESCRIBE SELECT count(*) AS n, max(port) AS p FROM {name}")
    assert [(row["column_name"], row["column_type"]) for row in shown] == [("n", "BIGINT"), ("p", "VARCHAR")]
    summary = asked(lake.queries, f"SUMMARIZE {name}")
    assert [(row["column_name"], row["max"]) for row in summary][:2] == [("id", "3"), ("port", "Leith")]
    assert asked(lake.queries, f"SELECT column_name FROM (SUMMARIZE {name}) LIMIT 1") == [{"column_name": "id"}]
    assert asked(lake.queries, f"SUMMARIZE SELECT id FROM {name}")[0]["count"] == 2


def test_snapshots_history_and_timeline(lake: Lake, name: str) -> None:
    lake.tables.snapshot(name, "monday")
    shown = asked(lake.queries, f"SHOW SNAPSHOTS FROM {name}")
    assert next((row["operation"], row["added_rows"], row["is_current"]) for row in shown) == ("append", 1, True)
    assert "monday" in shown[0]["names"] and len(shown) == 3
    history = asked(lake.queries, f"SELECT * FROM history('{name}') h ORDER BY h.sequence")
    assert [row["operation"] for row in history][:3] == ["create", "append", "overwrite"]
    assert history[1]["changes"] == 2 and history[1]["table_name"] == name
    whole = asked(lake.queries, "FROM timeline()", caller=reader(name))
    assert {row["table_name"] for row in whole} == {name}
    first = history[0]["index"]
    part = asked(
        lake.queries, f"SELECT index FROM timeline({first}, {first + 1}) WHERE table_name = $t", parameters={"t": name}
    )
    assert [row["index"] for row in part] <= [first + 1]
    assert asked(lake.queries, f"SELECT count(*) AS n FROM history('{name}')", as_of=history[1]["index"]) == [{"n": 2}]


def test_changes_are_under_the_newest_schema(lake: Lake, name: str) -> None:
    shown = asked(lake.queries, f"SELECT op, before, after FROM changes('{name}') ORDER BY sequence, after.id")
    assert [row["op"] for row in shown] == ["INSERT", "INSERT", "DELETE", "INSERT"]
    assert shown[0]["after"] == {"id": 1, "port": "Brest", "metres": 0.5, "at": None}
    assert shown[2]["before"]["port"] == "Dover" and shown[2]["after"] is None
    sequences = [row["sequence"] for row in asked(lake.queries, f"SELECT sequence FROM changes('{name}')")]
    later = asked(lake.queries, f"SHOW CHANGES FROM {name} SINCE 'sequence:{sequences[0]}'")
    assert [row["op"] for row in later] == ["DELETE", "INSERT"]
    bound = asked(
        lake.queries,
        "SELECT count(*) AS n FROM changes($t, $s)",
        parameters={"t": name, "s": f"sequence:{sequences[0]}"},
    )
    assert bound == [{"n": 2}]


def test_files_join_with_other_tables_at_the_query_s_cut(lake: Lake, name: str) -> None:
    shown = asked(lake.queries, f"SELECT sum(rows) AS n, count(*) AS files FROM files('{name}')")
    assert shown == [{"n": 2, "files": 2}]
    first = asked(lake.queries, f"SELECT index FROM history('{name}') WHERE operation = 'append' ORDER BY 1 LIMIT 1")
    earlier = f"SELECT sum(rows) AS n FROM files('{name}')"
    assert asked(lake.queries, earlier, as_of=first[0]["index"]) == [{"n": 2}]
    joined = asked(lake.queries, f"SELECT f.rows, t.id FROM files('{name}') AS f JOIN {name} t ON t.id = 3 ORDER BY 1")
    assert [row["id"] for row in joined] == [3, 3]


def test_a_table_that_the_caller_may_not_read_does_not_exist(lake: Lake, name: str, database: str) -> None:
    lake.tables.create(f"{database}.secret", {"id": "long"})
    lake.tables.insert(f"{database}.secret", [{"id": 1}])
    sequence(lake, f"{database}.secret")
    ada = reader(name)
    for text in (
        "DESCRIBE {0}", "SUMMARIZE {0}", "SHOW COLUMNS FROM {0}", "SHOW SNAPSHOTS FROM {0}", "SHOW CHANGES FROM {0}",
        "FROM history('{0}')", "FROM files('{0}')", "FROM changes('{0}')", "FROM table_columns('{0}')",
        "EXPLAIN SELECT * FROM {0}", "EXPLAIN ANALYZE SELECT * FROM {0}",
    ):  # fmt: skip
        errors = []
        for table in (f"{database}.secret", f"{database}.absent"):
            with pytest.raises(NotFound) as caught:
                lake.queries.run(text.format(table), caller=ada)
            errors.append(caught.value.message.replace(table, "T"))
        assert errors[0] == errors[1], text
    assert asked(lake.queries, f"FROM timeline() WHERE table_name LIKE '{database}.s%'", caller=ada) == []


def test_masks_and_filters_hold_for_what_shows_the_lake(lake: Lake, name: str) -> None:
    rules = AccessRules("port = 'Brest'", {"metres": None, "at": "CAST('x' AS VARCHAR)"})
    queries = guarded(lake, rules)
    described = [(row["column_name"], row["column_type"]) for row in asked(queries, f"DESCRIBE {name}")]
    assert described == [("id", "BIGINT"), ("port", "VARCHAR"), ("at", "VARCHAR")]
    listed = asked(queries, "SELECT column_name FROM information_schema.columns")
    assert "metres" not in {row["column_name"] for row in listed}
    for table in ("files", "changes"):
        with pytest.raises(Denied):
            queries.run(f"FROM {table}('{name}')")
    for text in (f"SHOW SNAPSHOTS FROM {name}", f"FROM history('{name}')", "FROM timeline()"):
        for row in asked(queries, text):
            assert all(row.get(column) is None for column in ("added_rows", "deleted_rows", "total_rows", "changes"))
    summary = asked(queries, f"SUMMARIZE {name}")
    assert [row["column_name"] for row in summary] == ["id", "port", "at"] and summary[0]["max"] == "1"
    # Whichever file a condition leaves out, the explanation is the same: it does not tell of hidden rows.
    explained = {tuple(rows_of(queries.run(f"EXPLAIN SELECT id FROM {name} WHERE id = {n}"))) for n in (1, 3, 99)}
    assert len(explained) == 1 and "Brest" not in str(explained)
    assert len({str(queries.explain(f"SELECT id FROM {name} WHERE id = {n}")) for n in (1, 3, 99)}) == 1
    with pytest.raises(Invalid):
        queries.run(f"EXPLAIN ANALYZE SELECT * FROM {name}")


def test_explain_shows_the_route_and_the_engine_s_plan(lake: Lake, name: str) -> None:
    text = f"SELECT port, count(*) FROM {name} WHERE metres > 1 GROUP BY 1"
    plan = [row["plan"] for row in asked(lake.queries, f"EXPLAIN {text}")]
    assert plan[0].startswith("route    lambda") and any(line.startswith(f"table    {name}: ") for line in plan)
    assert any("$" in line for line in plan) and any("Parquet" in line or "PARQUET" in line for line in plan)
    assert "lake://" not in "\n".join(plan)
    route = [row["plan"] for row in asked(lake.queries, f"EXPLAIN ROUTE {text}")]
    assert route == plan[: len(route)] and len(route) < len(plan)
    assert asked(lake.queries, f"EXPLAIN SELECT count(*) FROM {name}")[0]["plan"].startswith("route    metadata")


def test_explain_analyze_says_what_happened_by_operator(lake: Lake, name: str) -> None:
    answer = lake.queries.run(f"EXPLAIN ANALYZE SELECT port FROM {name} WHERE metres > 1 ORDER BY port")
    lines = [row["plan"] for row in answer.table().to_pylist()]
    scans = [line for line in lines if "scan" in line and line.split()[-3].isdigit()]
    assert scans and any(line.startswith("read     ") for line in lines) and "lake://" not in "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        "SHOW", "SHOW SECRETS", "SHOW DATABASES", "SHOW TABLES FROM a b", "SHOW COLUMNS FROM", "DESCRIBE",
        "FROM information_schema.schemata", "FROM information_schema.tables AS OF 3", "SELECT files('t')",
        "SELECT 1, files('t')", "FROM files(t)", "FROM files('t' || 'x')", "FROM files()", "FROM history('t', 1)",
        "FROM history((SELECT 't'))", "FROM changes($missing)", "FROM duckdb_tables()", "FROM main.history('t')",
        "FROM pragma_table_info('t')", "SHOW ALL", "FROM files('a.b.c')", "FROM changes(NULL)", "DESCRIBE t AS OF 3",
        "FROM (SHOW TABLES)", "EXPLAIN EXPLAIN SELECT 1", "EXPLAIN", "FROM timeline(-1)", "SUMMARIZE",
        "EXPLAIN ANALYZE DELETE FROM t", "DESCRIBE secrets; SELECT 1",
    ],
)  # fmt: skip
def test_other_statements_are_refused(lake: Lake, text: str) -> None:
    with pytest.raises((Invalid, NotFound)):
        lake.queries.run(text)


def test_a_common_table_expression_does_not_take_the_place_of_a_function(lake: Lake, name: str) -> None:
    with pytest.raises(LakeError):
        lake.queries.run("WITH files AS (SELECT 1 AS path) SELECT * FROM files('x.y')")
    assert asked(lake.queries, "WITH files AS (SELECT 1 AS path) SELECT * FROM files") == [{"path": 1}]


def test_what_shows_the_lake_is_never_cached(lake: Lake, name: str, database: str) -> None:
    before = len(asked(lake.queries, "SHOW TABLES"))
    lake.tables.create(f"{database}.another", {"id": "long"})
    assert len(asked(lake.queries, "SHOW TABLES")) == before + 1
    with pytest.raises(Invalid, match="verif"):
        lake.queries.run("SHOW TABLES", verify=True)


class Shapes:
    """A history that keeps under which shapes queries are recorded, and looked up."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self.looked_up: list[str] = []

    def record(self, measurement: dict[str, Any]) -> bool:
        self.recorded.append(measurement["shape"])
        return True

    def newest(self, shape: str) -> list[dict[str, Any]]:
        self.looked_up.append(shape)
        return []


def test_explain_tells_nothing_of_queries_over_another_table_of_the_name(lake: Lake, name: str) -> None:
    """Without its database, a name is another table for another caller."""
    other, shapes = f"db{uuid4().hex[:8]}.tides", Shapes()
    lake.tables.create(other, {"id": "long"})
    sequence(lake, other)
    queries = Queries(lake.tables, lambda: lake.timeline, lake.attestations, history=shapes)  # type: ignore[arg-type]
    asked(queries, "SELECT id FROM tides", caller=reader(name))
    for caller in (reader(name), reader(other)):
        asked(queries, "EXPLAIN ROUTE SELECT id FROM tides", caller=caller)
    assert shapes.looked_up[0] == shapes.recorded[0] != shapes.looked_up[1]


HIDDEN = [
    "EXPLAIN SELECT * FROM {0}", "EXPLAIN ROUTE SELECT * FROM {0}", "EXPLAIN ANALYZE SELECT * FROM {0}", "DESCRIBE {0}",
    "EXPLAIN DESCRIBE {0}", "SUMMARIZE {0}", "DESCRIBE SELECT * FROM {0}", "SUMMARIZE SELECT * FROM {0}",
    "SHOW COLUMNS FROM {0}", "SHOW SNAPSHOTS FROM {0}", "SHOW CHANGES FROM {0}", "FROM changes('{0}')",
    "FROM files('{0}')", "FROM history('{0}')", "FROM snapshots('{0}')", "FROM table_columns('{0}')",
    "SELECT * FROM (DESCRIBE {0})", "SELECT * FROM (SUMMARIZE {1}), {0}",
    "SELECT * FROM {1} WHERE id IN (SELECT id FROM {0})",
]  # fmt: skip


@pytest.mark.parametrize("text", HIDDEN)
def test_a_hidden_table_is_said_to_be_none_by_every_statement(lake: Lake, name: str, database: str, text: str) -> None:
    """As for a name that nobody has: the two errors differ in the name alone."""
    lake.tables.create(f"{database}.secret", {"id": "long"})
    errors = []
    for hidden in (f"{database}.secret", f"{database}.nobody"):
        with pytest.raises(NotFound, match="or none that you may read") as caught:
            asked(lake.queries, text.format(hidden, name), caller=reader(name))
        errors.append(caught.value.message.replace(hidden, "it"))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("kind", ["", "ANALYZE ", "ROUTE "])
def test_explain_shows_no_paths_and_no_names_of_the_engine(lake: Lake, name: str, kind: str) -> None:
    for sql in (f"SELECT * FROM {name} WHERE id > 1", f"SELECT h.index FROM history('{name}') h JOIN {name} t ON true"):
        text = str(asked(lake.queries, f"EXPLAIN {kind}{sql}", caller=reader(name)))
        for secret in ("lake://", "s3://", "strandline_", ".parquet", lake.settings.bucket):
            assert secret not in text, text
