"""MERGE INTO: what it writes is what DuckDB's own MERGE writes to the same rows; and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import duckdb
import pytest

from catalog.access import Caller, Level, Role
from catalog.core.errors import Conflict, Denied, Invalid, LakeError, NotFound
from catalog.lake import Lake
from catalog.query import Writes
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on
from tests.worlds.query import rows_of

SHELF = [(1, "a", 10), (2, "b", 20), (3, None, 30), (4, "d", None)]
DELIVERY = [(2, "B", 5), (3, "C", None), (9, "i", 7), (None, "?", 1)]


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture(params=["cow", "mor"])
def name(lake: Lake, request: pytest.FixtureRequest) -> str:
    return _made(lake, request.param)


@pytest.fixture(scope="module")
def untouched(lake: Lake) -> str:
    return _made(lake, "cow")


def _made(lake: Lake, mode: Any) -> str:
    """A table of two files with a row deleted from one, and `<name>_in` beside it."""
    name = f"db{uuid4().hex[:8]}.shelf"
    columns = {"id": "long", "label": "string", "stock": "int"}
    lake.tables.create(name, columns, mode=mode)
    lake.tables.insert(name, [*map(_row, SHELF[:2]), _row((7, "gone", 0))])
    lake.tables.insert(name, list(map(_row, SHELF[2:])))
    lake.tables.delete(name, "id = 7")
    lake.tables.create(f"{name}_in", columns)
    lake.tables.insert(f"{name}_in", list(map(_row, DELIVERY)))
    return name


def _row(values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("id", "label", "stock"), values, strict=True))


def merge(lake: Lake, sql: str, caller: Caller | None = None) -> list[tuple[str, int | None]]:
    return [(done.statement, done.rows) for done in Writes(lake.tables, lake.queries.ask, caller).run(sql)]


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return rows_of(lake.queries.run(f"SELECT * FROM {name} ORDER BY ALL", fresh=True))


USING = "MERGE INTO {0} AS t USING {0}_in AS s ON t.id = s.id "
ALIKE = (
    "WHEN MATCHED THEN UPDATE SET stock = t.stock + coalesce(s.stock, 0), label = s.label"
    " WHEN NOT MATCHED THEN INSERT (id, stock) VALUES (s.id, s.stock * 2)",
    "WHEN MATCHED AND s.stock IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET stock = s.stock"
    " WHEN NOT MATCHED AND s.id IS NOT NULL THEN INSERT VALUES (s.id, s.label, s.stock)",
    "WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "WHEN NOT MATCHED BY SOURCE AND t.stock > 5 THEN UPDATE SET label = 'left', stock = NULL"
    " WHEN NOT MATCHED BY TARGET THEN INSERT (label, id) VALUES (CASE WHEN s.id > 5 THEN upper(s.label) END, s.id)",
    "WHEN MATCHED AND t.stock = 20 THEN UPDATE SET stock = 0 WHEN MATCHED AND t.stock >= 20 THEN DELETE",
    "WHEN NOT MATCHED THEN INSERT VALUES (id, NULL, stock)",
    "WHEN MATCHED AND false THEN DELETE",
)


@pytest.mark.parametrize("clauses", ALIKE)
def test_it_writes_what_duckdb_writes(lake: Lake, name: str, clauses: str) -> None:
    duck = duckdb.connect()
    duck.execute("CREATE TABLE shelf (id BIGINT, label VARCHAR, stock INT); CREATE TABLE shelf_in AS FROM shelf")
    duck.executemany("INSERT INTO shelf VALUES (?, ?, ?)", SHELF)
    duck.executemany("INSERT INTO shelf_in VALUES (?, ?, ?)", DELIVERY)
    (count,) = duck.execute(f"{USING.format('shelf')}{clauses}").fetchone() or ()
    snapshots = len(lake.tables.history(name))
    assert merge(lake, f"{USING.format(name)}{clauses}") == [("MERGE", count)]
    assert rows(lake, name) == duck.execute("SELECT * FROM shelf ORDER BY ALL").fetchall()
    assert len(lake.tables.history(name)) == snapshots + (count > 0), "one commit, or none"


@pytest.mark.parametrize("seed", range(6))
def test_random_merges_write_what_duckdb_writes(lake: Lake, seed: int) -> None:
    chance = random.Random(f"merge {seed}")
    name, duck = f"db{uuid4().hex[:8]}.shelf", duckdb.connect()
    duck.execute("CREATE TABLE shelf (id BIGINT, label VARCHAR, stock INT); CREATE TABLE shelf_in AS FROM shelf")
    columns = {"id": "long", "label": "string", "stock": "int"}
    for table, target, below, count in (("shelf", name, 40, 10), ("shelf_in", f"{name}_in", 20, 5)):
        lake.tables.create(target, columns, mode=chance.choice(("cow", "mor")))
        ids = chance.sample(range(below), 2 * count)
        for part in (ids[:count], ids[count:]):
            made = [(number, chance.choice(("x", "y", None)), chance.choice((0, 1, 5, None))) for number in part]
            duck.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", made)
            lake.tables.insert(target, list(map(_row, made)))
    for _ in range(6):
        made = sorted((_clause(chance) for _ in range(chance.randint(1, 4))), key=lambda text: " AND " not in text)
        clauses = " ".join({text.partition(" THEN ")[0]: text for text in made}.values())
        (count,) = duck.execute(f"{USING.format('shelf')}{clauses}").fetchone() or ()
        assert merge(lake, f"{USING.format(name)}{clauses}") == [("MERGE", count)], clauses
        assert rows(lake, name) == duck.execute("SELECT * FROM shelf ORDER BY ALL").fetchall(), clauses


def _clause(chance: random.Random) -> str:
    kind = chance.choice(("MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"))
    side = "s" if kind == "NOT MATCHED" else "t"
    condition = chance.choice(("", f" AND {side}.stock > 0", f" AND {side}.label = 'x'", f" AND {side}.id % 3 = 0"))
    if kind == "NOT MATCHED":
        action = chance.choice(("INSERT VALUES (s.id, s.label, s.stock)", "INSERT (stock, id) VALUES (1, s.id)"))
    else:
        given = "s.label" if kind == "MATCHED" else "'z'"
        action = chance.choice(
            ("DELETE", f"UPDATE SET label = {given}", "UPDATE SET stock = t.stock + 1, label = NULL")
        )
    return f"WHEN {kind}{condition} THEN {chance.choice((action, action, 'DO NOTHING'))}"


def test_a_row_that_two_rows_of_the_source_match_is_refused(lake: Lake, name: str) -> None:
    source = "(VALUES (2, 5), (2, 6), (9, 1), (9, 1)) AS s(id, stock)"
    head = f"MERGE INTO {name} t USING {source} ON t.id = s.id "
    for clause in ("WHEN MATCHED THEN UPDATE SET stock = s.stock", "WHEN MATCHED THEN DELETE"):
        with pytest.raises(Invalid, match="several rows"):
            merge(lake, head + clause)
    assert rows(lake, name) == sorted(SHELF, key=str)
    # One of the two is left out by its condition, and rows that are not there yet match nothing.
    assert merge(lake, f"{head} WHEN MATCHED AND s.stock > 5 THEN UPDATE SET stock = s.stock") == [("MERGE", 1)]
    assert merge(lake, f"{head} WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)") == [("MERGE", 2)]


def test_values_are_never_rounded(lake: Lake, name: str) -> None:
    head = f"MERGE INTO {name} t USING (SELECT 2 AS id, 1.5 AS half, 9 AS other) s ON t.id = "
    with pytest.raises(Invalid, match="whole number"):
        merge(lake, f"{head} s.id WHEN MATCHED THEN UPDATE SET stock = s.half")
    with pytest.raises(Invalid, match="whole number"):
        merge(lake, f"{head} s.other WHEN NOT MATCHED THEN INSERT (stock) VALUES (s.half)")
    # Not for rows that the clause does not get.
    deletes = "WHEN MATCHED AND t.stock = 20 THEN DELETE WHEN MATCHED THEN UPDATE SET stock = s.half"
    assert merge(lake, f"{head} s.id {deletes}") == [("MERGE", 1)]
    assert merge(lake, f"{head} s.other WHEN MATCHED THEN UPDATE SET stock = s.half") == [("MERGE", 0)]


def test_roles_are_those_of_update(lake: Lake, name: str) -> None:
    text = f"{USING.format(name)}WHEN MATCHED THEN DELETE"
    reads = Caller("ada", (Role(Level.READ, name), Role(Level.READ, f"{name}_in")))
    with pytest.raises(Denied):
        merge(lake, text, reads)
    with pytest.raises(NotFound):
        merge(lake, text, Caller("eve", (Role(Level.WRITE, name),)))
    assert merge(lake, text, Caller("bob", (Role(Level.WRITE, name), Role(Level.READ, f"{name}_in")))) == [("MERGE", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "MERGE INTO {0} USING {0}_in s ON shelf.id = s.id", "MERGE {0} USING {0}_in s ON true WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s ON id = s.id WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s ON id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "MERGE INTO {0} t USING {0}_in t ON t.id = t.id WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING (SELECT 1 AS id) ON t.id = 1 WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN NOT MATCHED AND t.id = 1 THEN INSERT (id) VALUES (s.id)",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND s.id = 1 THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN NOT MATCHED THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN MATCHED THEN INSERT (id) VALUES (1)",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN MATCHED THEN UPDATE SET absent = 1",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, id) VALUES (1, 2)",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (1)",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN MATCHED AND random() > 0.5 THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s JOIN {0} u ON u.id = s.id ON t.id = s.id WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING read_csv('/etc/passwd') s ON true WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN MATCHED THEN DELETE RETURNING *",
        "MERGE INTO {0} t USING {0}_in s ON true) x; -- WHEN MATCHED THEN DELETE",
        "MERGE INTO {0} t USING {0}_in s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET id = 1",
        "MERGE INTO {0} t USING (SELECT error('no') AS e) s ON s.e = 'x' WHEN MATCHED THEN DELETE",
    ],
)  # fmt: skip
def test_other_merges_write_nothing(lake: Lake, untouched: str, text: str) -> None:
    with pytest.raises(LakeError) as caught:
        merge(lake, text.format(untouched))
    assert isinstance(caught.value, Invalid | NotFound), caught.value
    assert rows(lake, untouched) == sorted(SHELF, key=str)


def test_in_a_transaction_with_other_statements(lake: Lake, name: str) -> None:
    text = f"BEGIN; {USING.format(name)} WHEN MATCHED THEN DELETE; INSERT INTO {name}_in (id) VALUES (50); COMMIT"
    assert merge(lake, text) == [("MERGE", 2), ("INSERT", 1)]
    with pytest.raises(Invalid, match="reads"):
        merge(
            lake,
            f"BEGIN; INSERT INTO {name}_in (id) VALUES (51); {USING.format(name)} WHEN MATCHED THEN DELETE; COMMIT",
        )


def test_a_table_that_a_transaction_reads_is_held(lake: Lake, name: str) -> None:
    """INSERT … SELECT in a transaction: what it read is still there when it commits, or it reads again."""
    log = f"{name}_log"
    lake.tables.create(log, {"n": "long"})
    added = iter((60, 61))

    def ask(sql: str, **options: Any) -> Any:
        answer = lake.queries.ask(sql, **options)
        if "LIMIT 0" not in sql and "count" in sql and (new := next(added, None)) is not None:
            lake.tables.insert(f"{name}_in", [{"id": new}])
        return answer

    text = f"BEGIN; INSERT INTO {log} SELECT count(*) FROM {name}_in; DELETE FROM {name} WHERE id = 1; COMMIT"
    done = Writes(lake.tables, ask).run(text)
    assert [one.rows for one in done] == [1, 1]
    assert rows(lake, log) == [(len(DELIVERY) + 2,)], "what it counted is what was there at its commit"

    def always(sql: str, **options: Any) -> Any:
        answer = lake.queries.ask(sql, **options)
        lake.tables.insert(f"{name}_in", [{"id": 70}])
        return answer

    with pytest.raises(Conflict, match="try again"):
        Writes(lake.tables, always).run(text)
    assert len(rows(lake, log)) == 1
    # A table that is read as of an earlier snapshot does not change any more, and is not held.
    snapshot = lake.tables.history(f"{name}_in")[-1].snapshot_id
    as_of = f"BEGIN; INSERT INTO {log} SELECT count(*) FROM {name}_in AS OF 'snapshot:{snapshot}'; COMMIT"
    assert Writes(lake.tables, lake.queries.ask).run(as_of)[0].rows == 1


def test_a_transaction_that_reads_needs_the_role_to_hold(lake: Lake, name: str) -> None:
    reader = Caller("ada", (Role(Level.WRITE, name), Role(Level.READ, f"{name}_in")))
    text = f"INSERT INTO {name} (id) SELECT id + 100 FROM {name}_in WHERE id = 2"
    with pytest.raises(Denied, match="holds"):
        merge(lake, f"BEGIN; {text}; COMMIT", reader)
    assert rows(lake, name) == sorted(SHELF, key=str)
    assert merge(lake, text, reader) == [("INSERT", 1)]
