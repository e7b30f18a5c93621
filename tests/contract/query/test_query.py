"""Queries over a lake with a timeline: time travel, receipts, proof, what is not read, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from catalog.core.errors import Invalid, NotFound, Unverified
from catalog.core.point_in_time import SnapshotId
from catalog.lake import Lake, open_lake
from catalog.merkle import proof as proof_file
from catalog.query.plan.routing import UNPACKED, Route
from catalog.query.run.engine_limits import EngineLimits
from catalog.query.run.queries import Queries
from infra.local.server import ApiServer
from tests.worlds.lake import lake_on, sequence
from tests.worlds.query import rows_of


@pytest.fixture(scope="module")
def lake(server: ApiServer) -> Iterator[Lake]:
    with lake_on(server) as made:
        yield made


@pytest.fixture
def reader(lake: Lake) -> Iterator[Lake]:
    """The same lake from another process, as far as it can be told."""
    with closing(open_lake(lake.settings)) as made:
        yield made


@pytest.fixture
def name() -> str:
    return f"db{uuid4().hex[:8]}.tides"


SCHEMA = {"id": "long", "station": "string", "metres": "double"}


def rows(*ids: int, station: str = "Brest") -> list[dict[str, Any]]:
    return [{"id": number, "station": station, "metres": number / 2} for number in ids]


def ask(lake: Lake, sql: str, **options: Any) -> list[tuple[Any, ...]]:
    return rows_of(lake.queries.run(sql, **options))


def data_gets(server: ApiServer, call: Callable[[], Any]) -> int:
    mark = server.log.mark()
    call()
    return len(server.log.since(mark, lambda request: request.action == "GET" and request.touches("/data/")))


def test_as_of_any_index_is_what_was_read_then(lake: Lake, reader: Lake, name: str) -> None:
    """Commits of every kind, the schema changing on the way; each index is read again at the end, by another reader."""
    tables, rng = lake.tables, random.Random(7)
    tables.create(name, {"id": "int", "station": "string", "metres": "float"}, mode="mor", key=["id"])
    steps: list[Callable[[], Any]] = [
        lambda: tables.insert(name, rows(*range(6))),
        lambda: tables.upsert(name, rows(2, 3, 9, station="Dover")),
        lambda: tables.alter(name, rename={"metres": "height"}),
        lambda: tables.delete(name, "id = 4"),
        lambda: tables.alter(name, drop=["station"], promote={"id": "long", "height": "double"}),
        lambda: tables.insert(name, [{"id": 20, "height": 1.5}]),
        lambda: tables.alter(name, add={"station": "string"}),
        lambda: tables.upsert(name, [{"id": 20, "height": 9.0, "station": "Ushant"}]),
        lambda: tables.compact(name),
        lambda: tables.rollback(name, SnapshotId(tables.history(name)[2].snapshot_id)),
        lambda: tables.delete(name, "id < 3"),
    ]
    read: dict[int, pa.Table] = {}
    for step in steps:
        step()
        index = sequence(lake, name)
        answer = lake.queries.run(f"SELECT * FROM {name} ORDER BY id")
        assert answer.receipt.index == index
        read[index] = answer.table()
        assert sorted(map(str, rows_of(read[index]))) == sorted(map(str, rows_of(tables.scan(name)))), (
            "what is read now is what the tables themselves read"
        )
    assert len({str(table.schema) for table in read.values()}) >= 4
    for index in rng.sample(sorted(read), len(read)):
        again = reader.queries.run(f"SELECT * FROM {name} ORDER BY id", as_of=index)
        assert again.table().equals(read[index]) and again.receipt.index == index
        versioned = reader.queries.run(f"SELECT * FROM {name} VERSION AS OF {index} v ORDER BY v.id")
        assert versioned.table().equals(read[index])


def test_a_query_names_its_version_by_time_name_index_or_snapshot(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, rows(1))
    first = sequence(lake, name)
    snapshot = lake.tables.snapshot(name, "before")
    lake.tables.insert(name, rows(2))
    sequence(lake, name)
    then = datetime.fromtimestamp(lake.timeline.commit(first).sequenced_ms / 1000, UTC)
    texts = [
        f"FROM {name} FOR SYSTEM_TIME AS OF TIMESTAMP '{then:%Y-%m-%d %H:%M:%S.%f}'",
        f"FROM {name} FOR SYSTEM_TIME AS OF '{then.isoformat()}' x",
        f"FROM {name} VERSION AS OF {first}",
        f"FROM {name} FOR VERSION AS OF 'snapshot:{snapshot.snapshot_id}' AS x",
        f"FROM {name} AS OF 'before'",
    ]
    for text in texts:
        assert ask(lake, f"SELECT id {text}") == [(1,)], text
    assert ask(lake, f"SELECT id FROM {name} ORDER BY id") == [(1,), (2,)]
    assert ask(lake, f"SELECT id FROM {name}", as_of=then) == [(1,)]
    both = f"SELECT a.id FROM {name} a LEFT JOIN {name} VERSION AS OF {first} b ON a.id = b.id WHERE b.id IS NULL"
    answer = lake.queries.run(both)
    assert rows_of(answer) == [(2,)]
    assert set(answer.receipt.snapshots) == {name, f"{name}@{first}"}
    with pytest.raises(NotFound, match="there is no index 999999"):
        ask(lake, f"SELECT id FROM {name}", as_of=999_999)
    with pytest.raises(NotFound, match="never"):
        ask(lake, f"SELECT id FROM {name} AS OF 'never'")


def test_all_tables_are_read_at_one_cut_and_fresh_reads_past_it(lake: Lake, name: str) -> None:
    other = f"{name}_too"
    for table in (name, other):
        lake.tables.create(table, SCHEMA)
        lake.tables.insert(table, rows(1))
    index = sequence(lake, name, other)
    lake.tables.insert(other, rows(2))  # committed, not yet sequenced
    sql = f"SELECT count(*) FROM {name} a JOIN {other} b ON true WHERE a.metres >= 0"
    answer = lake.queries.run(sql)
    assert rows_of(answer) == [(1,)] and (answer.receipt.index, answer.receipt.fresh) == (index, None)
    fresh = lake.queries.run(sql, fresh=True)
    assert rows_of(fresh) == [(2,)] and (fresh.receipt.index, fresh.receipt.fresh) == (None, "fresh was requested")
    unseen = f"{name}_new"
    lake.tables.create(unseen, SCHEMA)
    with pytest.raises(NotFound, match=r"not be sequenced yet.*fresh"):
        ask(lake, f"SELECT * FROM {unseen}")
    assert ask(lake, f"SELECT * FROM {unseen}", fresh=True) == []


def test_a_lake_without_a_timeline_is_read_as_it_is(server: ApiServer) -> None:
    with lake_on(server) as bare:
        bare.tables.create("bare.tides", SCHEMA)
        bare.tables.insert("bare.tides", rows(1, 2))
        answer = bare.queries.run("SELECT sum(id) FROM bare.tides")
        assert rows_of(answer) == [(3,)]
        assert answer.receipt.index is None and "no timeline" in str(answer.receipt.fresh)
        with pytest.raises(NotFound, match="no timeline"):
            bare.queries.run("SELECT 1 FROM bare.tides", as_of=0)
        with pytest.raises(Invalid, match="nothing can be verified"):
            bare.queries.run("SELECT 1 FROM bare.tides", verify=True)


def test_a_verified_answer_proves_every_object_and_a_tampered_one_fails_it(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA, mode="mor")
    lake.tables.insert(name, rows(*range(5)))
    lake.tables.insert(name, rows(*range(5, 9)))
    lake.tables.delete(name, "id = 3")
    sequence(lake, name)
    sql = f"SELECT sum(id) FROM {name}"
    answer = lake.queries.run(sql, verify=True)
    assert rows_of(answer) == [(33,)]
    receipt = answer.receipt
    kinds = {one.path.rpartition("/")[2].partition(".")[2] for one in receipt.objects}
    assert receipt.verified and kinds == {"avro", "parquet"}
    paths = {one.path for one in receipt.objects}
    for index, proof in receipt.proofs.items():
        assert proof_file.read(proof).index == index
    assert {one.index for one in receipt.objects} == set(receipt.proofs)
    assert len([path for path in paths if path.endswith("deletes.parquet")]) == 1
    for path in sorted(paths):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        before = lake.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        middle = len(before) // 2
        lake.s3.put_object(
            Bucket=bucket, Key=key, Body=before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :]
        )
        try:
            with pytest.raises(Unverified) as caught:
                lake.queries.run(sql, verify=True).table()
            assert caught.value.subject == path and path in caught.value.message
        finally:
            lake.s3.put_object(Bucket=bucket, Key=key, Body=before)
    assert rows_of(lake.queries.run(sql, verify=True)) == [(33,)]


def test_counts_and_bounds_of_whole_files_need_no_data(lake: Lake, reader: Lake, server: ApiServer, name: str) -> None:
    lake.tables.create(name, {**SCHEMA, "day": "date"}, partition=["station"])
    for station in ("Brest", "Dover"):
        lake.tables.insert(name, rows(*range(4), station=station))
    lake.tables.insert(name, [{"id": None, "station": None, "metres": None}])
    sequence(lake, name)
    answers: dict[str, Any] = {}
    questions = {
        f"SELECT count(*) FROM {name}": [(9,)],
        f"SELECT count(*) AS n, count(id), min(id), max(id), max(day) FROM {name}": [(9, 8, 0, 3, None)],
        f"SELECT max(id) FROM {name} WHERE station = 'Dover'": [(3,)],
        f"SELECT count(*) FROM {name} WHERE station IS NULL": [(1,)],
        f"SELECT count(1) FROM {name} WHERE id > 50": [(0,)],
    }
    for sql, expected in questions.items():
        gets = data_gets(server, lambda sql=sql: answers.update({sql: reader.queries.run(sql)}))
        assert (gets, answers[sql].route) == (0, Route.METADATA), sql
        assert rows_of(answers[sql]) == expected
    # What statistics do not decide is read: no writer counts NaN here, a range may cut through a file.
    for sql in (f"SELECT max(metres) FROM {name}", f"SELECT count(*) FROM {name} WHERE id > 1"):
        assert lake.queries.run(sql).route is Route.LAMBDA
    lake.tables.alter(name, mode="mor")
    lake.tables.delete(name, "id = 2")
    sequence(lake, name)
    answer = lake.queries.run(f"SELECT count(*) FROM {name}")
    assert (rows_of(answer), answer.route) == ([(7,)], Route.LAMBDA), "pending deletes are counted, not guessed"


def test_only_files_that_may_matter_are_read_and_each_once(
    lake: Lake, reader: Lake, server: ApiServer, name: str
) -> None:
    lake.tables.create(name, SCHEMA)
    for start in range(0, 50, 10):
        lake.tables.insert(name, rows(*range(start, start + 10)))
    sequence(lake, name)
    sql = f"SELECT station FROM {name} WHERE id = $1 AND metres < 100"
    assert data_gets(server, lambda: ask(reader, sql, parameters=[33])) == 1
    assert data_gets(server, lambda: ask(reader, sql, parameters=[34])) == 0, "kept: the object cannot change"
    limited = f"SELECT station FROM {name} LIMIT 3"
    assert data_gets(server, lambda: ask(reader, limited)) <= 1
    explained = lake.queries.explain(sql, parameters=[33])
    assert (explained.tables[0].files, explained.tables[0].of_files) == (1, 5)


def test_the_same_question_of_the_same_snapshots_is_answered_from_memory(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, rows(1, 2))
    sequence(lake, name)
    sql = f"SELECT sum(metres) FROM {name} WHERE id < $n"
    assert ask(lake, sql, parameters={"n": 5}) == [(1.5,)]
    again = lake.queries.run(f"select  SUM(metres) from {name} where id<$n -- the same", parameters={"n": 5})
    assert again.receipt.cached and rows_of(again) == [(1.5,)]
    assert not lake.queries.run(sql, parameters={"n": 6}).receipt.cached
    lake.tables.insert(name, rows(3))
    sequence(lake, name)
    fresh = lake.queries.run(sql, parameters={"n": 5})
    assert not fresh.receipt.cached and rows_of(fresh) == [(3.0,)]
    assert not lake.queries.run("SELECT random() > 2").receipt.cached
    assert not lake.queries.run("SELECT random() > 2").receipt.cached


class TableReader:
    """A caller who may read some tables."""

    def __init__(self, *tables: str) -> None:
        self.roles = tables

    def readable(self, tables: Iterable[str]) -> list[str]:
        return [table for table in tables if table in self.roles]


def test_a_caller_is_told_nothing_of_tables_it_may_not_read(lake: Lake, name: str) -> None:
    secret = f"{name}_secret"
    for table in (name, secret):
        lake.tables.create(table, SCHEMA)
        lake.tables.insert(table, rows(1))
    sequence(lake, name, secret)
    caller = TableReader(name)
    assert ask(lake, f"SELECT id FROM {name}", caller=caller) == [(1,)]
    for sql in (f"SELECT id FROM {secret}", f"SELECT id FROM {name} WHERE id IN (SELECT id FROM {secret})"):
        with pytest.raises(NotFound, match="or none that you may read") as caught:
            ask(lake, sql, caller=caller)
        absent = ask_error(lake, f"SELECT id FROM {secret}x", caller)
        assert caught.value.message.replace(secret, "T") == absent.replace(f"{secret}x", "T")


def ask_error(lake: Lake, sql: str, caller: Any) -> str:
    with pytest.raises(NotFound) as caught:
        ask(lake, sql, caller=caller)
    return caught.value.message


BAD = {
    "SELECT": "cannot be run|cannot be parsed",
    "SELECT 'abc": "cannot be parsed",
    "SELECT (1": r"line 1, column \d+",
    "": "empty",
    "SELECT 1; SELECT 2": "2 statements",
    "DROP TABLE t": "DROP is not a query",
    "INSERT INTO t VALUES (1)": "INSERT is not a query",
    "COPY (SELECT 1) TO '/tmp/x.csv'": "COPY is not a query",
    "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'": "not a query|cannot be parsed",
    "SET x = 1": "SET is not a query",
    "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x": "DELETE is not allowed in a query",
    "SELECT * FROM read_parquet('s3://b/k')": "only tables of the lake can be read",
    "SELECT * FROM read_csv_auto('/etc/passwd')": "only tables of the lake can be read",
    "SELECT * FROM '/etc/passwd'": "there is no table",
    "SELECT * FROM 's3://bucket/key.parquet'": "there is no table",
    "SELECT * FROM a.b.c": "too many parts",
    "SELECT no_such_function(1)": "no_such_function",
    "SELECT 1 // 0": "[Dd]ivision by zero",
    "SELECT 9223372036854775807 + 1": "[Oo]verflow",
    "SELECT * FROM read_text('/etc/passwd')": "only tables of the lake can be read",
    "SELECT * FROM query('SELECT 1')": "only tables of the lake can be read",
    "SELECT * FROM duckdb_settings()": "only tables of the lake can be read",
    "SELECT * FROM duckdb_settings": "there is no table",
    "SELECT * FROM arrow_scan(1, 2, 3)": "only tables of the lake can be read",
    "SELECT current_setting('threads')": "not a function that a query may call",
    "PIVOT (SELECT 1 AS a) ON a USING count(*)": "must name its values",
    "WITH x AS (SELECT 1) SELECT * FROM x AT (VERSION => 3)": "AS OF",
    "ATTACH ':memory:' AS q": "ATTACH is not a query",
    "PRAGMA database_list": "PRAGMA is not a query",
    "SELECT CAST('x' AS INT)": "cannot be run",
    "SELECT date '2024-01-01' + true": "cannot be run",
    "SELECT $1": "parameter \\$1 has no value",
    "SELECT 1 FROM generate_series(1, 3) AS OF 'x'": "AS OF",
    "SELECT " + "(" * 300 + "1" + ")" * 300: "nested",
}


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_input_is_refused_with_a_reason(lake: Lake, number: int) -> None:
    sql, reason = list(BAD.items())[number]
    with pytest.raises((Invalid, NotFound), match=reason):
        lake.queries.run(sql).table()


def test_unknown_names_come_with_suggestions(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, rows(1))
    sequence(lake, name)
    with pytest.raises(NotFound, match=f"did you mean {name}"):
        ask(lake, f"SELECT 1 FROM {name[:-1]}")
    with pytest.raises(Invalid, match="no column metre: did you mean metres"):
        ask(lake, f"SELECT metre FROM {name}")
    with pytest.raises(Invalid, match=r"no column t\.stations: did you mean station"):
        ask(lake, f"SELECT t.stations FROM {name} t")
    with pytest.raises(Invalid, match="there are id, metres, station"):
        ask(lake, f"SELECT xyzzy FROM {name}")


def test_what_never_ends_is_ended_and_what_does_not_fit_is_refused(lake: Lake, name: str) -> None:
    endless = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(Invalid, match=r"longer than its 0\.5 s"):
        lake.queries.run(endless, limits=EngineLimits(1 << 30, 0.5)).table()
    bounded = endless.replace("FROM n)", "FROM n WHERE i < 1000)")
    assert ask(lake, bounded) == [(1000,)]
    large = "SELECT a.value, array_agg(b.value) FROM range(3000) a(value), range(3000) b(value) GROUP BY 1"
    with pytest.raises(Invalid, match="needs more than 16 MiB"):
        lake.queries.run(large, limits=EngineLimits(16 << 20, 120)).table()
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, rows(*range(5000)))
    sequence(lake, name)
    with pytest.raises(Invalid, match=r"too large for this process: it reads .* over the limit of 1.0 KiB"):
        lake.queries.run(f"SELECT * FROM {name}", limit_bytes=1024)
    assert lake.queries.explain(f"SELECT * FROM {name}", limits=EngineLimits(1 << 16)).route is Route.SPARK
    assert lake.queries.run("SELECT 1 AS one").table().to_pylist() == [{"one": 1}], "and the next query is answered"


def test_the_route_is_explained_with_sizes_and_dollars(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, rows(*range(100)))
    sequence(lake, name)
    lines = [line for (line,) in ask(lake, f"EXPLAIN ROUTE SELECT station FROM {name} WHERE id > 5")]
    assert lines[0].startswith("route    lambda: ")
    assert any("1 of 1 files, 100 rows" in line for line in lines) and any("$0.0" in line for line in lines)
    assert lake.queries.explain(f"SELECT count(*) FROM {name}").route is Route.METADATA


def test_memory_is_estimated_from_types_however_well_a_file_packs_them(lake: Lake, name: str) -> None:
    """Equal values are next to nothing in their file, and as wide as any in memory."""
    lake.tables.create(name, {"id": "long", "price": "decimal(15, 2)", "word": "string"})
    alike = {"id": 7, "price": Decimal("1.50"), "word": "tide"}
    lake.tables.insert(name, [alike] * 5000)
    sequence(lake, name)
    estimate = lake.queries.explain(f"SELECT * FROM {name}")
    held = lake.queries.run(f"SELECT * FROM {name}").table().nbytes
    assert estimate.bytes * UNPACKED < held <= estimate.memory_bytes < 2 * held


def test_what_was_estimated_and_what_happened_is_told(lake: Lake, name: str) -> None:
    lake.tables.create(name, SCHEMA)
    lake.tables.insert(name, rows(1))
    sequence(lake, name)
    told: list[dict[str, Any]] = []
    queries = Queries(lake.tables, lambda: lake.timeline, lake.attestations, observe=told.append)
    queries.run(f"SELECT station FROM {name} WHERE metres > 0").table()
    (one,) = told
    assert (one["route"], one["rows"], one["requests"]) == ("lambda", 1, 1)
    assert one["estimated_bytes"] > 0 and one["bytes"] > 0
